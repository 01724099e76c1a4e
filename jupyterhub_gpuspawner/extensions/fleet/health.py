"""The health of a fleet of nodes: differences, contradictions and grants, node by node. Pure.

A launcher can only order the GPUs that its job was granted. What a better grant would have been worth is a question to
Slurm's configuration; see :mod:`.gres_conf`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean
from typing import Any

from jupyterhub_gpuspawner.extensions.fleet.differences import (
    Contradiction,
    Difference,
    Fault,
    Shape,
    contradictions,
    differences,
    shape_of,
)
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import gres_conf, socket_of, sockets
from jupyterhub_gpuspawner.extensions.fleet.node_record import SEVERAL, NodeRecord, gpu_count, several
from jupyterhub_gpuspawner.placement.choice import choose
from jupyterhub_gpuspawner.placement.topology import NodeTopology
from jupyterhub_gpuspawner.units import Gres, parse_gres
from jupyterhub_gpuspawner.words import counted

ONE_PERSON = "One person's jobs alone have reported this; it counts once somebody else's jobs report the same."
PARTIAL = "Jobs have seen only their own GPUs so far; what they have not seen is not judged."
LINKS_BENEFIT = "which helps servers with Slurm 22.05, and with 24.11 and 26.05 if gpus_option is 'gpus'"
"""What was measured; see the page "What gres.conf is worth"."""
LINKS_HELP = (
    f"Links= in gres.conf tells Slurm which GPUs are linked, {LINKS_BENEFIT}; "
    "scontrol does not show whether it is there."
)
SAME = 0.5
"""Per cent of bandwidth below which two rings count as equal."""


@dataclass(frozen=True)
class Grant:
    """What a job was granted on one node, judged when it started."""

    job_id: str
    node: str
    at: float
    """Seconds since the epoch."""
    gpus: int
    """How many GPUs."""
    aligned: bool | None = None
    """Whether its CPUs are close to its GPUs; None if that is not known."""
    across: bool | None = None
    """Its GPUs are of several sockets although one had enough free ones; None if that is not known."""
    loss: float | None = None
    """How much slower the slowest link of its best ring is than the best ring among the free GPUs, in per cent.

    None for a single GPU, and if links or free GPUs were not known.
    """


@dataclass(frozen=True)
class GrantSummary:
    """The grants on one node."""

    grants: int = 0
    """Jobs with GPUs."""
    misaligned: int = 0
    """Of those: with CPUs away from their GPUs."""
    alignment_known: int = 0
    """Of those: with an alignment that is known."""
    compared: int = 0
    """Jobs with several GPUs whose ring could be compared with the best."""
    off_ring: int = 0
    """Of those: with a slower ring."""
    across: int = 0
    """Of those: on several sockets although one had room."""
    mean_loss: float = 0.0
    """Of those compared, in per cent."""
    worst_loss: float = 0.0

    def __str__(self) -> str:
        """``12 jobs: 6 of 12 with cores away from their GPUs; 2 of 5 with a slower ring than was free …``."""
        if not self.grants:
            return "no jobs with GPUs yet"
        parts = []
        if self.misaligned:
            parts.append(f"{self.misaligned:,} of {self.alignment_known:,} with cores away from their GPUs")
        if self.off_ring:
            parts.append(
                f"{self.off_ring:,} of {self.compared:,} with a slower ring than was free "
                f"(over all, {self.mean_loss:g} % slower on average, {self.worst_loss:g} % at worst)"
            )
        if self.across:
            parts.append(f"{self.across:,} of {self.compared:,} on several sockets though one had room")
        if not parts and (self.alignment_known or self.compared):
            parts.append("none could have been placed better, as far as is known")
        return ": ".join(filter(None, [counted(self.grants, "job"), "; ".join(parts)]))


def judge_grant(
    topology: NodeTopology, granted: Sequence[int], free: Collection[int], *, aligned: bool | None, grant: Grant
) -> Grant:
    """The grant with its judgement; ``free`` are the positions of the GPUs that Slurm could choose from.

    All of ``granted`` are among them. The topology must be complete; otherwise use the grant as it is.
    """
    if len(granted) < 2:
        return grant
    usable = sorted({*free, *granted})
    best = choose(topology, granted=usable, count=len(granted)).ring_gbps
    got = choose(topology, granted=granted, count=len(granted)).ring_gbps
    loss = None if best is None or got is None else round(max(0.0, 100 * (1 - got / best)), 1)
    cpus = sockets(topology)
    homes = {position: socket_of(topology, position, cpus) for position in usable}
    across: bool | None = None
    if cpus and None not in homes.values():
        spread = len({homes[position] for position in granted}) > 1
        room = any(list(homes.values()).count(socket) >= len(granted) for socket in range(len(cpus)))
        across = spread and room
    return Grant(grant.job_id, grant.node, grant.at, len(granted), aligned, across, loss)


def summarize(grants: Sequence[Grant]) -> GrantSummary:
    """Counts over some grants."""
    losses = [grant.loss for grant in grants if grant.loss is not None]
    return GrantSummary(
        grants=len(grants),
        misaligned=sum(grant.aligned is False for grant in grants),
        alignment_known=sum(grant.aligned is not None for grant in grants),
        compared=len(losses),
        off_ring=sum(loss >= SAME for loss in losses),
        across=sum(grant.across is True for grant in grants),
        mean_loss=round(mean(losses), 1) if losses else 0.0,
        worst_loss=max(losses, default=0.0),
    )


VERSION = 1


@dataclass(frozen=True)
class NodeHealth:
    """What is known of one node; times are seconds since the epoch."""

    node: str
    shape: Shape
    siblings: int
    """How many other nodes have its shape."""
    seen_at: float
    """When a job last reported from it."""
    gpus_seen: int
    """GPUs of it that jobs have seen and that are not gone."""
    gpus: int | None
    """GPUs that it has: on its PCI bus, or else in Slurm; None if neither is known."""
    complete: bool
    """Every GPU and every link has been seen; otherwise jobs have seen only their own GPUs so far."""
    agreeing: int = 1
    """How many jobs in a row have reported this, and nothing that contradicts it."""
    doubting: int = 0
    """How many jobs in a row have reported otherwise since; too few to be believed."""
    several_people: bool = True
    """The jobs that have reported this are those of several people."""
    people_needed: int = 1
    """Of how many people the jobs must be that report otherwise, for these to be believed."""
    simulated: bool = False
    differences: tuple[Difference, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    links_help: bool = False
    """``Links=`` in gres.conf would tell Slurm which of its GPUs are linked."""
    grants: GrantSummary = field(default_factory=GrantSummary)

    @property
    def ill(self) -> bool:
        """Whether it differs from its siblings, or from Slurm's configuration, by the jobs of several people."""
        return any(fact.sure for fact in self.differences) or bool(self.contradictions and self.several_people)

    @property
    def perhaps_ill(self) -> bool:
        """Whether that is so by the jobs of one person alone."""
        return not self.ill and bool(self.differences or self.contradictions)

    @property
    def seen(self) -> str:
        """``8 of 8 GPUs seen, by 5 jobs that agree``."""
        gpus = f"{self.gpus_seen} of {self.gpus} GPUs" if self.gpus else counted(self.gpus_seen, "GPU")
        return f"{gpus} seen, by {'1 job' if self.agreeing == 1 else f'{self.agreeing:,} jobs that agree'}"

    @property
    def doubts(self) -> list[str]:
        """What is not certain of it, or not known."""
        texts = []
        if self.doubting:
            jobs = "1 job has" if self.doubting == 1 else f"{self.doubting:,} jobs have"
            needed = min(self.agreeing, SEVERAL)
            of_people = f", of {self.people_needed} people" if self.people_needed > 1 else ""
            texts.append(f"{jobs} reported otherwise since, which counts once {needed} in a row do{of_people}.")
        if self.contradictions and not self.several_people:
            texts.append(ONE_PERSON)
        return texts if self.complete else [*texts, PARTIAL]

    @property
    def gains(self) -> str:
        """What gres.conf's lines would gain, from the grants so far; empty where there is nothing to gain."""
        jobs = self.grants
        if not any(fault.fault in (Fault.NO_CORES, Fault.SOCKETS) for fault in self.contradictions):
            return LINKS_HELP if self.links_help and jobs.off_ring else ""
        text = f"The lines of gpuspawner fleet --gres-conf {self.node} tell Slurm the sockets of the GPUs"
        text += f" and their links, {LINKS_BENEFIT}" if self.links_help else ""
        lost = max(jobs.misaligned, jobs.across, jobs.off_ring)
        return f"{text}; so far at least {counted(lost, 'job')} lost by it." if lost else f"{text}."


@dataclass(frozen=True)
class FleetHealth:
    """All nodes of which anything is known: those that are ill first, then those that perhaps are, then by name."""

    nodes: tuple[NodeHealth, ...] = ()
    slurm_asked: bool = True
    """Slurm's configuration is as of now; otherwise as of each node's last report."""
    grants: GrantSummary = field(default_factory=GrantSummary)
    """Over all nodes."""

    def to_json(self) -> dict[str, Any]:
        """The document, version 1."""
        nodes = [{**asdict(node), "ill": node.ill} for node in self.nodes]
        return {"version": VERSION, "slurm_asked": self.slurm_asked, "grants": asdict(self.grants), "nodes": nodes}


def health(
    records: Sequence[NodeRecord], grants: Sequence[Grant], slurm: Mapping[str, Sequence[Gres]] | None = None
) -> FleetHealth:
    """The health of the nodes of these records; ``slurm``: generic resources by node, as slurmctld reports them now."""
    unlike = differences(records)
    shapes = [shape_of(record) for record in records]
    siblings = Counter(shapes)
    by_node: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        by_node[grant.node].append(grant)
    nodes = []
    for record, shape in zip(records, shapes, strict=True):
        gres = slurm.get(record.node, ()) if slurm is not None else parse_gres(record.gres)
        listed = len(record.topology.devices) or gpu_count(gres) or None
        nodes.append(
            NodeHealth(
                node=record.node,
                shape=shape,
                siblings=siblings[shape] - 1,
                seen_at=record.seen_at,
                gpus_seen=len(record.present),
                gpus=len(record.present) if record.whole_at is not None else listed,
                complete=record.complete,
                agreeing=record.agreeing,
                doubting=record.doubt.agreeing if record.doubt is not None else 0,
                several_people=several(record.people),
                people_needed=record.people_for_doubt,
                simulated=record.topology.simulated,
                differences=unlike[record.node],
                contradictions=tuple(contradictions(record, gres)),
                links_help=record.complete and any(line.links for line in gres_conf(record.topology).lines),
                grants=summarize(by_node[record.node]),
            )
        )
    nodes.sort(key=lambda node: (not node.ill, not node.perhaps_ill, node.node))
    return FleetHealth(tuple(nodes), slurm is not None, summarize(grants))
