"""What extensions add to a hub that runs, show of a server and keep with it, and those of this hub: one object.

Whatever an extension does wrong stays its own: a hook, a loop or a page that raises is named in the log, and left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.user import User
from markupsafe import Markup
from sqlalchemy import Table
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from tornado import web
from traitlets import HasTraits
from traitlets.config import Configurable
from traitlets.log import get_logger

from jupyterhub_gpuspawner.batch.carried import Carried
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Extension, Extensions, Fault, installed, load_each
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.site.state import HubState, state_for, state_of
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import Availability, Estimate, QueuePosition, Span, Waits
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument

P = ParamSpec("P")
T = TypeVar("T")


class Place(Enum):
    """Where on a server's card a part is; parts in one place stand in the order of their names."""

    HEADING = "heading"
    """Below the title, before the time that is left: what the server is for."""
    NOTICE = "notice"
    """Below the time that is left: what its user should know."""
    ACTION = "action"
    """After the notices: what its user can do about it."""
    BESIDE = "beside"
    """Beside all of these."""
    NODE = "node"
    """Below what stands beside them: the node that it runs on."""
    BELOW = "below"
    """Below all of these, over the whole width."""


NOTHING: Mapping[str, Any] = {}
MINUTES_AT_MOST = 1440
"""What :attr:`ServerPart.extend` adds at once at most."""


@dataclass(frozen=True)
class ServerPart:
    """What an extension shows of one server: on its card, in few words on other pages, and over REST."""

    name: str
    place: Place = Place.NOTICE
    template: str = ""
    """The file that shows it on the card, with the variables ``part``, ``card`` and ``heading``, the id of the card's
    heading; empty where the card does not show it."""
    shown: Any = None
    """What the template shows."""
    version: object = None
    """Another one whenever the card is to be shown anew."""
    rows: tuple[tuple[str, str, str], ...] = ()
    """What it adds to the details of a running server: a name, a text of one or more lines, and what it means."""
    problems: tuple[str, ...] = ()
    """Sentences that stand with the problems of the server's node."""
    brief: str = ""
    """The same in a few words, such as ``GPU 83 %``, for tables with many servers."""
    at_end: str = ""
    """What is said of it on the card of a server that was stopped, as a clause."""
    extend: Callable[[int | None, str], Awaitable[int]] | None = None
    """Gives the server more time: so many minutes, in the name of this instructor or administrator (empty: its user).
    Returns the seconds, and raises GPUSpawnerError. None where this part cannot."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """What a running server reads of it in the document of its session, by key."""


@dataclass(frozen=True)
class Hardware:
    """What is known of the nodes on which a job may run."""

    gpu_type: str = ""
    """The only type of their GPUs, in Slurm's words; empty where there are several, or none is known."""
    types_beside: Mapping[str, Collection[str]] = field(default_factory=dict)
    """For each type of GPU of the cluster, those that some node has beside it."""
    cpus_per_core: int = 0
    """How many of the CPUs that it requests a core has; 0 where that is not known or not the same."""
    risk: str = ""
    """What may happen to the job there, as a clause; empty where nothing is known to."""


class Forecast:
    """When jobs of one user would start if they were submitted now, for one page. This one knows nothing."""

    notice = ""
    """What the page says of it above the profiles, with ``{time}`` for :attr:`as_of`."""
    as_of: float | None = None
    """In seconds since the epoch."""

    def of(self, request: JobRequest) -> Availability | None:  # noqa: ARG002 - this one knows nothing
        """When the job of this request would start; None where that is not told."""
        return None

    def hardware(self, resources: Resources) -> Hardware:  # noqa: ARG002 - as above
        """What is known of the nodes on which a job with these resources may run."""
        return Hardware()


class WithServer:
    """What an extension keeps with one server that is a Slurm job. This one keeps nothing."""

    def __init__(self, spawner: Any) -> None:
        """``spawner`` is the :class:`~.spawners.slurm.GPUSlurmSpawner` of the server."""
        self.spawner = spawner

    def to_state(self) -> Mapping[str, Any]:
        """What is stored in the spawner's state, by keys that are this extension's alone."""
        return NOTHING

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on with the spawner's stored state after a restart of the hub; what cannot be read is dropped."""

    def forget(self) -> None:
        """The server has ended."""

    async def refresh(self, patience: float) -> None:
        """Bring up to date what a page shows of a running server; takes ``patience`` seconds at most."""

    async def refresh_waiting(self, patience: float) -> None:
        """The same for a server that is being started."""

    async def availability(self, request: JobRequest) -> Availability | None:  # noqa: ARG002 - this one knows nothing
        """When the job of this request will start, which is about to be submitted; asks Slurm nothing."""
        return None

    async def why_never(self, request: JobRequest, *, since: float) -> str:  # noqa: ARG002 - as above
        """Why the job of this request can never run, in a sentence; empty where that is not known.

        ``since``: when its start began, in seconds since the epoch; what was known before may no longer be so.
        """
        return ""

    def queue_position(self) -> QueuePosition | None:
        """The position of its job in the queue; None unless it is pending, and that is known. Asks nothing."""
        return None

    def expects(self, estimate: Estimate, partition: str, *, now: float) -> None:
        """Its job is pending, and is expected to start then: told each time that Slurm's answer is read.

        Also what was said of it before it was submitted: then it has no id.
        """

    def promises(self) -> tuple[Any, ...]:
        """What was said of its start so far, for its session's events; each is a dataclass."""
        return ()

    def change(self) -> str:
        """Why its job is expected to start at another time than before, in a sentence; empty where nothing is told."""
        return ""

    def node_reported(self, report: NodeReport) -> bool:  # noqa: ARG002 - this one takes none
        """Take the report of another of the job's nodes; False: it takes none. Raises ReportError."""
        return False

    def placed(self, placement: PlacementDocument, allocations: Sequence[NodeAllocation]) -> PlacementDocument:  # noqa: ARG002
        """The placement to be shown, with what this extension knows of it.

        ``allocations`` are those of all the job's nodes as Slurm reports them; empty where it was not asked.
        """
        return placement


Failed = Callable[[str, str, BaseException], object]
"""Is told of an extension that has raised: its name, what was called, and the error."""


@contextmanager
def guarded(failed: Failed, name: str, what: str) -> Iterator[None]:
    """Let no Exception of an extension's out of the block: the hub and the notebook go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - an extension's fault
        failed(name, what, error)


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
        kept: Sequence[tuple[str, WithServer]] = (),
        failed: Failed = lambda _name, _what, _error: None,
    ) -> None:
        self._kept, self._failed = tuple(kept), failed

    def get(self, kind: type[T]) -> T | None:
        """What the extension with this class keeps; None where the hub does not have it."""
        return next((kept for _, kept in self._kept if isinstance(kept, kind)), None)

    def each(self, method: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Call this method of each; what they answer, in the order of the extensions."""
        answers: list[T] = []
        for name, kept in self._kept:
            with guarded(self._failed, name, method.__name__):
                answers.append(getattr(kept, method.__name__)(*args, **kwargs))
        return answers

    def first(self, method: Callable[Concatenate[Any, P], T | None], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The answer of the first that knows one: neither None nor empty."""
        return next(filter(None, self.each(method, *args, **kwargs)), None)

    async def await_each(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        """As :meth:`each`, all at a time; in the order in which they answer."""
        answers: list[T] = []

        async def ask(name: str, kept: WithServer) -> None:
            with guarded(self._failed, name, method.__name__):
                answers.append(await getattr(kept, method.__name__)(*args, **kwargs))

        await asyncio.gather(*(ask(name, kept) for name, kept in self._kept))
        return answers

    async def await_first(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T | None]], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """As :meth:`first`: of the first to answer."""
        return next(filter(None, await self.await_each(method, *args, **kwargs)), None)

    def to_state(self) -> dict[str, Any]:
        """What all of them store in the spawner's state; of one that would store what is no JSON, nothing."""
        state: dict[str, Any] = {}
        for name, kept in self._kept:
            with guarded(self._failed, name, "to_state"):
                state |= json.loads(json.dumps(dict(kept.to_state())))
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Have each go on with the stored state."""
        self.each(WithServer.load, state)

    def forget(self) -> None:
        """The server has ended."""
        self.each(WithServer.forget)

    def promises(self) -> tuple[Any, ...]:
        """What was said of the job's start so far."""
        return tuple(promise for given in self.each(WithServer.promises) for promise in given)

    def node_reported(self, report: NodeReport) -> bool:
        """Whether one of them takes the report of another of the job's nodes; raises ReportError."""
        return any(kept.node_reported(report) for _, kept in self._kept)

    def placed(self, placement: PlacementDocument, allocations: Sequence[NodeAllocation]) -> PlacementDocument:
        """The placement with what each knows of it."""
        for name, kept in self._kept:
            with guarded(self._failed, name, "placed"):
                placement = kept.placed(placement, allocations)
        return placement


@dataclass(frozen=True)
class Link:
    """An entry of the navigation bar."""

    text: str
    path: str
    """Below ``/hub``, such as ``gpuspawner/cluster``."""
    may_see: Callable[[Mapping[str, object], Any], bool]
    """Whether somebody with these parsed scopes sees it; the second is the user, or None."""


@dataclass(frozen=True)
class Notice:
    """A text that somebody has written to a user, shown at the top of pages and in JupyterLab; to be escaped."""

    text: str
    """In one or more lines."""
    sender: str
    """Their user name."""
    at: float
    """When it was sent, in seconds since the epoch."""
    of: str = ""
    """The title of what it is about, such as a course; empty where it is of the hub's administrators."""


async def _nothing(_spawner: Any) -> None:
    """Nothing is read."""


@dataclass(frozen=True)
class ProfilesOf:
    """Profiles that users are offered beside the hub's own; these are none."""

    offered: Callable[[Any], Iterable[Offered]] = lambda _spawner: ()
    """Those of the user of a spawner now, as last read."""
    refresh: Callable[[Any], Awaitable[object]] = _nothing
    """Read anew what those of this spawner's user come from, if that was long ago."""
    errors: Callable[[Any], Iterable[ConfigError]] = lambda _spawner: ()
    """Why some are not offered, for administrators; the spawner is anybody's."""
    refusal: Callable[[Any, str], str] = lambda _spawner, _slug: ""
    """Why the user of a spawner is not offered the profile with this slug, and what they can do; else empty."""
    occasion: Callable[[Mapping[str, Any], str], Occasion | None] = lambda _settings, _slug: None
    """For what the profile with this slug is offered, in the hub with these tornado settings; None for any other."""
    lead_scope: str = ""
    """The scope, filtered by an occasion's group, of those who lead it: staff for the servers of its profile."""
    started_for_others: str = ""
    """What those who lead an occasion can start for somebody else, such as ``the profile of a course that you teach``;
    it follows ``you can start``."""


@dataclass(frozen=True)
class PlannedWait:
    """A wait in Slurm's queue, as Slurm plans it."""

    cluster: str
    """The cluster's name; empty in a hub that names none."""
    partition: str
    seconds: float
    """From now until the start that Slurm plans."""
    queued: bool
    """The job is pending; else Slurm was asked before it is submitted."""


@dataclass(frozen=True)
class NodeMark:
    """What an extension knows of a node, in the row of the node on the map of a cluster; to be escaped."""

    text: str
    """One or more sentences."""
    command: str = ""
    """A command that keeps jobs away from the node; empty where none is needed."""


@dataclass(frozen=True)
class NodeMarks:
    """What an extension knows of some nodes of a cluster."""

    name: str
    """Its key in the document of the map."""
    nodes: Mapping[str, Sequence[NodeMark]]
    """By the names of the nodes."""
    document: Sequence[Mapping[str, Any]]
    """What stands under this key."""


@dataclass(frozen=True)
class HubExtension:
    """What an extension adds to a hub that runs."""

    settings: tuple[type[Configurable], ...] = ()
    """Classes of settings of which each hub makes one object, to check them when it starts."""
    tables: tuple[Table, ...] = ()
    """Tables in the hub's database; made before anything is begun."""
    configured: tuple[Callable[[JupyterHub], object], ...] = ()
    """Called once, when the configuration is read and the database has not been opened: for scopes of its own."""
    begin: tuple[Callable[[JupyterHub], object], ...] = ()
    """Begin what goes on as long as the hub runs; called once, in its event loop."""
    api: tuple[tuple[Any, ...], ...] = ()
    """Routes below ``/hub`` that answer in JSON, as JupyterHub's ``extra_handlers``."""
    pages: tuple[tuple[Any, ...], ...] = ()
    """Routes of pages below ``/hub``."""
    links: tuple[Link, ...] = ()
    """Entries of the navigation bar."""
    notices: Callable[[User, Any], Iterable[Notice]] | None = None
    """What is told to a user now, in this one of their servers (a spawner) or, with None, in all.

    It may raise SQLAlchemyError: nothing is told while the database is away.
    """
    profiles_of: ProfilesOf = ProfilesOf()
    """Profiles that it offers to some users."""
    forecast: Callable[[Any, Sequence[Profile], bool], Awaitable[Forecast]] | None = None
    """When the user of a spawner would get jobs of these profiles; Slurm may be asked, for a second or two, with True,
    and else what is known counts."""
    prepare: Callable[[ClusterSnapshot], object] | None = None
    """Called in a thread of its own with each new view of a cluster, before pages have it."""
    below_wait: Callable[[BaseHandler, Any], Awaitable[Markup]] | None = None
    """A section on the page of a server that is being started, below its stages; of the server's spawner."""
    estimate: Callable[[HubState, PlannedWait], Span | None] | None = None
    """How long a wait will be, better than Slurm's plan; None where it is not known."""
    marks_of: Callable[[HubState, str], NodeMarks] | None = None
    """What it knows of nodes of the cluster with this name, which is empty in a hub that names none."""
    below_map: Callable[[BaseHandler, Cluster, str], Awaitable[Markup]] | None = None
    """A section below the map of a cluster, with the cluster's name where there are several; or SQLAlchemyError."""
    with_server: type[WithServer] | None = None
    """What it keeps with each server that is a Slurm job, and stores in its spawner's state."""
    parts_of: Callable[[Any, Any], Iterable[ServerPart]] | None = None
    """What it shows of a server, of a spawner and the :class:`~.spawners.server.Server` without any part; asks nothing,
    and takes little time, since it is called for all servers of a hub."""
    page_tools: Mapping[str, Any] | None = None
    """What templates find below ``gpuspawner``, by its name, such as a module with sentences."""


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
        self._session: Session | None = None
        """That of the hub's database, which is rolled back when an extension's query fails."""
        for left_out in extensions.faults:
            report(left_out)
        for extension, settings in load_each(extensions, lambda extension: extension.spawner_settings, report):
            if not _has_traits(settings):
                report(Fault(extension.name, f"{extension.spawner_settings} must be a class of traits."))
        loaded = load_each(extensions, lambda extension: extension.hub, report)
        self.parts = tuple(Part(extension, adds) for extension, adds in loaded if _is_hub_extension(extension, adds))
        self._faulty: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def each(
        self, what: str, of: Callable[[HubExtension], Callable[P, T | None] | None], *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[T]:
        """What the hooks give that ``of`` finds, without None; one that raises is named in the log, and left out.

        ``what`` is the name of the hook, for the log.
        """
        for name, hook in self._having(of):
            given = None
            with guarded(self.failed, name, what):
                given = hook(*args, **kwargs)
            if given is not None:
                yield given

    def all_of(
        self,
        what: str,
        of: Callable[[HubExtension], Callable[P, Iterable[T]] | None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> list[T]:
        """All that these hooks give, in the order of the extensions; nothing of one that raises, see :meth:`each`."""
        found: list[T] = []
        for name, hook in self._having(of):
            with guarded(self.failed, name, what):
                found += list(hook(*args, **kwargs))
        return found

    def _having(self, of: Callable[[HubExtension], T | None]) -> Iterator[tuple[str, T]]:
        """The names of the extensions that have this, and what they have."""
        for part in self.parts:
            if (has := of(part.adds)) is not None:
                yield part.extension.name, has

    def failed(self, name: str, what: str, error: BaseException) -> None:
        """Name an extension whose hook has raised in the log; its traceback is there once."""
        if isinstance(error, SQLAlchemyError):
            if self._session is not None:
                roll_back(self._session)
            get_logger().warning(
                "The extension %s is left out here, since the hub's database failed: %s", name, fault(error)
            )
            return
        first = (name, what) not in self._faulty
        self._faulty.add((name, what))
        get_logger().error(
            "The extension %s is left out here, since its %s failed: %s: %s",
            *(name, what, type(error).__name__, error),
            exc_info=error if first else None,
        )

    @cached_property
    def card_styles(self) -> tuple[str, ...]:
        """The stylesheets of what they show on cards, as ``EXTENSION/FILE``."""
        return tuple(f"{part.extension.name}/card.css" for part in self.parts if (part.static / "card.css").is_file())

    @cached_property
    def form_parts(self) -> list[str]:
        """The templates that they add to the form's page: ``NAME_form.html`` in the folder of each."""
        names = ((part, f"{part.extension.name}_form.html") for part in self.parts)
        return [name for part, name in names if (part.templates / name).is_file()]

    # --- what the hub asks -----------------------------------------------------------------------

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
        return [
            (f"{prefix.rstrip('/')}{path}", _named(handler, part.extension.name), *rest)
            for part in self.parts
            for path, handler, *rest in (*part.adds.api, *part.adds.pages)
        ]

    def links(self, parsed_scopes: Mapping[str, object], user: Any) -> list[Link]:
        """The entries of the navigation bar for whoever has these scopes."""
        seen: list[Link] = []
        for part in self.parts:
            with guarded(self.failed, part.extension.name, "links"):
                seen += [link for link in part.adds.links if link.may_see(parsed_scopes, user)]
        return seen

    def notices(self, user: Any, spawner: Any = None) -> list[Notice]:
        """What is told to a user now, the newest first; nothing to a service."""
        if not isinstance(user, User):
            return []
        told = self.all_of("notices", lambda adds: adds.notices, user, spawner)
        return sorted(told, key=lambda notice: -notice.at)

    async def refresh_profiles(self, spawner: Any) -> None:
        """Have each read anew what it offers the spawner's user."""
        for part in self.parts:
            with guarded(self.failed, part.extension.name, "profiles_of"):
                await part.adds.profiles_of.refresh(spawner)

    def waits(self, cluster: str, *, queued: bool) -> Waits:
        """What they know of waits on a cluster, of pending jobs or before a job is submitted; the first that does."""

        def span(partition: str, planned: float) -> Span | None:
            wait = PlannedWait(cluster, partition, planned, queued)
            return next(self.each("estimate", lambda adds: adds.estimate, self.state, wait), None)

        return span

    async def forecast(self, spawner: Any, profiles: Sequence[Profile], *, asks: bool = True) -> Forecast:
        """When the user of this spawner would get jobs of these profiles, as the first that knows says."""
        for name, forecast in self._having(lambda adds: adds.forecast):
            with guarded(self.failed, name, "forecast"):
                return _Guarded(await forecast(spawner, profiles, asks), self.failed, name)
        return Forecast()

    def prepare(self, snapshot: ClusterSnapshot) -> None:
        """Have each prepare for a new view of a cluster; runs in a thread."""
        list(self.each("prepare", lambda adds: adds.prepare, snapshot))

    async def below_wait(self, handler: BaseHandler, spawner: Any) -> list[Markup]:
        """The sections on the page of a server that is being started."""
        sections = []
        for name, below_wait in self._having(lambda adds: adds.below_wait):
            with guarded(self.failed, name, "below_wait"):
                sections.append(await below_wait(handler, spawner))
        return sections

    def marks_of(self, cluster: str) -> list[NodeMarks]:
        """What they know of nodes of a cluster."""
        return list(self.each("marks_of", lambda adds: adds.marks_of, self.state, cluster))

    async def below_map(self, handler: BaseHandler, cluster: Cluster, name: str) -> list[Markup]:
        """The sections below the map of a cluster; raises SQLAlchemyError."""
        sections = []
        for extension, below_map in self._having(lambda adds: adds.below_map):
            try:
                sections.append(await below_map(handler, cluster, name))
            except SQLAlchemyError:
                raise
            except Exception as error:  # noqa: BLE001 - as in `guarded`
                self.failed(extension, "below_map", error)
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
        given = self.all_of("parts_of", lambda adds: adds.parts_of, spawner, server)
        return tuple(sorted(given, key=lambda part: part.name))

    @property
    def templates(self) -> list[str]:
        """The folders of their page templates."""
        return [str(part.templates) for part in self.parts if part.templates.is_dir()]

    @property
    def tables(self) -> list[Table]:
        """The tables of each in the hub's database."""
        return [table for part in self.parts for table in part.adds.tables]

    @property
    def settings(self) -> tuple[type[Configurable], ...]:
        """The classes of settings of each."""
        return tuple(cls for part in self.parts for cls in part.adds.settings)

    @property
    def page_tools(self) -> dict[str, Any]:
        """What templates find, by its name."""
        return {name: tool for part in self.parts for name, tool in (part.adds.page_tools or {}).items()}


def spawner_settings() -> tuple[type[HasTraits], ...]:
    """The traits that extensions of this installation add to those of ``c.GPUSlurmSpawner``.

    Also those of extensions that a hub leaves out, whose settings then have no effect: the spawner's class is made
    before any configuration is read. There is no log by then either: :class:`HubExtensions` names those that fail.
    """
    loaded = load_each(installed(), lambda extension: extension.spawner_settings, lambda _fault: None)
    return tuple(cls for _, cls in loaded if _has_traits(cls))


def _has_traits(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, HasTraits)


@cache
def carried_by(names: tuple[str, ...] | None) -> tuple[Carried, ...]:
    """What the extensions with these names, or all, add to the launcher; one that cannot be loaded is left out."""
    loaded = load_each(chosen(names), lambda extension: extension.launcher, report)
    return tuple(replace(carried, extension=extension.name) for extension, carried in loaded)


@cache
def settings_classes() -> tuple[type[Configurable], ...]:
    """The classes of settings that extensions of this installation bring, also those that a hub leaves out."""
    return HubExtensions(installed()).settings


def report(left_out: Fault) -> None:
    """Name an extension that is left out in the log."""
    get_logger().error("%s", left_out, exc_info=left_out.error)


def _is_hub_extension(extension: Extension, adds: object) -> bool:
    if isinstance(adds, HubExtension):
        return True
    report(Fault(extension.name, f"{extension.hub} must be a HubExtension."))
    return False


def _named(handler: type, name: str) -> type:
    """The same handler, which names its extension where it fails."""

    class Named(handler):
        def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
            if not isinstance(value, (web.HTTPError, SQLAlchemyError)):
                self.log.error("A page of the extension %s failed: %s", name, self.request.path)
            super().log_exception(typ, value, tb)

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
