"""Names settings without effect in the hub's log, and shows servers that batchspawner started."""

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.check.inherited_settings import ignored_by
from jupyterhub_gpuspawner.extensions.inherited.part import parts_of
from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.spawners.server import site_of


def log_ignored(app: JupyterHub) -> None:
    """One line for each."""
    site = site_of(app.tornado_settings)
    for ignored in ignored_by(site) if site is not None else ():
        app.log.warning("%s", ignored)


HUB = HubExtension(begin=(log_ignored,), parts_of=parts_of)
