"""Settings of the hub that have no effect, name impossible users, leave the database open, or replace our pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.hub.site.account import configured_value, refused_names
from jupyterhub_gpuspawner.hub.site.database_file import DEFAULT, exposed_database
from jupyterhub_gpuspawner.hub.site.slurm_settings import former_settings
from jupyterhub_gpuspawner.hub.site.templates import lost_parts
from jupyterhub_gpuspawner.site.configuration import is_unseen, sqlite_file

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

IGNORED = Code("setting-ignored", "A setting of batchspawner, wrapspawner or an earlier version has no effect here.")
REFUSED = Code("user-refused", "The configuration names a user for whom no server can ever be started, such as root.")
EXPOSED = Code("database-exposed", "Other accounts of the hub's machine can read the hub's SQLite database.")
TEMPLATE = Code(
    "template-replaces", "A page template of the site's leaves out messages, links or the cards of servers."
)

UNSEEN = Code(
    "database-unseen",
    "The hub's SQLite database has a path relative to the hub's working directory, which is not known, since no hub "
    "with this configuration is seen running. Who can read it, and its users and groups, are not checked.",
)
_NOT_SEEN = (
    "not looked at: {} is in the working directory of the hub, which is not seen running, and not beside the "
    "configuration"
)


async def check_settings(context: Context) -> list[Finding]:
    """Look at the settings alone."""
    config = context.site.config
    found = [IGNORED.warning(each.where, each.text) for each in context.spawner.ignored_settings()]
    found += [IGNORED.warning(f"c.{section}.{name}", text) for section, name, text in former_settings(config)]
    found += [REFUSED.error("users", text) for text in refused_names(config)]
    folders = configured_value(config.JupyterHub.get("template_paths", []))
    found += [TEMPLATE.warning("c.JupyterHub.template_paths", text) for text in lost_parts(folders)]
    db_url = str(config.JupyterHub.get("db_url", DEFAULT))
    if is_unseen(db_url):
        if "db_url" in config.JupyterHub:  # for the default one, most likely no hub has run yet
            found.append(UNSEEN.ok("database", _NOT_SEEN.format(sqlite_file(db_url))))
    elif exposed := exposed_database(db_url):
        found.append(EXPOSED.warning("database", exposed))
    return found
