"""The events of servers in JupyterHub's event log."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension("event_log", "Writes the events of servers to JupyterHub's event log.", hub=".hub:HUB")
