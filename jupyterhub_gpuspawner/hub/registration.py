"""Set up a hub whose configuration names one of our spawners.

JupyterHub has no other hook that a single line of configuration (``spawner_class``) can reach. :func:`register`

* removes ``/api/batchspawner`` from the hub's handlers, since servers report to an address of ours instead;
* adds ``/api/gpuspawner/...`` and ``/gpuspawner/...``, and replaces some of the hub's pages (:mod:`.routes`);
* has page templates looked up in the admin's folders first, then in ours, then in the hub's, also where one extends
  another (:mod:`.site.templates`);
* has a configuration that would fail at the first start refused, in one sentence, before the hub starts;
* has ``concurrent_spawn_limit`` count only starts whose job is not pending in Slurm;
* brings the tables of this package in the hub's database up to date (:mod:`.site.tables`);
* sets the objects of the started hub aside from garbage collections (:mod:`.site.event_loop`);
* starts the search for jobs without a server (:mod:`.lost_jobs`) and for servers that the hub does not
  watch;
* goes on with starts that Slurm had not taken when the hub ended (:mod:`.unfinished`);
* adds what extensions bring (:mod:`.extensions`), which are known once all of the configuration is read.

A hub imports the spawners of all installed packages while it is being constructed, so an import must not change it.
:func:`register` is called when a spawner is taken from the package by name, and does its work only in a hub that exists
by then, which is while the hub reads its configuration; handlers and templates are set up after that. In a hub that
gets a spawner of ours in another way, for example as a child of wrapspawner's own spawner, servers have no address to
report to: there :func:`.site.state.require_set_up` refuses every start.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from contextlib import suppress
from typing import Any

from jupyterhub import apihandlers, handlers
from jupyterhub.app import JupyterHub
from traitlets import TraitError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub import routes
from jupyterhub_gpuspawner.hub.choose.page import render_form
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, chosen
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    leave_out_of_spawn_limit,
    stock_template_paths,
    template_environments,
    this_hub,
)
from jupyterhub_gpuspawner.hub.lost_jobs import begin_reconciliation
from jupyterhub_gpuspawner.hub.routes import PageTools
from jupyterhub_gpuspawner.hub.site import database
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.site.database import Outage
from jupyterhub_gpuspawner.hub.site.event_loop import begin_garbage
from jupyterhub_gpuspawner.hub.site.log_lines import VisibleText
from jupyterhub_gpuspawner.hub.site.state import set_up, state_of
from jupyterhub_gpuspawner.hub.site.tables import bring_up_to_date
from jupyterhub_gpuspawner.hub.site.templates import use_our_templates
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import site_of_hub, waits_in_queue, with_profiles
from jupyterhub_gpuspawner.hub.spawners.shared_folder import begin_slugs
from jupyterhub_gpuspawner.hub.unfinished import begin_kept_starts, begin_unfinished


def show_all_text(app: JupyterHub) -> None:
    """Have each line of the log show what does not print."""
    for handler in app.log.handlers:
        handler.addFilter(VisibleText(handler))


UPKEEP = (
    show_all_text,
    begin_garbage,
    begin_reconciliation,
    begin_unfinished,
    begin_kept_starts,
)
"""What goes on as long as the hub runs."""


def register_handlers(api: MutableSequence[tuple[Any, ...]], pages: MutableSequence[tuple[Any, ...]]) -> None:
    """Add our handlers and remove batchspawner's, in place; calling it again changes nothing."""
    import batchspawner  # noqa: F401 - its import adds the handler that is removed here

    ours = {entry[1] for entry in (*routes.API, *routes.PAGES)}
    for handlers_of in (api, pages):
        handlers_of[:] = [
            (path, routes.REPLACED.get(handler, handler), *rest)
            for path, handler, *rest in handlers_of
            if handler not in ours and not str(handler.__module__).startswith("batchspawner")
        ]
    api.extend(routes.API)
    pages.extend(routes.PAGES)


def extensions_of_hub(app: JupyterHub) -> HubExtensions:
    """The extensions of this hub, made when they are first asked for: all of its configuration must be known by then.

    All that are installed, if ``c.GPUProfilesSpawner.extensions`` cannot be read: the hub then does not start.
    """
    state = state_of(app.tornado_settings)
    if HubExtensions not in state:
        names = None
        with suppress(TraitError):
            names = getattr(site_of_hub(app), "extensions", None)
        extensions = chosen(names)
        if added := [name for name in extensions.names if names is not None and name not in names]:
            needed = "Extensions that others need are added to c.GPUProfilesSpawner.extensions: %s"
            app.log.warning(needed, ", ".join(added))
        HubExtensions(extensions, state)
    return state.of(HubExtensions)


def register_templates(app: JupyterHub) -> None:
    """Let pages find our templates and the variables that these use, as soon as JupyterHub has made its settings."""

    def use_templates(change: Any) -> None:
        environments = template_environments(change.new)
        if not environments:  # these settings are the configuration's, which is not all known yet
            return
        extensions, stock = extensions_of_hub(app), stock_template_paths(app)
        own = [path for path in app.template_paths if path not in stock]
        for environment in environments:
            use_our_templates(environment, own, stock, extensions.templates)
        tools = {"gpuspawner": PageTools(extensions), "gpuspawner_reader": _reader}
        change.new["template_vars"] = tools | change.new["template_vars"]

    app.observe(use_templates, "tornado_settings")


def _reader(user: Any) -> Any:
    """The user who reads a page: JupyterHub calls this for each. Its ``user`` is, on a server's page, the owner."""
    return user


def check(app: JupyterHub) -> None:
    """Have the hub exit on an invalid configuration of its spawner, with the words it uses for any invalid trait."""
    try:
        site = site_of_hub(app)
        if site is not None:
            site.hub = app.hub  # which there was not yet when extensions asked for their names
            profiles = with_profiles(site)
            if profiles is not None and profiles.source.folder is not None:
                begin_slugs(app, profiles.source.folder)  # before it is read
            site.check()
            site.check_accounts()
            extensions_of_hub(app).check_settings(app.config)
    except (ConfigError, TraitError) as error:
        app.log.critical("Bad config encountered during initialization: %s", error)
        app.exit(1)


def prepare(app: JupyterHub) -> None:
    """Prepare a hub when it sets up its handlers: all configuration is known, its loop runs, and nothing is started."""
    extensions = extensions_of_hub(app)
    bring_up_to_date(app, extensions.tables)
    check(app)
    # before the hub's own, whose last answers for all others
    app.handlers[:0] = [*routes.static_routes(extensions, app.hub_prefix), *extensions.routes(app.hub_prefix)]
    # people in Slurm's queue do not keep others from starting: they are no load on the hub
    leave_out_of_spawn_limit(app.users, waits_in_queue)
    for work in (*UPKEEP, extensions.begin):
        work(app)


def register() -> None:
    """Set up the hub of this process, once; do nothing if there is none yet, or if its handlers are set up already."""
    app = this_hub()
    if app is None or app.handlers or not set_up(app):
        return
    GPUProfilesSpawner.default_form = staticmethod(render_form)
    register_handlers(apihandlers.default_handlers, handlers.default_handlers)
    register_templates(app)
    outage = Outage(app)

    def opened(change: Any) -> None:
        outage.watch(change.new.kw["bind"])
        extensions_of_hub(app).configured(app)

    def configured(_change: object) -> None:
        app.unobserve(configured, "handlers")
        prepare(app)
        every(app, database.OUTAGE_RETRY_SECONDS, outage.retry, "The look at the database")

    app.observe(opened, "session_factory")
    app.observe(configured, "handlers")
