"""What becomes of jobs in a twin: what each gets on its nodes, and whether its cores are beside its GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyterhub_gpuspawner.extensions.seats.devices import numbers_of
from jupyterhub_gpuspawner.extensions.seats.site import Site, gpu_cpus
from jupyterhub_gpuspawner.extensions.seats.twin import Answer, Answers
from jupyterhub_gpuspawner.slurm.messages import rejection
from jupyterhub_gpuspawner.slurm.reason import reason_name
from jupyterhub_gpuspawner.units import GPU_GRES


@dataclass(frozen=True)
class Share:
    """What a job gets on one node."""

    node: str
    gpus: tuple[int, ...]
    """Slurm's indices: positions in gres.conf, not those of NVML."""
    cores: tuple[int, ...]
    """Slurm's numbers of cores, socket by socket, as in gres.conf."""
    beside: bool | None
    """Each core is beside one of its GPUs, and each GPU beside one of its cores; None where that is not known, and
    without GPUs."""


@dataclass(frozen=True)
class JobOutcome:
    """What becomes of one person's job; exactly one of the three is not empty."""

    shares: tuple[Share, ...] = ()
    """One for each node; the job runs."""
    reason: str = ""
    """Slurm's word for why it waits, such as ``Resources``."""
    refusal: str = ""
    """Why Slurm refuses it: a clause."""

    @property
    def beside(self) -> bool | None:
        """That of all its nodes: None if it is not known for one of them."""
        of_nodes = {share.beside for share in self.shares}
        return False if False in of_nodes else None if None in of_nodes or not of_nodes else True


@dataclass(frozen=True)
class SiteOutcome:
    """What becomes of all jobs."""

    running: int
    """How many run."""
    beside: int
    """How many run with their cores beside their GPUs, as far as is known."""
    jobs: tuple[JobOutcome, ...]
    """One for each person, in the order in which they start."""


def near_cpus(*sites: Site) -> dict[str, tuple[frozenset[int], ...]]:
    """Slurm's numbers of the CPUs beside each GPU of a node, without the nodes of which that is not known.

    Where a site does not say it of a node, what the next one says counts.
    """
    near: dict[str, tuple[frozenset[int], ...]] = {}
    for site in reversed(sites):
        near |= gpu_cpus(site)
    return near


def outcome(answers: Answers, site: Site, near: Mapping[str, Sequence[frozenset[int]]]) -> SiteOutcome:
    """What becomes of the jobs of a site; ``near`` is of :func:`near_cpus`."""
    per_core = {node.name: numbers_of(node)["ThreadsPerCore"] for node in site.nodes}
    jobs = tuple(_job_outcome(answer, per_core, near) for answer in answers.answers)
    return SiteOutcome(answers.running, sum(job.beside is True for job in jobs), jobs)


def _job_outcome(
    answer: Answer, per_core: Mapping[str, int], near: Mapping[str, Sequence[frozenset[int]]]
) -> JobOutcome:
    shares = []
    for part in answer.allocations:
        gpus = tuple(sorted({i for gres in part.gres if gres.name in GPU_GRES for i in gres.indices}))
        cores = tuple(sorted({cpu // per_core[part.node] for cpu in part.cpu_ids}))
        shares.append(Share(part.node, gpus, cores, _beside(gpus, frozenset(part.cpu_ids), near.get(part.node, ()))))
    refusal = rejection(answer.refusal).clause if answer.refusal else ""
    return JobOutcome(tuple(shares), reason_name(answer.reason), refusal)


def _beside(gpus: Sequence[int], cpus: frozenset[int], near: Sequence[frozenset[int]]) -> bool | None:
    if not gpus or any(gpu >= len(near) for gpu in gpus):
        return None
    return cpus <= frozenset().union(*(near[gpu] for gpu in gpus)) and all(cpus & near[gpu] for gpu in gpus)
