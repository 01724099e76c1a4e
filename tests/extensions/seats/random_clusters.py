"""Small clusters at random, with jobs that run, and a request: the same for the form and for Slurm's scheduler.

Each is a partition with nodes of its own, so that many of them are one site and are asked about at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyterhub_gpuspawner.extensions.seats.held import HeldJob
from jupyterhub_gpuspawner.extensions.seats.site import Site
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot
from jupyterhub_gpuspawner.units import NodeAllocation, format_cpulist, parse_gres
from tests.extensions.seats.site_answers import NOW, config, job, node, partition, reservation, site
from tests.standins.resources import resolved

PARAMETERS = ("CR_CORE_MEMORY", "CR_CPU_MEMORY", "CR_SOCKET_MEMORY", "CR_CORE")
LIMITS = (
    "MaxCPUsPerNode=6",
    "MaxMemPerCPU=2000",
    "MaxNodes=1",
    "DefMemPerCPU=1500",
    "JobDefaults=DefCpuPerGPU=3",
    "OverSubscribe=EXCLUSIVE",
    "OverSubscribe=FORCE:2",
    "LLN=YES",
    "ExclusiveUser=YES",
)
"""What may be special about a partition."""
WHOLE_NODES = ("OverSubscribe=EXCLUSIVE", "ExclusiveUser=YES")


@dataclass
class Machine:
    """A node that is filled."""

    name: str
    sockets: int
    cores: int
    threads: int
    memory: int
    gpus: dict[int, str]
    """Types of the GPUs, by index."""
    shards: int
    """Of each GPU."""
    unit: int
    """CPUs that a job gets together."""
    out: bool
    features: str
    gres: str = ""
    cpus: list[int] = field(default_factory=list)
    """Free ones."""
    used: dict[str, int] = field(default_factory=lambda: {"cpus": 0, "memory": 0, "shards": 0})
    allocated: list[int] = field(default_factory=list)
    """GPUs that jobs have as a whole."""
    shared: dict[int, int] = field(default_factory=dict)
    """Shards in use, by GPU."""

    def line(self) -> str:
        """``scontrol show node -d -o``."""
        of_type = {kind: [i for i in self.allocated if self.kinds[i] == kind] for kind in dict.fromkeys(self.kinds)}
        used = [f"gpu:{kind}:{len(ids)}(IDX:{format_cpulist(ids) or 'N/A'})" for kind, ids in of_type.items()]
        if self.shards:
            of_gpus = ",".join(f"{self.shared.get(number, 0)}/{self.shards}" for number in self.gpus)
            used.append(f"shard:{self.kinds[0]}:{sum(self.shared.values())}({of_gpus})")
        return node(
            self.name,
            self.gres or "(null)",
            sockets=self.sockets,
            cores=self.cores,
            threads=self.threads,
            memory=self.memory,
            state="IDLE+DRAIN" if self.out else "MIXED" if self.used["cpus"] else "IDLE",
            features=self.features,
            used=(self.used["cpus"], self.used["memory"], ",".join(used)),
        )

    def __post_init__(self) -> None:
        self.kinds = [self.gpus[number] for number in sorted(self.gpus)]
        self.gres = ",".join(f"gpu:{kind}:{self.kinds.count(kind)}" for kind in dict.fromkeys(self.kinds))
        if self.shards:
            self.gres += f",shard:{self.kinds[0]}:{self.shards * len(self.kinds)}"
        self.cpus = [*range(self.sockets * self.cores * self.threads)]


@dataclass(frozen=True)
class Case:
    """A cluster, jobs that were submitted before, and a request."""

    name: str
    """The partition's."""
    machines: tuple[Machine, ...]
    limit: str
    """What is special about the partition."""
    jobs: tuple[HeldJob, ...]
    """``scontrol show job -d -o``."""
    running: tuple[ClusterJob, ...]
    reservation: str
    """``scontrol show reservation -o``; empty without one."""
    resources: Resources
    request: dict[str, Any]
    before: Sequence[dict[str, Any]] = ()
    """What jobs ask for that were submitted before."""

    @property
    def queue(self) -> tuple[Resources, ...]:
        """The resources of the jobs that were submitted before."""
        return tuple(resolved(self.name, **request) for request in self.before)

    @property
    def waits_for_reservation(self) -> bool:
        """Whether the request names a reservation that has not begun."""
        return "reservation" in self.request and f"StartTime={NOW - 60:.0f}" not in self.reservation

    @property
    def is_behind_other_devices(self) -> bool:
        """Whether jobs of the queue want other devices."""
        own, *others = ((r.gpu_type if r.gpus else "", bool(r.shards)) for r in (self.resources, *self.queue))
        return any(device != own for device in others)

    @property
    def has_impossible_shards(self) -> bool:
        """Whether the request is for shards of several GPUs, or for shards and whole nodes."""
        most = max(machine.shards for machine in self.machines)
        whole = self.resources.exclusive or self.limit == "OverSubscribe=EXCLUSIVE"
        return (self.resources.shards or 0) > most or (bool(self.resources.shards) and whole)

    @property
    def has_flexible_reservation(self) -> bool:
        """Whether the request names a reservation with the flag FLEX."""
        return "reservation" in self.request and "FLEX" in self.reservation

    def __str__(self) -> str:
        nodes = "; ".join(
            f"{m.sockets}x{m.cores}x{m.threads} {m.memory} MiB {m.gres}{' drained' if m.out else ''}, used {m.used} "
            f"gpus {m.allocated} shards {m.shared}"
            for m in self.machines
        )
        return f"{self.name} [{self.limit}] {self.request} on {nodes} {self.reservation} behind {self.before}"


def cases(seed: int, count: int, parameters: str) -> tuple[Case, ...]:
    """So many clusters with these SelectTypeParameters; the same for the same seed."""
    return tuple(_case(random.Random(f"{seed} {number} {parameters}"), number, parameters) for number in range(count))


def start(case: Case, resources: Resources, allocations: Sequence[NodeAllocation]) -> ClusterJob:
    """Let a job of a case's queue run with what Slurm gives it."""
    machines = {machine.name: machine for machine in case.machines}
    for part in allocations:
        machine = machines[part.node]
        machine.used["cpus"] += len(part.cpu_ids)
        machine.used["memory"] += part.memory_mib
        if resources.shards:
            _share(machine, resources.shards)
        for gres in part.gres:
            free = [n for n, kind in machine.gpus.items() if n not in machine.allocated and kind == gres.type]
            machine.allocated += free[: gres.count if gres.name == "gpu" else 0]
    return ClusterJob(
        f"{case.name}:{allocations}",
        Phase.RUNNING,
        "RUNNING",
        user="bob",
        partitions=(case.name,),
        nodes=tuple(part.node for part in allocations),
        node_count=len(allocations),
        cpus=sum(len(part.cpu_ids) for part in allocations),
        memory_mib=sum(part.memory_mib for part in allocations),
        gpus=parse_gres(resources.gres_option or ""),
        ends_at=NOW + resources.time if isinstance(resources.time, int) else None,
    )


def _case(chance: random.Random, number: int, parameters: str) -> Case:
    name = f"p{number}"
    kinds: tuple[str, ...] = chance.choice((("t4",), ("t4",), ("a100", "v100"), ()))
    sockets, cores, threads = chance.choice((1, 2)), chance.choice((4, 6, 8)), chance.choice((1, 1, 2))
    unit = cores * threads if parameters == "CR_SOCKET_MEMORY" else threads  # no core is given to two jobs
    shards = chance.choice((0, 0, 4)) if kinds == ("t4",) else 0
    limit = chance.choice((*[""] * 6, *LIMITS))
    if limit == "ExclusiveUser=YES":  # a twin gives whole nodes there, and so no shards
        shards = 0
    machines = []
    for at in range(chance.choice((1, 2, 2, 3))):
        gpus = dict(enumerate(sorted(chance.choice(kinds) for _ in range(chance.choice((2, 4)))))) if kinds else {}
        machines.append(
            Machine(
                f"{name}n{at}",
                sockets,
                cores,
                threads,
                chance.choice((16000, 32000)),
                gpus,
                shards if len(gpus) else 0,
                unit,
                chance.random() < 0.08,
                chance.choice(("old", "new,fast")),
            )
        )
    jobs: list[HeldJob] = []
    running = []
    size = chance.choice((1, 2, 3)) if shards else 0
    # whole GPUs first, and then shards, as many for each job: so Slurm chooses the same GPUs in any order of jobs
    for of_case, shares in enumerate(sorted(chance.random() < 0.6 for _ in range(chance.randrange(7)))):
        machine = chance.choice(machines)
        shards = size if shares and limit not in WHOLE_NODES else 0
        held = _hold(chance, machine, parameters, limit, shards)
        if held is None or machine.out:
            continue
        cpus, memory, gres = held
        ends_in = chance.choice((1800, 7200, 86000))
        job_id = 1000 * (number + 1) + of_case
        jobs += job(job_id, machine.name, cpus, gres, memory=memory, partition=name, ends_in=ends_in)
        running.append(
            ClusterJob(
                str(job_id),
                Phase.RUNNING,
                "RUNNING",
                user="ada",
                partitions=(name,),
                nodes=(machine.name,),
                cpus=len(cpus.split(",")),
                memory_mib=memory,
                gpus=parse_gres(gres),
                ends_at=NOW + ends_in,
            )
        )
    request, reserved = _request(chance, kinds, machines[0]), ""
    before = [_request(chance, kinds, machines[0]) for _ in range(chance.choice((0, 0, 0, 1, 2, 3)))]
    if chance.random() < 0.2:
        begins_in = chance.choice((-60, 1800, 3600, 7200))
        flags = chance.choice(("SPEC_NODES", "SPEC_NODES", "MAINT,SPEC_NODES", "FLEX,SPEC_NODES"))
        reserved = reservation(f"r{name}", machines[0].name, begins_in=begins_in, ends_in=10800, flags=flags)
        if chance.random() < 0.5:
            request["reservation"] = f"r{name}"
    return Case(
        name,
        tuple(machines),
        limit,
        tuple(jobs),
        tuple(running),
        reserved,
        resolved(name, **request),
        request,
        before,
    )


def _hold(
    chance: random.Random, machine: Machine, parameters: str, limit: str, shards: int
) -> tuple[str, int, str] | None:
    """What a job holds on a machine: CPUs, memory in MiB, gres; None where nothing is left."""
    count = chance.choice((1, 2, 3, 4)) * machine.unit
    if limit in WHOLE_NODES:
        count = machine.sockets * machine.cores * machine.threads
    memory = chance.choice((500, 2000, 6000))
    if limit == "MaxMemPerCPU=2000" and memory > 2000 * count:
        return None
    if limit == "MaxCPUsPerNode=6" and machine.used["cpus"] + count > 6:
        return None
    if len(machine.cpus) < count or machine.used["memory"] + memory > machine.memory:
        return None
    cpus, machine.cpus = machine.cpus[:count], machine.cpus[count:]
    machine.used["cpus"] += count
    machine.used["memory"] += 0 if parameters == "CR_CORE" else memory
    gres = _share(machine, shards) if shards else _take(chance, machine)
    return ",".join(map(str, cpus)), 0 if parameters == "CR_CORE" else memory, gres


def _share(machine: Machine, shards: int) -> str:
    """Shards of the first GPU that has them, as Slurm chooses it: rather of one of which others are in use."""
    for number in sorted(machine.gpus, key=lambda number: number not in machine.shared):
        if number not in machine.allocated and machine.shared.get(number, 0) + shards <= machine.shards:
            machine.shared[number] = machine.shared.get(number, 0) + shards
            return f"shard:{shards}"
    return ""


def _take(chance: random.Random, machine: Machine) -> str:
    free = [number for number in machine.gpus if number not in machine.allocated]
    take = free[: chance.choice((0, 1, 1, 2))]
    kind = machine.gpus[take[0]] if take else ""
    take = [number for number in take if machine.gpus[number] == kind]
    machine.allocated += take
    return f"gpu:{kind}:{len(take)}(IDX:{format_cpulist(take)})" if take else ""


def _request(chance: random.Random, kinds: tuple[str, ...], machine: Machine) -> dict[str, Any]:
    request: dict[str, Any] = {"time": chance.choice((*[600, 3600] * 6, 2 * 86400))}
    if machine.shards and chance.random() < 0.6:
        request["shards"] = chance.choice((*[1, 2, 3, 4] * 3, 5, 20))
    elif kinds and chance.random() < 0.8:
        request["gpus"] = chance.choice((*[1, 2] * 4, 3, 5))
        if chance.random() < 0.5:
            request["gpu_type"] = chance.choice((*kinds * 5, "h100"))
    if chance.random() < 0.8:
        request["cpus"] = chance.choice((1, 2, 3, 4, 6, machine.sockets * machine.cores * machine.threads))
    if chance.random() < 0.7:
        request["memory"] = chance.choice((*[500, 2000] * 3, 8000, 20000, 0))
    if chance.random() < 0.1:
        request["exclusive"] = True
    if chance.random() < 0.15:
        request["nodes"] = 2
    if chance.random() < 0.15:
        request["extra"] = ("--hint=nomultithread",)
    if chance.random() < 0.2:
        request["constraint"] = chance.choice((*["old", "fast", "old|fast", "new&fast"] * 2, "huge"))
    return request


def site_of(of: Sequence[Case], parameters: str) -> Site:
    """One site with all of them."""
    return site(
        (machine.line() for case in of for machine in case.machines),
        _partitions(of),
        config=_config(parameters),
        reservations="".join(case.reservation for case in of),
        jobs=tuple(held for case in of for held in case.jobs),
    )


def wait(case: Case, at: int, resources: Resources, reason: str) -> ClusterJob:
    """A job of a case's queue that waits, with Slurm's reason."""
    return ClusterJob(
        f"{case.name}:{at}",
        Phase.QUEUED,
        "PENDING",
        reason=reason,
        user="bob",
        partitions=(case.name,),
        priority=100 - at,
        node_count=resources.node_count,
        cpus=(resources.cpus or 1) * resources.node_count,
        memory_mib=(resources.memory or 0) * resources.node_count,
        gpus=parse_gres(resources.gres_option or ""),
        time_limit=resources.time if isinstance(resources.time, int) else None,
    )


def snapshot_of(of: Sequence[Case], parameters: str, of_queues: Sequence[ClusterJob] = ()) -> ClusterSnapshot:
    """The same as the form sees it, with these jobs of the queues."""
    of_all = site_of(of, parameters)
    return ClusterSnapshot(
        nodes=of_all.nodes,
        partitions=tuple(of_all.partitions),
        reservations=tuple(of_all.reservations),
        jobs=(*(job for case in of for job in case.running), *of_queues),
        config=of_all.config,
        taken_at=NOW,
    )


def _config(parameters: str) -> str:
    return config(SelectTypeParameters=parameters, DefMemPerCPU="500", GresTypes="gpu,shard")


def _partitions(of: Sequence[Case]) -> Iterator[str]:
    for case in of:
        names = ",".join(machine.name for machine in case.machines)
        yield partition(case.name, names, case.limit, default=False)
