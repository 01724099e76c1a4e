"""More time for a running server: a button on its card, a page, and an action over REST."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="more_time",
    about="Lets people and staff extend a running server, within the bounds of the cluster.",
    needs=("availability",),
    profile_fields=".fields:FIELDS",
    hub=".hub:HUB",
    spawner_settings=".settings:MoreTimeSettings",
    checks=".checks",
)
