"""How good the GPUs were that Slurm granted, compared with those that were free. Pure.

A launcher can only order the GPUs that its job was granted. What a better grant would have been worth is a question to
Slurm's configuration; see :mod:`.gres_conf`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.fleet.gres_conf import socket_of, sockets
from jupyterhub_gpuspawner.placement.choice import choose

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

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

    def to_json(self) -> dict[str, Any]:
        """The grant as it is stored."""
        return asdict(self)


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


def grant_from(document: Mapping[str, Any]) -> Grant:
    """Read a stored grant; raises TypeError for anything else."""
    return Grant(**document)


def judged(
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
    found = sockets(topology)
    homes = {position: socket_of(topology, position, found) for position in usable}
    across: bool | None = None
    if found and None not in homes.values():
        spread = len({homes[position] for position in granted}) > 1
        room = any(sum(1 for each in homes.values() if each == n) >= len(granted) for n in range(len(found)))
        across = spread and room
    return Grant(grant.job_id, grant.node, grant.at, len(granted), aligned, across, loss)


def summary(grants: Iterable[Grant]) -> GrantSummary:
    """Counts over some grants."""
    made = list(grants)
    losses = [grant.loss for grant in made if grant.loss is not None]
    return GrantSummary(
        grants=len(made),
        misaligned=sum(grant.aligned is False for grant in made),
        alignment_known=sum(grant.aligned is not None for grant in made),
        compared=len(losses),
        off_ring=sum(loss >= SAME for loss in losses),
        across=sum(grant.across is True for grant in made),
        mean_loss=round(mean(losses), 1) if losses else 0.0,
        worst_loss=max(losses, default=0.0),
    )
