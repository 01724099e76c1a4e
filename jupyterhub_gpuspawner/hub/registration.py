"""What importing a spawner of ours changes in the hub, all of it here.

JupyterHub offers no other place that one line of configuration (``spawner_class``) can reach:

* ``/api/batchspawner`` is taken out of the hub's handlers. It sets any attribute that a caller names.
* ``/api/gpuspawner/...`` comes in (:mod:`.handlers`).
* Our page templates are looked up after the admin's own and before the hub's.

``spawner_class`` is resolved while the hub reads its configuration, before handlers and templates are set up.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub import apihandlers
from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.hub.handlers import HANDLERS

if TYPE_CHECKING:
    from collections.abc import MutableSequence

TEMPLATES = Path(__file__).parent / "templates"


def register_handlers(handlers: MutableSequence[tuple[Any, ...]]) -> None:
    """Put ours in and batchspawner's out, in place; twice is as good as once."""
    import batchspawner  # noqa: F401 - its import adds the handler that has to go

    ours = {handler for _, handler in HANDLERS}
    handlers[:] = [
        entry
        for entry in handlers
        if entry[1] not in ours and not str(entry[1].__module__).startswith("batchspawner")
    ]
    handlers.extend(HANDLERS)


def register_templates(app: JupyterHub) -> None:
    """Let the hub find our templates, whatever the admin sets afterwards."""
    ours = str(TEMPLATES)
    stock = app._template_paths_default()

    def insert(_change: object = None) -> None:
        own = [path for path in app.template_paths if path != ours and path not in stock]
        wanted = [*own, ours, *stock]
        if app.template_paths != wanted:
            app.template_paths = wanted

    insert()
    app.observe(insert, "template_paths")


def register() -> None:
    """Done once, when a spawner of ours is imported."""
    register_handlers(apihandlers.default_handlers)
    if JupyterHub.initialized():
        register_templates(JupyterHub.instance())
