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
from jupyterhub_gpuspawner.hub.extension import ServerPart
from jupyterhub_gpuspawner.hub.job.cause import Kind
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

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class ServerFacts:
    """What a server has on a node, in words."""

    got: tuple[str, ...] = ()
    """In the words of the form: GPUs, cores, memory."""
    rows: tuple[tuple[str, str], ...] = ()
    """A name and a text of one or more lines, in order."""


def server_facts(server: Server) -> ServerFacts | None:
    """What a server has, and on which node; None until its node has reported."""
    placement = server.placement
    if placement is None:
        return None
    job = words.job_in(placement.job_id or "", placement.partition or "", server.cluster)
    facts = node_facts(placement, server.topology)
    return replace(facts, rows=(*_rows(("Node", placement.node), ("Job", job)), *facts.rows))


def node_facts(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> ServerFacts:
    """What the job has on a node, without the node and the job."""
    node = parsed(topology)
    yes_no = {True: "yes", False: "no", None: NOT_KNOWN}[placement.aligned]
    return ServerFacts(
        got=got(placement, node),
        rows=_rows(
            ("GPUs", "\n".join(_gpu(gpu) for gpu in placement.gpus) or "none"),
            ("CPUs", placement.cpus or NOT_KNOWN),
            ("NUMA nodes", ", ".join(map(str, placement.numa_nodes)) or NOT_KNOWN),
            ("Memory policy", placement.memory_policy),
            ("Aligned", ": ".join(filter(None, (yes_no, placement.why)))),
        ),
    )


def _rows(*rows: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in rows if text)


def got(placement: PlacementDocument, node: NodeTopology | None) -> tuple[str, ...]:
    """Such as ``("4 cores", "8 GiB memory")``; what is not known is left out."""
    job_memory = f"{memory(placement.memory_mib)} memory" if placement.memory_mib else ""
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
    near = f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else ""
    name = gpu_name(gpu.index, gpu.mig, gpu.mig_device)
    kind = f"MIG {gpu.mig} of {model or 'GPU'}" if gpu.mig else model or "model not known"
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
    began: datetime | None = None
    """None where that is not known."""
    spent: int = 0
    """Percent of its time."""


@dataclass(frozen=True)
class ServerCard:
    """What the home page says of one server; whatever needs no words a template reads of the server itself."""

    server: Server
    headline: str = ""
    """Its progress while it starts, or how it ended."""
    ended: str = ""
    """When it ended, with ``{time}`` in the place of the time."""
    advice: str = ""
    expected: str = ""
    """When its job is expected to start, while it is pending."""
    change: str = ""
    """Why that is another time than before."""
    facts: ServerFacts | None = None
    left: TimeLeft | None = None

    @property
    def name(self) -> str:
        """The server's name; empty for the default server."""
        return self.server.name

    @property
    def title(self) -> str:
        """The profile's name, and the server's where it has one."""
        return server_title(self.server)

    @property
    def state(self) -> str:
        """``running``, ``waiting`` (in Slurm's queue), ``starting``, ``stopping``, ``ended``, ``failed``, ..."""
        return self.server.state.value

    @property
    def mark(self) -> str:
        """The state whose mark and colour it has: at its time limit a server has ended as was planned."""
        ending = self.server.ending if self.state == "ended" else None
        return "over" if ending is not None and ending.cause.kind is Kind.TIME_LIMIT else self.state

    @property
    def word(self) -> str:
        """The state in words."""
        server = self.server
        if _is_suspended(server):
            return "suspended by Slurm"
        kept = server.start is not None and server.start.kept_until is not None
        return "waiting for Slurm" if kept and self.state == "starting" else words.STATES[self.state]

    @property
    def silent(self) -> bool:
        """Slurm is not responding: the card shows the last known state."""
        start = self.server.start
        return start is not None and start.silent and self.state in ("running", "waiting", "starting")

    @property
    def parts(self) -> tuple[ServerPart, ...]:
        """What extensions show on it."""
        return tuple(part for part in self.server.parts if part.template)

    @property
    def version(self) -> str:
        """A checksum of everything on the card except the time left."""
        texts = (self.title, self.word, self.headline, self.expected, self.change, self.ended, self.advice, self.silent)
        ends = self.left.ends if self.left is not None else None
        placement = self.server.placement
        problems = placement.problems if self.facts is not None and placement is not None else ()
        parts = [(part.name, part.version, part.rows, part.problems) for part in self.parts]
        ending = self.server.ending
        content = (texts, ending.at if ending is not None else None, self.facts, problems, ends, parts)
        return f"{zlib.crc32(repr(content).encode()):08x}"


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
    now = time.time() if now is None else now
    if server.state is ServerState.STOPPING:
        return ServerCard(server, words.STOPPING if server.job_id else words.BEING_STOPPED)
    if server.state is ServerState.RUNNING:
        suspended, placement = _is_suspended(server), server.placement
        left = None
        if placement is not None and not suspended:
            left = time_left(placement.ends_at, now, began_at=placement.started_at)
        return ServerCard(server, words.SUSPENDED if suspended else "", facts=server_facts(server), left=left)
    return _starting(server, now) if server.pending else _over(server, contact)


def _is_suspended(server: Server) -> bool:
    """Slurm has suspended its job: the server does not answer, and its time limit does not run."""
    return server.state is ServerState.RUNNING and server.job is not None and server.job.state == "SUSPENDED"


def _starting(server: Server, now: float) -> ServerCard:
    if server.start is None:
        return ServerCard(server)
    progress = event(replace(server.start, silent=False), now=now)  # the card says so itself
    values = progress["gpuspawner"]
    headline = progress["message"] if values["sentence"] else f"{values['place']}."
    return ServerCard(server, headline, expected=values["expected"], change=values["change"])


def _over(server: Server, contact: str) -> ServerCard:
    ending, failure = server.ending, server.failure
    if ending is None:
        return ServerCard(server, (first_line(failure) or words.START_FAILED) if failure is not None else "")
    shown = server.end_words(contact)
    if ending.stopped:
        return ServerCard(server, ended=shown.sentence)
    ended = words.ENDED_AT if ending.at and not ending.failed else ""
    return ServerCard(server, shown.sentence, ended, shown.advice)


def time_left(ends_at: str | None, now: float, *, began_at: str | None = None) -> TimeLeft | None:
    """The time until ``ends_at`` (ISO 8601); None where there is no end, or where it cannot be parsed."""
    try:
        ends = parse_time(ends_at or "")
        began = parse_time(began_at) if began_at is not None else None
    except ValueError:
        return None
    left = ends.timestamp() - now
    whole = (ends - began).total_seconds() if began is not None else 0.0
    spent = min(100, max(0, round(100 - 100 * left / whole))) if whole > 0 else 0
    warning = words.TIME_IS_OVER
    if left > 0:
        warning = words.ENDS_VERY_SOON if left <= VERY_SOON else words.ENDS_SOON if left <= SOON else ""
    return TimeLeft(ends, words.time_left(left), warning, began, spent)
