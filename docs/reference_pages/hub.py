"""What this package does inside a hub: the pages that it replaces, what goes on while the hub runs, and its tables."""

from __future__ import annotations

import inspect

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.hub import routes
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.registration import UPKEEP
from jupyterhub_gpuspawner.hub.site.tables import TABLES

from .wording import code, markdown, table


def page() -> str:
    """The page of what is in the hub."""
    parts = list(HubExtensions(installed()))
    work = [("", begin) for begin in UPKEEP]
    work += [(part.extension.name, begin) for part in parts for begin in part.adds.begin]
    tables = [("", name) for name in sorted(TABLES.tables)]
    tables += [(part.extension.name, each.name) for part in parts for each in part.adds.tables]
    return "\n".join(
        [
            "# In the hub\n",
            "[How it works](../explanation/how-it-works.md) says how these parts belong together.\n",
            "## Pages and requests of JupyterHub that are replaced\n",
            "Each of ours is derived from JupyterHub's handler, and keeps what it does but for what is said here.\n",
            table(
                ("JupyterHub's handler", "Ours", "What it is, and what is different"),
                [(code(theirs.__name__), code(ours.__name__), _text(ours)) for theirs, ours in routes.REPLACED.items()],
            ),
            "## What goes on as long as the hub runs\n",
            "In the order in which it begins, when all of the configuration is known.\n",
            table(
                ("Extension", "Begun by", "What"), [(name, code(begin.__name__), _text(begin)) for name, begin in work]
            ),
            "## Tables in the hub's database\n",
            table(("Extension", "Table"), [(name, code(each)) for name, each in tables]),
        ]
    )


def _text(value: object) -> str:
    """The whole docstring, as one paragraph."""
    return markdown(inspect.getdoc(value))
