"""A site as it would be after a change, and what jobs get before and after it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.messages import rejection
from jupyterhub_gpuspawner.slurm.reason import reason_name
from jupyterhub_gpuspawner.slurm.scontrol import parse_nodes
from jupyterhub_gpuspawner.slurm.text import fields, present
from jupyterhub_gpuspawner.slurm.twin.ask import Answer, Answers
from jupyterhub_gpuspawner.slurm.twin.site import Site, gpu_cpus
from jupyterhub_gpuspawner.units import GPU_GRES, expand_nodelist

# Changes of a site.

SETTABLE = (
    "DefMemPerCPU",
    "DefMemPerNode",
    "EnforcePartLimits",
    "JobDefaults",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "MaxTasksPerNode",
    "SelectType",
    "SelectTypeParameters",
)
"""Parameters of slurm.conf that the twin takes from the site and that can be set."""
_INSTEAD = {
    "DefMemPerCPU": "DefMemPerNode",
    "DefMemPerNode": "DefMemPerCPU",
    "MaxMemPerCPU": "MaxMemPerNode",
    "MaxMemPerNode": "MaxMemPerCPU",
}
"""Parameters of which slurm.conf(5) allows one."""
_SELECT_TYPES = ("select/cons_tres", "select/linear")
_VALUE = re.compile(r"[\w./:,=-]+", re.ASCII)


def with_parameter(site: Site, setting: str) -> Site:
    """The site with a parameter of slurm.conf, such as ``SelectTypeParameters=CR_Core``; raises ConfigError."""
    name, _, value = setting.partition("=")
    key = next((key for key in SETTABLE if key.lower() == name.lower()), None)
    if key is None:
        allowed = ", ".join(SETTABLE)
        raise ConfigError(f"{name!r} is no parameter that can be set.", where="--set", hint=f"These can: {allowed}.")
    if not _VALUE.fullmatch(value):
        raise ConfigError(f"{setting!r} is not NAME=VALUE, in one word.", where="--set")
    if key == "SelectType" and value not in _SELECT_TYPES:
        raise ConfigError(f"{value!r} cannot be tried.", where="--set", hint=f"Use {' or '.join(_SELECT_TYPES)}.")
    gone = {key, _INSTEAD.get(key, key)}
    lines = [line for line in site.config.splitlines() if line.partition("=")[0].strip() not in gone]
    return replace(site, config="\n".join([*lines, f"{key} = {value}", ""]))


def with_gres_conf(site: Site, text: str) -> Site:
    """The site with these lines of gres.conf in the place of all lines of the nodes that they name.

    Lines without ``NodeName=`` are for all nodes. Raises ConfigError for a name that is no host list, and for a file
    without a line.
    """
    nodes = _node_names(site)
    new = [*_gres_lines(text, nodes, "--gres-conf")]
    if not new:
        raise ConfigError("there is no line with Name= in it.", where="--gres-conf")
    changed = {name for names, _ in new for name in names}
    if not changed & set(nodes):
        raise ConfigError(f"Slurm has none of the nodes {', '.join(sorted(changed))}.", where="--gres-conf")
    old = ((tuple(n for n in names if n not in changed), line) for names, line in _gres_lines(site.gres_conf, nodes))
    return replace(site, gres_conf=_written([*old, *new]))


def with_nodes(site: Site, addition: str) -> Site:
    """The site with more nodes like one that it has: ``g[4-5]=g1``. They are in its partitions, and idle.

    Raises ConfigError if that node is not known, or one of the new ones is.
    """
    where = "--add-nodes"
    listed, equals, model = addition.partition("=")
    if not (listed and equals and model):
        raise ConfigError(f"{addition!r} is not NEW=LIKE, such as g[4-5]=g1.", where=where)
    new, nodes = _host_list(listed, where), _node_names(site)
    if model not in nodes:
        raise ConfigError(f"Slurm has no node {model!r} that they could be like.", where=where)
    if existing := [name for name in new if name in nodes]:
        raise ConfigError(f"Slurm has node {existing[0]!r} already.", where=where, hint="Use names that are new.")
    record = next(line for line in site.nodes.splitlines() if line.startswith(f"NodeName={model} "))
    record = re.sub(r" State=\S+", " State=IDLE", record, count=1)
    added = [record.replace(f"NodeName={model} ", f"NodeName={name} ", 1) for name in new]
    lines = _gres_lines(site.gres_conf, nodes)
    return replace(
        site,
        nodes="\n".join([*site.nodes.splitlines(), *added, ""]),
        partitions="".join(f"{_with_members(line, model, listed)}\n" for line in site.partitions.splitlines()),
        gres_conf=_written(((*names, *new) if model in names else names, line) for names, line in lines),
    )


def _with_members(partition: str, model: str, more: str) -> str:
    """A line of ``scontrol show partition -o``, with more nodes if this one is among them."""
    members = present(fields(partition).get("Nodes"))
    if model not in expand_nodelist(members):
        return partition
    return partition.replace(f" Nodes={members} ", f" Nodes={members},{more} ", 1)


def _node_names(site: Site) -> tuple[str, ...]:
    return tuple(re.findall(r"^NodeName=(\S+)", site.nodes, re.MULTILINE))


def _host_list(text: str, where: str) -> tuple[str, ...]:
    try:
        return expand_nodelist(text)
    except ValueError as error:
        raise ConfigError(f"{error}.", where=where) from None


def _gres_lines(text: str, nodes: Sequence[str], where: str = "gres.conf") -> Iterator[tuple[tuple[str, ...], str]]:
    """The lines that describe devices: their nodes, and the rest of the line."""
    for line in (line.partition("#")[0].strip() for line in text.splitlines()):
        named = re.search(r"\bNodeName=(\S+)", line, re.IGNORECASE)
        if re.search(r"(?:^|\s)Name=", line, re.IGNORECASE):
            names = tuple(nodes) if named is None else _host_list(named[1], where)
            yield names, re.sub(r"\bNodeName=\S+\s*", "", line, flags=re.IGNORECASE)


def _written(lines: Iterable[tuple[Sequence[str], str]]) -> str:
    return "".join(f"NodeName={','.join(names)} {line}\n" for names, line in lines if names)


# What jobs get, before and after a change.

VERSION = 1


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


@dataclass(frozen=True)
class WhatIfDocument:
    """What ``gpuspawner what-if --json`` prints."""

    slurm: str
    """The version of the slurmctld that was asked."""
    options: tuple[str, ...]
    """sbatch's options of each job, those that decide where it runs."""
    today: SiteOutcome
    """With the site as it is."""
    then: SiteOutcome | None
    """With the changes; None where none was given."""
    notes: tuple[str, ...]
    """Sentences: what of the site, the changes or the jobs is left out."""
    version: int = VERSION


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
    per_core = {node.name: node.cpus_per_core for node in parse_nodes(site.nodes)}
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
