"""The extensions of a hub that runs: one object, which asks each for what it adds.

Whatever an extension does wrong stays its own: a hook, a loop or a page that raises is named in the log, and left out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.user import User
from markupsafe import Markup
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from tornado import web
from traitlets import HasTraits, TraitError
from traitlets.config import Config, Configurable
from traitlets.log import get_logger

from jupyterhub_gpuspawner.batch.carried import Carried
from jupyterhub_gpuspawner.errors import ConfigError, ReportError
from jupyterhub_gpuspawner.extension import Extension, Extensions, Fault, Kind, installed, load_each
from jupyterhub_gpuspawner.hub.extension import (
    Forecast,
    Hardware,
    HubExtension,
    Letter,
    Link,
    NodeMarks,
    Notice,
    PlannedWait,
    ServerPart,
    WithServer,
)
from jupyterhub_gpuspawner.hub.site.connection import Cluster, Clusters
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.site.state import HubState, state_for, state_of
from jupyterhub_gpuspawner.hub.site.tables import ExtensionTables
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import Availability, Span, Waits
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.tasks import Ended, contained
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument

P = ParamSpec("P")
T = TypeVar("T")

RAISED = (Exception, SystemExit, asyncio.CancelledError)
"""What an extension may raise where nothing is awaited; the hub and the notebook go on."""
REPEAT_SECONDS = 3600.0
"""After how long a failure that goes on is logged again."""
CARRIED = Kind("a Carried", lambda value: isinstance(value, Carried))
HUB = Kind("a HubExtension", lambda value: isinstance(value, HubExtension))
TRAITS = Kind("a class of traits", lambda value: isinstance(value, type) and issubclass(value, HasTraits))

Failed = Callable[[str, str, BaseException], object]
"""Is told of an extension that has raised: its name, what was called, and the error."""


@contextmanager
def guarded(failed: Failed, name: str, what: str) -> Iterator[None]:
    """Let nothing that an extension raises out of a block that awaits nothing: the hub and the notebook go on."""
    try:
        yield
    except RAISED as error:
        failed(name, what, error)


async def answered(failed: Failed, name: str, what: str, call: Callable[[], Awaitable[T]]) -> T | None:
    """The same for what is awaited; None where it raises."""

    async def ask() -> T:  # what gives nothing to await is a fault, too
        return await call()

    answer: T | None = None
    try:
        answer = await contained(ask)
    except Exception as error:  # noqa: BLE001 - as above
        failed(name, what, _raised(error))
    return answer


def _raised(error: Exception) -> BaseException:
    return error.__cause__ or error if isinstance(error, Ended) else error


class _Guarded(Forecast):
    """An extension's forecast, which knows nothing where that raises."""

    def __init__(self, forecast: Forecast, failed: Failed, name: str) -> None:
        self._forecast, self._failed, self._name = forecast, failed, name
        self.notice, self.as_of = forecast.notice, forecast.as_of

    def of(self, request: JobRequest) -> Availability | None:
        answer = None
        with guarded(self._failed, self._name, "forecast"):
            answer = self._forecast.of(request)
        return answer  # noqa: RET504 - what is guarded may raise

    def hardware(self, resources: Resources) -> Hardware:
        hardware = Hardware()
        with guarded(self._failed, self._name, "forecast"):
            hardware = self._forecast.hardware(resources)
        return hardware  # noqa: RET504 - as above


class ServerExtensions:
    """What extensions keep with one server. One that raises is told to ``failed``, and the server goes on.

    Each method that is asked of all is named as that of :class:`WithServer`, and typed as it is:
    ``extensions.first(WithServer.queue_position)``.
    """

    def __init__(
        self,
        with_server: Sequence[tuple[str, WithServer]] = (),
        failed: Failed = lambda _name, _what, _error: None,
    ) -> None:
        self._with_server, self._failed = tuple(with_server), failed

    def get(self, kind: type[T]) -> T | None:
        """What the extension with this class keeps; None where the hub does not have it."""
        return next((with_server for _, with_server in self._with_server if isinstance(with_server, kind)), None)

    def each(self, method: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Call this method of each; what they answer, in the order of the extensions."""
        answers: list[T] = []
        for name, with_server in self._with_server:
            with guarded(self._failed, name, method.__name__):
                answers.append(getattr(with_server, method.__name__)(*args, **kwargs))
        return answers

    def first(self, method: Callable[Concatenate[Any, P], T | None], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The answer of the first that knows one: neither None nor empty."""
        return next(filter(None, self.each(method, *args, **kwargs)), None)

    async def await_each(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        """As :meth:`each`, all at a time; in the order in which they answer."""
        answers: list[T] = []

        async def ask(name: str, with_server: WithServer) -> None:
            call = partial(getattr(with_server, method.__name__), *args, **kwargs)
            if (answer := await answered(self._failed, name, method.__name__, call)) is not None:
                answers.append(answer)

        await asyncio.gather(*(ask(name, with_server) for name, with_server in self._with_server))
        return answers

    async def await_first(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T | None]], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """As :meth:`first`: of the first to answer."""
        return next(filter(None, await self.await_each(method, *args, **kwargs)), None)

    def to_state(self) -> dict[str, Any]:
        """What all of them store in the spawner's state; of one that would store what is no JSON, nothing."""
        state: dict[str, Any] = {}
        for name, with_server in self._with_server:
            with guarded(self._failed, name, "to_state"):
                state |= json.loads(json.dumps(dict(with_server.to_state())))
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Have each go on with the stored state."""
        self.each(WithServer.load, state)

    def forget(self) -> None:
        """The server has ended."""
        self.each(WithServer.forget)

    def promises(self) -> tuple[Any, ...]:
        """What was said of the job's start so far."""
        return tuple(promise for promises in self.each(WithServer.promises) for promise in promises)

    def node_reported(self, report: NodeReport) -> bool:
        """Whether one of them takes the report of another of the job's nodes; raises ReportError."""
        for name, with_server in self._with_server:
            try:
                if with_server.node_reported(report):
                    return True
            except ReportError:
                raise
            except RAISED as error:
                self._failed(name, "node_reported", error)
        return False

    def placed(self, placement: PlacementDocument, allocations: Sequence[NodeAllocation]) -> PlacementDocument:
        """The placement with what each knows of it."""
        for name, with_server in self._with_server:
            with guarded(self._failed, name, "placed"):
                placement = of_kind(PlacementDocument, with_server.placed(placement, allocations))
        return placement


def of_kind(kind: type[T], answer: object) -> T:
    """The same answer; raises TypeError for one of another kind."""
    if not isinstance(answer, kind):
        raise TypeError(f"{answer!r} is no {kind.__name__}")
    return answer


@dataclass(frozen=True)
class Part:
    """An extension of this hub: what it says of itself, and what it adds."""

    extension: Extension
    adds: HubExtension

    @cached_property
    def templates(self) -> Path:
        """The folder of its page templates, which need not be there."""
        return self.extension.folder / "templates"

    @cached_property
    def static(self) -> Path:
        """The folder of its stylesheets and scripts, which need not be there."""
        return self.extension.folder / "static"


class HubExtensions:
    """The extensions of one hub."""

    def __init__(
        self,
        extensions: Extensions = Extensions(),  # noqa: B008 - it is frozen
        state: HubState | None = None,
    ) -> None:
        """``state`` is that of the hub, which keeps these."""
        self.extensions = extensions
        self.state = HubState() if state is None else state
        self.state.keep(self)
        self.state.of(Clusters).prepare = self.prepare
        self._session: Session | None = None
        """That of the hub's database, which is rolled back when an extension's query fails."""
        for left_out in extensions.faults:
            report(left_out)
        tuple(load_each(extensions, lambda extension: extension.spawner_settings, report, TRAITS))
        loaded = load_each(extensions, lambda extension: extension.hub, report, HUB)
        self.parts = tuple(Part(extension, adds) for extension, adds in loaded)
        self._logged: dict[tuple[str, str, type], float] = {}
        """When each of their failures was logged last."""

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def each(
        self, what: str, of: Callable[[HubExtension], Callable[P, T | None] | None], *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[T]:
        """What the hooks give that ``of`` finds, without None; one that raises is named in the log, and left out.

        ``what`` is the name of the hook, for the log.
        """
        for name, hook in self._having(of):
            value = None
            with guarded(self.failed, name, what):
                value = hook(*args, **kwargs)
            if value is not None:
                yield value

    def all_of(
        self,
        what: str,
        kind: type[T],
        of: Callable[[HubExtension], Callable[P, Iterable[T]] | None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> list[T]:
        """All that these hooks give, in the order of the extensions; nothing of one that raises, see :meth:`each`."""
        values: list[T] = []
        for name, hook in self._having(of):
            with guarded(self.failed, name, what):
                values += [of_kind(kind, value) for value in hook(*args, **kwargs)]
        return values

    def _having(self, of: Callable[[HubExtension], T | None]) -> Iterator[tuple[str, T]]:
        """The names of the extensions that have this, and what they have."""
        for part in self.parts:
            if (has := of(part.adds)) is not None:
                yield part.extension.name, has

    def failed(self, name: str, what: str, error: BaseException) -> None:
        """Name an extension whose hook has raised in the log, once an hour; its traceback is there once."""
        if isinstance(error, SQLAlchemyError) and self._session is not None:
            roll_back(self._session)
        now, key = time.monotonic(), (name, what, type(error))
        last = self._logged.get(key)
        if last is not None and now - last < REPEAT_SECONDS:
            return
        self._logged[key] = now
        if isinstance(error, SQLAlchemyError):
            text = "The extension %s is left out here, since the hub's database failed: %s"
            get_logger().warning(text, name, fault(error))
            return
        get_logger().error(
            "The extension %s is left out here, since its %s failed: %s: %s",
            *(name, what, type(error).__name__, error),
            exc_info=error if last is None else None,
        )

    @cached_property
    def card_styles(self) -> tuple[str, ...]:
        """The stylesheets of what they show on cards, as ``EXTENSION/FILE``."""
        return tuple(f"{part.extension.name}/card.css" for part in self.parts if (part.static / "card.css").is_file())

    def page_parts(self, page: str) -> list[str]:
        """The templates that they add to a page (``form``, ``home``): ``NAME_PAGE.html`` in the folder of each."""
        names = ((part, f"{part.extension.name}_{page}.html") for part in self.parts)
        return [name for part, name in names if (part.templates / name).is_file()]

    def configured(self, app: JupyterHub) -> None:
        """Let each prepare the hub."""
        self._call(lambda adds: adds.configured, app)

    def begin(self, app: JupyterHub) -> None:
        """Begin the work of each."""
        self._session = app.db
        self._call(lambda adds: adds.begin, app)

    def _call(self, of: Callable[[HubExtension], Iterable[Callable[[JupyterHub], object]]], app: JupyterHub) -> None:
        for part in self.parts:
            for call in of(part.adds):
                with guarded(self.failed, part.extension.name, call.__name__):
                    call(app)

    def routes(self, prefix: str) -> list[tuple[Any, ...]]:
        """All routes below ``prefix``; a page that raises an error names its extension in the log."""
        routes: list[tuple[Any, ...]] = []
        for part in self.parts:
            name = part.extension.name
            with guarded(self.failed, name, "routes"):
                routes += [
                    (f"{prefix.rstrip('/')}{path}", _named(handler, name), *rest)
                    for path, handler, *rest in (*part.adds.api, *part.adds.pages)
                ]
        return routes

    def check_settings(self, config: Config) -> None:
        """Raise ConfigError or TraitError for settings with which no hub can run."""
        for part in self.parts:
            for cls in part.adds.settings:
                try:
                    cls(config=config)
                except (ConfigError, TraitError):
                    raise
                except RAISED as error:
                    self.failed(part.extension.name, cls.__name__, error)

    def links(self, parsed_scopes: Mapping[str, object], user: Any) -> list[Link]:
        """The entries of the navigation bar for whoever has these scopes."""
        links: list[Link] = []
        for part in self.parts:
            with guarded(self.failed, part.extension.name, "links"):
                links += [link for link in part.adds.links if link.may_see(parsed_scopes, user)]
        return links

    def notices(self, user: Any, spawner: Any = None) -> list[Notice]:
        """What is told to a user now, the newest first; nothing to a service."""
        if not isinstance(user, User):
            return []
        notices = self.all_of("notices", Notice, lambda adds: adds.notices, user, spawner)
        return sorted(notices, key=lambda notice: -notice.at)

    def letters(self, settings: Mapping[str, Any], now: float) -> list[Letter]:
        """What people are to be told now who may look at no page."""
        return self.all_of("letters", Letter, lambda adds: adds.letters, settings, now)

    async def refresh_profiles(self, spawner: Any) -> None:
        """Have each read anew what it offers the spawner's user."""
        for part in self.parts:
            refresh = partial(part.adds.profiles_of.refresh, spawner)
            await answered(self.failed, part.extension.name, "profiles_of", refresh)

    def with_choices(self, spawner: Any, profile: Profile) -> Profile:
        """A profile with the choices that each knows for its options and the spawner's user."""
        for name, choices_of in self._having(lambda adds: adds.choices_of):
            with guarded(self.failed, name, "choices_of"):
                profile = of_kind(Profile, choices_of(spawner, profile))
        return profile

    def refused_choices(self, spawner: Any, request: JobRequest) -> dict[str, Mapping[str, str]]:
        """Why the options of a request cannot have some values, in clauses by option and value."""
        refused: dict[str, Mapping[str, str]] = {}
        for name, refused_choices in self._having(lambda adds: adds.refused_choices):
            with guarded(self.failed, name, "refused_choices"):
                by_option = refused_choices(spawner, request)
                refused |= {option: {**refused.get(option, {}), **reasons} for option, reasons in by_option.items()}
        return refused

    def waits(self, cluster: str, *, queued: bool) -> Waits:
        """What they know of waits on a cluster, of pending jobs or before a job is submitted; the first that does."""

        def span(partition: str, planned: float) -> Span | None:
            wait = PlannedWait(cluster, partition, planned, queued)
            return next(self.each("estimate", lambda adds: adds.estimate, self.state, wait), None)

        return span

    async def forecast(self, spawner: Any, profiles: Sequence[Profile], *, asks: bool = True) -> Forecast:
        """When the user of this spawner would get jobs of these profiles, as the first that knows says."""
        for name, forecast in self._having(lambda adds: adds.forecast):
            given = await answered(self.failed, name, "forecast", partial(forecast, spawner, profiles, asks))
            with guarded(self.failed, name, "forecast"):
                if given is not None:
                    return _Guarded(of_kind(Forecast, given), self.failed, name)
        return Forecast()

    def prepare(self, snapshot: ClusterSnapshot) -> None:
        """Have each prepare for a new view of a cluster; runs in a thread."""
        list(self.each("prepare", lambda adds: adds.prepare, snapshot))

    async def below_wait(self, handler: BaseHandler, spawner: Any) -> list[Markup]:
        """The sections on the page of a server that is being started."""
        sections = [
            await answered(self.failed, name, "below_wait", partial(below_wait, handler, spawner))
            for name, below_wait in self._having(lambda adds: adds.below_wait)
        ]
        return [section for section in sections if section is not None]

    def marks_of(self, cluster: str) -> list[NodeMarks]:
        """What they know of nodes of a cluster."""
        return list(self.each("marks_of", lambda adds: adds.marks_of, self.state, cluster))

    async def below_map(self, handler: BaseHandler, cluster: Cluster, name: str) -> list[Markup]:
        """The sections below the map of a cluster; raises SQLAlchemyError."""
        sections: list[Markup] = []
        for extension, below_map in self._having(lambda adds: adds.below_map):
            try:
                sections.append(await contained(partial(below_map, handler, cluster, name)))
            except SQLAlchemyError:
                raise
            except Exception as error:  # noqa: BLE001 - as in `answered`
                self.failed(extension, "below_map", _raised(error))
        return sections

    def with_server(self, spawner: Any) -> ServerExtensions:
        """What they keep with the server of this spawner, which nothing is known of yet."""
        kept = []
        for name, with_server in self._having(lambda adds: adds.with_server):
            with guarded(self.failed, name, "with_server"):
                kept.append((name, with_server(spawner)))
        return ServerExtensions(kept, self.failed)

    def parts_of(self, spawner: Any, server: Any) -> tuple[ServerPart, ...]:
        """What they show of a server, in the order of their names."""
        parts = self.all_of("parts_of", ServerPart, lambda adds: adds.parts_of, spawner, server)
        return tuple(sorted(parts, key=lambda part: part.name))

    @property
    def templates(self) -> list[str]:
        """The folders of their page templates."""
        return [str(part.templates) for part in self.parts if part.templates.is_dir()]

    @property
    def tables(self) -> list[ExtensionTables]:
        """The tables of each in the hub's database."""
        having = (part for part in self.parts if part.adds.tables)
        return [ExtensionTables(part.extension.name, part.adds.tables, part.adds.steps) for part in having]

    @property
    def settings(self) -> tuple[type[Configurable], ...]:
        """The classes of settings of each."""
        return tuple(cls for part in self.parts for cls in part.adds.settings)

    @property
    def page_tools(self) -> dict[str, Any]:
        """What templates find, by its name."""
        return {name: tool for part in self.parts for name, tool in (part.adds.page_tools or {}).items()}


def spawner_settings(names: Sequence[str] | None = None) -> tuple[type[HasTraits], ...]:
    """The traits that extensions with these names, or of this installation, add to those of ``c.GPUSlurmSpawner``.

    A spawner also has those of extensions that a hub leaves out, whose settings then have no effect: its class is made
    before any configuration is read. There is no log by then either: :class:`HubExtensions` names those that fail.
    """
    loaded = load_each(chosen(names), lambda extension: extension.spawner_settings, lambda _fault: None, TRAITS)
    return tuple(cls for _, cls in loaded)


def names_for(spawner: Any) -> tuple[str, ...] | None:
    """Those that the configuration of this spawner's hub names; None where it has all that are installed."""
    names: Sequence[str] | None = getattr(spawner, "extensions", None)
    return None if names is None else tuple(names)


@cache
def carried_by(names: tuple[str, ...] | None) -> tuple[Carried, ...]:
    """What the extensions with these names, or all, add to the launcher; one that cannot be loaded is left out."""
    loaded = load_each(chosen(names), lambda extension: extension.launcher, report, CARRIED)
    return tuple(replace(carried, extension=extension.name) for extension, carried in loaded)


def report(left_out: Fault) -> None:
    """Name an extension that is left out in the log."""
    get_logger().error("%s", left_out, exc_info=left_out.error)


def _contained(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def run(*args: Any, **kwargs: Any) -> Any:
        return await contained(partial(method, *args, **kwargs))

    return run


def _named(handler: type, name: str) -> type:
    """The same handler, which names its extension where it fails."""

    class Named(handler):
        def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
            if not isinstance(value, (web.HTTPError, SQLAlchemyError)):
                self.log.error("A page of the extension %s failed: %s", name, self.request.path)
            super().log_exception(typ, value, tb)

    for verb in map(str.lower, handler.SUPPORTED_METHODS):  # type: ignore[attr-defined]
        setattr(Named, verb, _contained(getattr(handler, verb)))
    Named.__name__, Named.__qualname__, Named.__module__ = handler.__name__, handler.__qualname__, handler.__module__
    return Named


def extensions_of(settings: Mapping[str, Any]) -> HubExtensions:
    """The extensions of the hub with these tornado settings; none in what is no hub that was set up."""
    return state_of(settings).of(HubExtensions)


def extensions_for(spawner: Any) -> HubExtensions:
    """Those of this spawner's hub; none outside of a hub."""
    return state_for(spawner).of(HubExtensions)


def chosen(names: Sequence[str] | None) -> Extensions:
    """Those of the installation with these names; all of them with None. Raises ConfigError."""
    return installed() if names is None else installed().only(names)
