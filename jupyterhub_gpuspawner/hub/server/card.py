"""A server's card on the home page: its state, where it runs, what it got, when it ends, or how it ended.

Servers of other packages' spawners, and hubs without profiles, have cards as well.

A GPU's memory is told as the form tells it, by the size in the model's name. NVML reports what is left of it for
programs (81,559 MiB of an H100's 80 GB, 11,441 MiB of a K80's 12 GB with ECC); that number is among the details.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.extensions import Place, ServerPart
from jupyterhub_gpuspawner.hub.jupyterhub_compat import first_line
from jupyterhub_gpuspawner.hub.report.server_report import parsed
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, server_title
from jupyterhub_gpuspawner.hub.start.progress import event
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.placement.topology import NodeTopology, gpu_name
from jupyterhub_gpuspawner.units import parse_cpulist
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument
from jupyterhub_gpuspawner.words import counted, memory
from jupyterhub_gpuspawner.words import cpus as cpus_in_words


@dataclass(frozen=True)
class ServerFacts:
    """What the home page shows of a running server on a node."""

    name: str = ""
    """The node's."""
    got: tuple[str, ...] = ()
    """What the server has, in the words of the form: GPUs, cores, memory."""
    rows: tuple[tuple[str, str], ...] = ()
    """A name and a text of one or more lines, in order."""
    problems: tuple[str, ...] = ()
    simulated: bool = False


def server_facts(placement: PlacementDocument, topology: Mapping[str, Any] | None, *, cluster: str = "") -> ServerFacts:
    """What a server has, and on which node.

    ``cluster`` is the name of the job's, empty in a hub that names none.
    """
    job = words.job_in(placement.job_id or "", placement.partition or "", cluster)
    facts = node_facts(placement, topology)
    return replace(facts, rows=(*_rows((words.NODE, placement.node), (words.JOB, job)), *facts.rows))


def node_facts(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> ServerFacts:
    """What the job has on a node, without the node and the job."""
    node = parsed(topology)
    yes_no = {True: words.YES, False: words.NO, None: words.UNDETERMINED}[placement.aligned]
    return ServerFacts(
        name=placement.node,
        got=got(placement, node),
        rows=_rows(
            (words.GPUS, "\n".join(_gpu(gpu) for gpu in placement.gpus) or words.NONE),
            (words.CPUS, placement.cpus or words.UNDETERMINED),
            (words.NUMA_NODES, ", ".join(map(str, placement.numa_nodes)) or words.UNDETERMINED),
            (words.MEMORY_POLICY, placement.memory_policy),
            (words.ALIGNED, ": ".join(filter(None, (yes_no, placement.why)))),
        ),
        problems=placement.problems,
        simulated=placement.simulated,
    )


def _rows(*rows: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in rows if text)


def got(placement: PlacementDocument, node: NodeTopology | None) -> tuple[str, ...]:
    """Such as ``("4 cores", "8 GiB memory")``; what is not known is left out."""
    job_memory = words.MEMORY.format(amount=memory(placement.memory_mib)) if placement.memory_mib else ""
    others = counted(len(placement.other_nodes), "more node") if placement.other_nodes else ""
    return tuple(filter(None, (*words.gpus(placement.gpus), _cores(placement.cpus, node), job_memory, others)))


def _cores(cpus: str, node: NodeTopology | None) -> str:
    """As the form says it: ``4 cores``, ``8 CPUs (4 cores)``; CPUs, where it is not known which share a core."""
    try:
        own = set(parse_cpulist(cpus))
    except ValueError:
        return ""
    if not own:
        return ""
    if node is None or not own.issubset(cpu for core in node.siblings for cpu in core):
        return cpus_in_words(len(own), per_core=0)
    whole = sum(not own.isdisjoint(core) for core in node.siblings)
    return cpus_in_words(len(own), per_core=-(-len(own) // whole))


def _gpu(gpu: PlacedGpu) -> str:
    model = gpu.name.partition(" MIG ")[0]
    usable = f"{gpu.memory_mib:,} MiB" if gpu.memory_mib is not None else ""
    near = words.NUMA_NODE.format(number=gpu.numa_node) if gpu.numa_node is not None else ""
    name = gpu_name(gpu.index, gpu.mig, gpu.mig_device)
    kind = f"MIG {gpu.mig} of {model or words.GPU}" if gpu.mig else model or words.MODEL_NOT_KNOWN
    return f"{name}: {', '.join(filter(None, (kind, usable, near)))}"


SOON, VERY_SOON = 15 * 60, 5 * 60
"""Seconds before a server's end at which the page warns for the first and the second time."""


@dataclass(frozen=True)
class TimeLeft:
    """When a server ends, in words; the page's script keeps the words up to date."""

    ends: datetime
    """In the hub's zone."""
    words: str
    warning: str = ""
    """Empty while there is time."""


@dataclass(frozen=True)
class ServerCard:
    """One server of a user."""

    name: str
    """Empty for the default server."""
    title: str
    """The profile's name, and the server's where it has one."""
    state: str
    """``running``, ``waiting`` (in Slurm's queue), ``starting``, ``stopping``, ``ended``, ``failed`` or ``stopped``."""
    headline: str = ""
    """Its progress while it starts, or how it ended."""
    ended: str = ""
    """When it ended, with ``{time}`` in the place of :attr:`at`."""
    at: float | None = None
    """Seconds since the epoch."""
    advice: str = ""
    facts: ServerFacts | None = None
    left: TimeLeft | None = None
    kept: bool = False
    """Slurm has not taken its job, since it does not answer: the start is kept until it does."""
    suspended: bool = False
    """Slurm has suspended its job: the server does not answer, and its time limit does not run."""
    silent: bool = False
    """Slurm is not responding: the card shows the last known state."""
    as_of: float | None = None
    """When Slurm last responded, in seconds since the epoch, while it is silent; None: not yet."""
    log: bool = False
    """There is a log to show."""
    expected: str = ""
    """When its job is expected to start, while it is pending."""
    change: str = ""
    """Why that is another time than before."""
    app: str = ""
    """The name of the application that runs; empty for Jupyter."""
    parts: tuple[ServerPart, ...] = ()
    """What extensions show on it."""

    @property
    def problems(self) -> list[str]:
        """Those of the server's node, then what parts say beside them."""
        own = self.facts.problems if self.facts is not None else ()
        return [*own, *(problem for part in self.parts for problem in part.problems)]

    def parts_in(self, place: str) -> list[ServerPart]:
        """Those in this :class:`Place`, in order."""
        return [part for part in self.parts if part.place is Place(place)]

    @property
    def word(self) -> str:
        """The state in words."""
        if self.suspended:
            return words.PAUSED
        return words.KEPT_FOR_SLURM if self.kept else words.STATES[self.state]

    @property
    def news(self) -> str:
        """What screen readers announce when the state changes."""
        return f"{self.title}: {self.word}."

    @property
    def version(self) -> str:
        """A checksum of everything on the card except the time left."""
        rows = self.facts.rows if self.facts is not None else ()
        ends = self.left.ends if self.left is not None else None
        start = (self.headline, self.expected, self.change)
        content = (self.state, self.title, start, self.ended, self.at, self.advice, rows, ends, self.silent)
        problems = self.facts.problems if self.facts is not None else ()
        parts = [(part.name, part.version, part.rows, part.problems) for part in self.parts]
        return f"{zlib.crc32(repr((content, problems, parts)).encode()):08x}"


def server_cards(
    servers: Iterable[Server],
    *,
    now: float | None = None,
    contact: str = words.CONTACT,
) -> tuple[ServerCard, ...]:
    """A card for each server, those that are active first.

    A default server that is not active and about which there is nothing to say has one only beside another card that
    is: where nothing runs the page says that in a sentence.
    """
    ordered = sorted(servers, key=lambda server: not server.active)
    cards = [server_card(server, now=now, contact=contact) for server in ordered]
    any_active = any(server.active for server in ordered)
    return tuple(card for card in cards if any_active or card.name or card.state != "stopped" or card.ended)


def server_card(server: Server, *, now: float | None = None, contact: str = words.CONTACT) -> ServerCard:
    """The card of a server; ``contact`` is whom its user may ask."""
    card = _card(server, time.time() if now is None else now, contact)
    return replace(card, parts=tuple(part for part in server.parts if part.template))


def _card(server: Server, now: float, contact: str) -> ServerCard:
    title, state = server_title(server), server.state
    if state is ServerState.STOPPING:
        return ServerCard(server.name, title, state.value, words.STOPPING if server.job_id else words.BEING_STOPPED)
    if server.pending:
        facts = replace(server.start, silent=False) if server.start is not None else None
        if facts is None:
            return _dated(ServerCard(server.name, title, state.value), server)
        progress = event(facts, now=now)
        values = progress["gpuspawner"]
        card = ServerCard(
            server.name,
            title,
            state.value,
            progress["message"] if values["sentence"] else f"{values['place']}.",
            expected=values["expected"],
            change=values["change"],
            kept=facts.kept_until is not None,
        )
        return _dated(card, server)
    if state is ServerState.RUNNING:
        return _running(server, title, now)
    return _over(server, title, contact)


def _running(server: Server, title: str, now: float) -> ServerCard:
    suspended = server.job is not None and server.job.state == "SUSPENDED"
    card = ServerCard(
        server.name,
        title,
        "running",
        headline=words.SUSPENDED if suspended else "",
        suspended=suspended,
        log=server.can_show_log,
        app=server.app,
    )
    card, placement = _dated(card, server), server.placement
    if placement is None:
        return card
    return replace(
        card,
        facts=server_facts(placement, server.topology, cluster=server.cluster),
        left=None if suspended else time_left(placement.ends_at, now),
    )


def _dated(card: ServerCard, server: Server) -> ServerCard:
    """The card with what holds while Slurm is silent."""
    if server.start is None or not server.start.silent:
        return card
    return replace(card, silent=True, as_of=server.start.answered_at)


def _over(server: Server, title: str, contact: str) -> ServerCard:
    ending, failure, card = server.ending, server.failure, ServerCard(server.name, title, server.state.value)
    if ending is None:
        return card if failure is None else replace(card, headline=first_line(failure) or words.START_FAILED)
    shown = server.end_words(contact)
    if ending.stopped:
        used = words.ran_for(ending.ran, ending.said) if ending.ran else ""
        return replace(card, ended=shown.sentence, at=ending.at, advice=used, log=bool(ending.log))
    card = replace(card, headline=shown.sentence, advice=shown.advice, log=bool(ending.log))
    return card if ending.failed else replace(card, ended=words.ENDED_AT if ending.at else "", at=ending.at)


def time_left(ends_at: str | None, now: float) -> TimeLeft | None:
    """The time until ``ends_at`` (ISO 8601); None where there is no end, or where it cannot be parsed."""
    if ends_at is None:
        return None
    try:
        ends = parse_time(ends_at)
    except ValueError:
        return None
    left = ends.timestamp() - now
    left_in_words = words.time_left(left)
    if left <= 0:
        return TimeLeft(ends, left_in_words, words.TIME_IS_OVER)
    warning = words.ENDS_VERY_SOON if left <= VERY_SOON else words.ENDS_SOON if left <= SOON else ""
    return TimeLeft(ends, left_in_words, warning)
