"""Writes the warnings when the hub starts."""

from __future__ import annotations

import sys

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.site.configured import (
    CLEANUP,
    KEEP_SERVERS,
    ends_servers,
    exposed_database,
    foreign_encoding,
    refused_names,
)
from jupyterhub_gpuspawner.site.page_templates import lost_parts


def log_warnings(app: JupyterHub) -> None:
    """One line for each."""
    encoding = foreign_encoding(sys.getfilesystemencoding())
    lost = lost_parts(app.template_paths, state_of(app.tornado_settings).of(HubExtensions).templates)
    for text in filter(None, (encoding, exposed_database(app.db_url), *refused_names(app.config), *lost)):
        app.log.warning("gpuspawner: %s", text)
    if ends := ends_servers(app.config):
        app.log.warning("gpuspawner: %s: %s %s", CLEANUP, ends, KEEP_SERVERS)


HUB = HubExtension(begin=(log_warnings,))
