"""What an extension adds to a hub that runs, shows of a server and keeps with it: what its author writes.

It is asked through :mod:`.extensions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pydantic
from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.user import User
from markupsafe import Markup
from sqlalchemy import Table
from traitlets.config import Configurable

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.site.state import HubState
from jupyterhub_gpuspawner.hub.site.tables import Step
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import Availability, Estimate, QueuePosition, Span
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument


class Place(Enum):
    """Where on a server's card a part is; parts in one place stand in the order of their names."""

    HEADING = "heading"
    """Beside the title: what the server is for."""
    NOTICE = "notice"
    """Below the title: what its user should know."""
    ACTION = "action"
    """Below the time that is left: what its user can do about it."""
    BESIDE = "beside"
    """Beside the time: one or more columns."""
    MARK = "mark"
    """In the line that opens the details."""
    AFTER = "after"
    """Below the words of how it ended, and on the page of a server that does not run, which has no ``card``."""
    NODE = "node"
    """Beside the details: the node that it runs on."""
    BELOW = "below"
    """Below that."""


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
    cpus: Sequence[int] = ()
    """How many Slurm gives the job on a node: every number that it may be, as a job requests them; empty: not known."""
    memory: Sequence[int] = ()
    """MiB that Slurm allocates on a node likewise; 0: all that a node has."""
    gpus: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """GPUs by type where it gets all of a node, likewise; empty where it gets what it requests."""
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

    def carries(self) -> bool:
        """Whether it makes the hub's way to servers, so that the hub's machine need not reach their nodes."""
        return False

    async def lead_back(self) -> None:
        """Have jobs reach the hub, in a program that tries one while no hub runs."""

    async def leave(self) -> None:
        """Close whatever way there is now, in a program that is no hub, and has no proxy."""

    async def reach(self, host: str, port: int) -> tuple[str, int] | None:  # noqa: ARG002 - this one makes no way
        """Make the hub's way to the server, which listens there, and return where it begins: a host and a port.

        It may take as long as it likes, and is asked again where the server listens elsewhere; an empty host is the
        last one. None: the hub connects to the server itself.
        """
        return None

    def awaits(self) -> str:
        """What is missing on that way now, in a sentence for a participant; empty where nothing is."""
        return ""

    async def unreached(self) -> str:
        """Why the hub does not reach the server there, in sentences for administrators; empty if not known."""
        return ""

    async def reached_again(self) -> bool:
        """Whether the way to a server of before a restart of the hub is there again; it was made by this extension."""
        return True

    def node_reported(self, report: NodeReport) -> bool:  # noqa: ARG002 - this one takes none
        """Take the report of another of the job's nodes; False: it takes none. Raises ReportError."""
        return False

    def placed(self, placement: PlacementDocument, allocations: Sequence[NodeAllocation]) -> PlacementDocument:  # noqa: ARG002
        """The placement to be shown, with what this extension knows of it.

        ``allocations`` are those of all the job's nodes as Slurm reports them; empty where it was not asked.
        """
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


@dataclass(frozen=True)
class Letter:
    """What a user is to be told once who may look at no page; for whoever sends it."""

    user: str
    about: str
    """What it is about, in ASCII: nobody is told twice of the same."""
    subject: str
    text: str
    """Its sentences; of a server they say no more than its name."""
    until: float
    """When it is of no use any more, in seconds since the epoch."""
    link: str = "home"
    """A path below ``/hub/``."""
    server: str | None = None
    """The name of the server of which only a user is told who asked for it; None: it is told in any case."""


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


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(arbitrary_types_allowed=True))
class HubExtension:
    """What an extension adds to a hub that runs; raises ValidationError for a field of another type."""

    settings: tuple[type[Configurable], ...] = ()
    """Classes of settings of which each hub makes one object, to check them when it starts."""
    tables: tuple[Table, ...] = ()
    """Tables in the hub's database; made before anything is begun."""
    steps: tuple[Step, ...] = ()
    """For each version of these tables after the first the table that it changes, and how, with Alembic's ``op``.

    Those that were released are never changed; one may be repeated.
    """
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
    letters: Callable[[Mapping[str, Any], float], Iterable[Letter]] | None = None
    """What people are to be told now, of a hub's tornado settings and the time; asked each minute. It may raise
    SQLAlchemyError."""
    profiles_of: ProfilesOf = ProfilesOf()
    """Profiles that it offers to some users."""
    choices_of: Callable[[Any, Profile], Profile] | None = None
    """A profile with the choices that its options have for the user of a spawner, as last read."""
    refused_choices: Callable[[Any, JobRequest], Mapping[str, Mapping[str, str]]] | None = None
    """Why a request's options cannot have some values, of a spawner: clauses by option and value. A request is
    refused where one of its own values is among them."""
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
