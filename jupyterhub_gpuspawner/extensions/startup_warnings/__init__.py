"""What a hub's log says, when it starts, of a configuration that works and is hardly meant so."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "startup_warnings",
    "Names in the log, when the hub starts, what is hardly meant so: a database that others can read, user names that "
    "are refused, page templates that leave out a part, jobs that end with the hub.",
    hub=".hub:HUB",
)
