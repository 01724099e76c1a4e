"""What choosing a spawner of ours changes in the hub, all of it here.

JupyterHub offers no other place that one line of configuration (``spawner_class``) can reach:

* ``/api/batchspawner`` is taken out of the hub's handlers: servers here report to the address below.
* ``/api/gpuspawner/...`` and ``/gpuspawner/...`` come in, and some pages are ours (:mod:`.routes`).
* Our page templates are looked up after the admin's own and before the hub's.
* A configuration that would fail at the first click is refused, in one sentence, before the hub starts; a setting that
  has no effect is named in the log.
* Jobs that no server belongs to are looked for (:mod:`.reconciliation`), and servers that nobody watches
  (:mod:`.unfinished`).

A hub imports every spawner that is installed, whichever one it uses, while it is being made. So nothing is done at
import: :func:`register` is called when a spawner is taken from the package, or from a module of it, by name, and does
its work only in a hub that exists by then, that is, while its configuration is read. Handlers and templates are set up
after that. A hub that comes to a spawner of ours later (as a profile of wrapspawner's own spawner) lacks the address to
which servers report: there :func:`require` refuses the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from jupyterhub import apihandlers, handlers
from jupyterhub.app import JupyterHub
from traitlets import TraitError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub import routes
from jupyterhub_gpuspawner.hub.page_tools import PageTools
from jupyterhub_gpuspawner.hub.site.account import refused_names
from jupyterhub_gpuspawner.hub.site.database_file import exposed_database
from jupyterhub_gpuspawner.hub.upkeep.reconciliation import register_reconciliation
from jupyterhub_gpuspawner.hub.upkeep.unfinished import register_unfinished

if TYPE_CHECKING:
    from collections.abc import MutableSequence

TEMPLATES = Path(__file__).parent / "pages" / "templates"


def register_handlers(api: MutableSequence[tuple[Any, ...]], pages: MutableSequence[tuple[Any, ...]]) -> None:
    """Put ours in and batchspawner's out, in place; twice is as good as once."""
    import batchspawner  # noqa: F401 - its import adds the handler that has to go

    ours = {entry[1] for entry in (*routes.API, *routes.PAGES)}
    for handlers_of in (api, pages):
        handlers_of[:] = [
            (path, routes.TAKEN_OVER.get(handler, handler), *rest)
            for path, handler, *rest in handlers_of
            if handler not in ours and not str(handler.__module__).startswith("batchspawner")
        ]
    api.extend(routes.API)
    pages.extend(routes.PAGES)


def register_templates(app: JupyterHub) -> None:
    """Let the hub find our templates, and them what they need, whatever the admin sets afterwards."""
    ours = str(TEMPLATES)
    stock = app._template_paths_default()  # noqa: SLF001 - what app.template_paths is until it is set

    def insert(_change: object = None) -> None:
        own = [path for path in app.template_paths if path != ours and path not in stock]
        wanted = [*own, ours, *stock]
        if app.template_paths != wanted:
            app.template_paths = wanted

    def equip(_change: object = None) -> None:
        if "gpuspawner" not in app.template_vars:
            app.template_vars = {**app.template_vars, "gpuspawner": PageTools()}

    insert()
    app.observe(insert, "template_paths")
    equip()
    app.observe(equip, "template_vars")


def register_check(app: JupyterHub) -> None:
    """Let the hub refuse a fault in its spawner's configuration, in the words it has for any trait's fault.

    What has no effect is a warning.

    It does so where it sets its handlers up: then all of the configuration is known, and nothing has been started.
    What is unsafe and no fault of the configuration's form goes into the log.
    """

    def check(_change: object) -> None:
        if not hasattr(app.spawner_class, "check"):
            return
        try:
            spawner = app.spawner_class(config=app.config)
            spawner.check()
            for ignored in getattr(spawner, "ignored_settings", tuple)():
                app.log.warning("%s", ignored)
        except (ConfigError, TraitError) as error:
            app.log.critical("Bad config encountered during initialization: %s", error)
            app.exit(1)

    def warn(_change: object) -> None:
        for text in filter(None, (exposed_database(app.db_url), *refused_names(app.config))):
            app.log.warning("gpuspawner: %s", text)

    app.observe(check, "handlers")
    app.observe(warn, "handlers")


_DONE: WeakSet[JupyterHub] = WeakSet()


def register() -> None:
    """Do all that in the hub of this process, once; nothing where there is none yet, or where it is too late."""
    if not JupyterHub.initialized():
        return
    app = JupyterHub.instance()
    if app not in _DONE and not app.handlers:
        _DONE.add(app)
        register_handlers(apihandlers.default_handlers, handlers.default_handlers)
        register_templates(app)
        register_check(app)
        register_reconciliation(app)
        register_unfinished(app)


def require() -> None:
    """Raise ConfigError in a hub that has been set up without this package; pass where there is no hub."""
    if JupyterHub.initialized() and JupyterHub.instance() not in _DONE:
        raise ConfigError(
            "this hub was set up without jupyterhub-gpuspawner, so no server can report to it.",
            where="c.JupyterHub.spawner_class",
            hint='Set it to "gpu-profiles", or to a class of your own that is made of ours.',
        )
