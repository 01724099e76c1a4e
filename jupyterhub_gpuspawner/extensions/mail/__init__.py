"""Mails to people who asked to be told of a server, and to instructors the evening before a session."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "mail",
    "Mails people when a server is ready, before it ends and when it is idle; off until the admin sets it up.",
    hub=".hub:HUB",
    checks=".checks",
    forget=".store:forget",
)
