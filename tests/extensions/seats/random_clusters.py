"""Small clusters at random, with jobs that run, and a request: the same for the form and for Slurm's scheduler.

Each has nodes of its own, in up to three partitions, so that many of them are one site and are asked about at once.
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
from tests.extensions.seats.site_answers import NOW, VERSION, config, job, node, partition, reservation, site
from tests.standins.resources import resolved

SITES: dict[str, dict[str, str]] = {
    "cores and memory": {"SelectTypeParameters": "CR_CORE_MEMORY"},
    "CPUs and memory": {"SelectTypeParameters": "CR_CPU_MEMORY"},
    "sockets": {"SelectTypeParameters": "CR_SOCKET_MEMORY"},
    "cores": {"SelectTypeParameters": "CR_CORE"},
    "memory for each CPU": {"SelectTypeParameters": "CR_CORE_MEMORY", "MaxMemPerCPU": "3000"},
    "memory of a node": {"SelectTypeParameters": "CR_CORE_MEMORY", "MaxMemPerNode": "9000"},
}
"""What slurm.conf says of all partitions of a site."""
LIMITS: tuple[str, ...] = (
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
if not VERSION.startswith("22."):
    LIMITS += ("MaxCPUsPerSocket=2",)
if VERSION.startswith("26."):
    LIMITS += ("Exclusive=NODE", "Exclusive=USER")
WHOLE_NODES = ("OverSubscribe=EXCLUSIVE", "ExclusiveUser=YES", "Exclusive=NODE", "Exclusive=USER")
OF_OTHERS = ("", "", "", "", "MaxMemPerCPU=2000", "DefMemPerCPU=1500", "MaxNodes=1", "OverSubscribe=EXCLUSIVE")
"""The same of a partition that has some of the nodes as well."""
POLICIES = ("none", "best-effort", "restricted")
REPEATED = ("HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND")
NOT_YET = ("Dependency", "BeginTime", "QOSMaxJobsPerUserLimit", "JobHeldUser")
"""Why a job is pending that could not start if its nodes were free."""


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
    bound: bool = False
    """gres.conf says which cores are beside each GPU."""
    planned: bool = False
    """Slurm keeps it for a job."""
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
            state=("IDLE+DRAIN" if self.out else "MIXED" if self.used["cpus"] else "IDLE")
            + ("+PLANNED" if self.planned else ""),
            features=self.features,
            used=(self.used["cpus"], self.used["memory"], ",".join(used)),
        )

    def gres_conf(self) -> str:
        """Its lines in gres.conf, where that names cores: an even share for each GPU, or its socket."""
        of_sockets = not VERSION.startswith("22.")  # later ones take these alone, and drain a node with other cores
        share = self.cores if of_sockets else self.sockets * self.cores // max(1, len(self.gpus))
        return "".join(
            f"NodeName={self.name} Name=gpu Type={kind} File=/dev/nvidia{at} Cores={first}-{first + share - 1}\n"
            for at, kind in (self.gpus.items() if self.bound else ())
            for first in (share * (at * self.sockets // len(self.gpus) if of_sockets else at),)
        )

    def __post_init__(self) -> None:
        self.kinds = [self.gpus[number] for number in sorted(self.gpus)]
        self.gres = ",".join(f"gpu:{kind}:{self.kinds.count(kind)}" for kind in dict.fromkeys(self.kinds))
        if self.shards:
            self.gres += f",shard:{self.kinds[0]}:{self.shards * len(self.kinds)}"
        self.cpus = [*range(self.sockets * self.cores * self.threads)]


@dataclass(frozen=True)
class Other:
    """A further partition of a case."""

    name: str
    nodes: tuple[str, ...]
    tier: int
    limit: str


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
    """What jobs ask for that were submitted before, each with its ``partition``."""
    unseen: bool = False
    """The form sees nothing of the first of these while it waits, but that its nodes are kept for a job (PLANNED)."""
    others: tuple[Other, ...] = ()
    tier: int = 1
    """PriorityTier."""
    policy: str = "best-effort"
    not_yet: tuple[ClusterJob, ...] = ()
    """Pending jobs that could not start."""

    @property
    def queue(self) -> tuple[Resources, ...]:
        """The resources of the jobs that were submitted before."""
        return tuple(resolved(**request) for request in self.before)

    @property
    def is_unknown_by_design(self) -> bool:
        """Whether the form cannot judge the request, and says so."""
        return self.policy == "restricted" or self.limit.startswith("MaxCPUsPerSocket")

    @property
    def waits_for_reservation(self) -> bool:
        """Whether the request names a reservation that has not begun."""
        return "reservation" in self.request and f"StartTime={NOW - 60:.0f}" not in self.reservation

    @property
    def has_impossible_shards(self) -> bool:
        """Whether the request is for shards of several GPUs, or for shards and whole nodes."""
        most = max(machine.shards for machine in self.machines)
        whole = self.resources.exclusive or self.limit in ("OverSubscribe=EXCLUSIVE", "Exclusive=NODE")
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
        return (
            f"{self.name} [{self.limit} tier {self.tier}] {self.policy} {self.request} on {nodes} {self.reservation} "
            f"behind {self.before} beside {self.others}"
        )


def cases(seed: int, count: int, of_site: str) -> tuple[Case, ...]:
    """So many clusters of one of the :data:`SITES`; the same for the same seed."""
    return tuple(_case(random.Random(f"{seed} {number} {of_site}"), number, SITES[of_site]) for number in range(count))


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
        partitions=(resources.partition or case.name,),
        nodes=tuple(part.node for part in allocations),
        node_count=len(allocations),
        cpus=sum(len(part.cpu_ids) for part in allocations),
        memory_mib=sum(part.memory_mib for part in allocations),
        gpus=parse_gres(resources.gres_option or ""),
        ends_at=NOW + resources.time if isinstance(resources.time, int) else None,
    )


def keep_nodes(case: Case, resources: Resources) -> None:
    """Have Slurm keep nodes for a job that waits for these."""
    kept = str(dict(resources.extra_options)["nodelist"]).split(",")
    for machine in case.machines:
        machine.planned = machine.name in kept and bool(machine.cpus)


def _case(chance: random.Random, number: int, config: dict[str, str]) -> Case:
    name, parameters = f"p{number}", config["SelectTypeParameters"]
    kinds: tuple[str, ...] = chance.choice((("t4",), ("t4",), ("a100", "v100"), ()))
    sockets, cores, threads = chance.choice((1, 2)), chance.choice((4, 6, 8)), chance.choice((1, 1, 2))
    unit = cores * threads if parameters == "CR_SOCKET_MEMORY" else threads  # no core is given to two jobs
    shards = chance.choice((0, 0, 4)) if kinds == ("t4",) else 0
    is_contended = chance.random() < 0.2  # a job of another partition waits for all nodes
    limit = "" if is_contended else chance.choice((*[""] * 6, *LIMITS))
    if limit in ("ExclusiveUser=YES", "Exclusive=USER"):  # a twin gives whole nodes there, and so no shards
        shards = 0
    machines = []
    policy = chance.choice(POLICIES)
    bound = not shards and chance.random() < (0.8 if policy == "restricted" else 0.3)
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
                bound,
            )
        )
    names = [machine.name for machine in machines]
    beside = 1 if is_contended else chance.choice((0, 0, 1, 2))
    # jobs of others in whole nodes, or that share CPUs, leave the twin no room to place what runs
    number_held = 0 if beside and (limit in WHOLE_NODES or "FORCE" in limit) else chance.randint(0, 6)
    number_held = max(number_held, len(names)) if is_contended else number_held
    others = tuple(
        Other(
            f"{name}{'bc'[at]}",
            tuple(sorted(chance.sample(names, chance.randint(len(names) if is_contended else 1, len(names))))),
            chance.choice((1, 5) if is_contended else (1, 1, 1, 5)),
            "" if is_contended else chance.choice(OF_OTHERS),
        )
        for at in range(beside)
    )
    jobs: list[HeldJob] = []
    running = []
    size = chance.choice((1, 2, 3)) if shards else 0
    # whole GPUs first, and then shards, as many for each job: so Slurm chooses the same GPUs in any order of jobs
    for of_case, shares in enumerate(sorted(chance.random() < 0.6 for _ in range(number_held))):
        machine = machines[of_case % len(machines)] if is_contended else chance.choice(machines)
        shards = size if shares and limit not in WHOLE_NODES else 0
        held = _hold(chance, machine, config, limit, shards)
        if held is None or machine.out:
            continue
        cpus, memory, gres = held
        ends_in = chance.choice((1800, 7200, 86000))
        job_id = 1000 * (number + 1) + of_case
        of = [other.name for other in others if not other.limit and machine.name in other.nodes]
        partition = chance.choice((name, *of)) if not limit else name
        jobs += job(job_id, machine.name, cpus, gres, memory=memory, partition=partition, ends_in=ends_in)
        running.append(
            ClusterJob(
                str(job_id),
                Phase.RUNNING,
                "RUNNING",
                user="ada",
                partitions=(partition,),
                nodes=(machine.name,),
                cpus=len(cpus.split(",")),
                memory_mib=memory,
                gpus=parse_gres(gres),
                ends_at=NOW + ends_in,
            )
        )
    request, reserved = _request(chance, kinds, machines[0]), ""
    before = [
        {
            "partition": chance.choice((name, *(other.name for other in others))),
            **_request(chance, kinds, machines[0]),
            **chance.choice(({}, {}, {"exclusive": True, "nodes": chance.randint(1, len(machines))})),
        }
        for _ in range(chance.choice((0, 1, 2, 3) if others else (0, 0, 0, 1, 2, 3)))
    ]
    if is_contended:  # the request, too, would run when that could start
        before = [{"partition": others[0].name, "exclusive": True, "nodes": len(machines), "time": 3600, "memory": 500}]
        request = {"time": 80000, "cpus": 1, "memory": 500, **({"gpus": 1} if kinds and chance.random() < 0.5 else {})}
    unseen = not is_contended and limit not in WHOLE_NODES and "FORCE" not in limit and chance.random() < 0.2
    if unseen:
        kept = chance.sample(names, min(2, len(names)))
        whole = {"exclusive": True, "nodes": len(kept), "extra": (f"--nodelist={','.join(kept)}",)}
        before.insert(0, {"partition": name, "time": 3600, "memory": 500, **whole})
    if chance.random() < 0.2:
        begins_in = chance.choice((-60, 1800, 3600, 7200))
        flags = chance.choice(("SPEC_NODES", "SPEC_NODES", "MAINT,SPEC_NODES", "FLEX,SPEC_NODES"))
        flags += chance.choice(("", "", *(f",{period}" for period in REPEATED)))
        own = chance.random() < 0.5
        called = f"r{name}" if own else chance.choice((f"r{name}", f"maintenance of {name} 2023-10-14"))
        reserved = reservation(
            called,
            machines[0].name,
            begins_in=begins_in,
            ends_in=begins_in + 3000 if "HOURLY" in flags else 10800,
            flags=flags,
        )
        if own:
            request["reservation"] = called
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
        unseen,
        others,
        chance.choice((1, 1, 1, 5)) if others else 1,
        policy,
        tuple(_not_yet(chance, number, at, (name, *(other.name for other in others))) for at in range(beside)),
    )


def _not_yet(chance: random.Random, number: int, at: int, partitions: tuple[str, ...]) -> ClusterJob:
    """A pending job that could not start if all were free."""
    reason = chance.choice(NOT_YET)
    return ClusterJob(
        str(1000 * (number + 1) + 900 + at),
        Phase.QUEUED,
        "PENDING",
        reason=reason,
        user="eve",
        partitions=(chance.choice(partitions),),
        priority=0 if reason == "JobHeldUser" else 200,
        gpus=parse_gres("gpu:1"),
    )


def _hold(
    chance: random.Random, machine: Machine, config: dict[str, str], limit: str, shards: int
) -> tuple[str, int, str] | None:
    """What a job holds on a machine: CPUs, memory in MiB, gres; None where nothing is left."""
    count = chance.choice((1, 2, 3, 4)) * machine.unit
    if limit in WHOLE_NODES and machine.used["cpus"]:
        return None  # in a twin each job has its nodes for itself
    if limit in WHOLE_NODES and "USER" not in limit.upper():
        count = machine.sockets * machine.cores * machine.threads
    memory = chance.choice((500, 2000, 6000))
    most = 2000 if limit == "MaxMemPerCPU=2000" else int(config.get("MaxMemPerCPU", "1000000"))
    if memory > most * count:
        return None
    if limit == "MaxCPUsPerNode=6" and machine.used["cpus"] + count > 6:
        return None
    if len(machine.cpus) < count or machine.used["memory"] + memory > machine.memory:
        return None
    cpus, machine.cpus = machine.cpus[:count], machine.cpus[count:]
    machine.used["cpus"] += count
    memory = 0 if config["SelectTypeParameters"] == "CR_CORE" else memory
    machine.used["memory"] += memory
    gres = _share(machine, shards) if shards else _take(chance, machine)
    return ",".join(map(str, cpus)), memory, gres


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
    a_socket = machine.cores * machine.threads
    request: dict[str, Any] = {"time": chance.choice((*[600, 3600, 80000, 80000] * 4, 2 * 86400))}
    if machine.shards and chance.random() < 0.6:
        request["shards"] = chance.choice((*[1, 2, 3, 4] * 3, 5, 20))
    elif kinds and chance.random() < 0.8:
        request["gpus"] = chance.choice((*[1, 2] * 4, 3, 5))
        if chance.random() < 0.5:
            request["gpu_type"] = chance.choice((*kinds * 5, "h100"))
    if chance.random() < 0.8:
        request["cpus"] = chance.choice((*[1, 2, 3, 4, 6] * 2, a_socket + 1, machine.sockets * a_socket))
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


def site_of(of: Sequence[Case], of_site: str) -> Site:
    """One site with all of them."""
    return site(
        (machine.line() for case in of for machine in case.machines),
        _partitions(of),
        config=config(**SITES[of_site], DefMemPerCPU="500", GresTypes="gpu,shard"),
        reservations="".join(case.reservation for case in of),
        jobs=tuple(held for case in of for held in case.jobs),
        gres_conf="".join(machine.gres_conf() for case in of for machine in case.machines),
    )


def wait(case: Case, at: int, resources: Resources, reason: str) -> ClusterJob:
    """A job of a case's queue that waits, with Slurm's reason."""
    return ClusterJob(
        f"{case.name}:{at}",
        Phase.QUEUED,
        "PENDING",
        reason=reason,
        user="bob",
        partitions=(resources.partition or case.name,),
        priority=100 - at,
        node_count=resources.node_count,
        cpus=(resources.cpus or 1) * resources.node_count,
        memory_mib=(resources.memory or 0) * resources.node_count,
        gpus=parse_gres(resources.gres_option or ""),
        time_limit=resources.time if isinstance(resources.time, int) else None,
    )


def snapshot_of(of: Sequence[Case], of_site: str, of_queues: Sequence[ClusterJob] = ()) -> ClusterSnapshot:
    """The same as the form sees it, with these jobs of the queues."""
    of_all = site_of(of, of_site)
    return ClusterSnapshot(
        nodes=of_all.nodes,
        partitions=tuple(of_all.partitions),
        reservations=tuple(of_all.reservations),
        jobs=(*(job for case in of for job in (*case.running, *case.not_yet)), *of_queues),
        config=of_all.config,
        taken_at=NOW,
    )


def _partitions(of: Sequence[Case]) -> Iterator[str]:
    for case in of:
        names = ",".join(machine.name for machine in case.machines)
        yield partition(case.name, names, f"{case.limit} PriorityTier={case.tier}", default=False)
        for other in case.others:
            more = f"{other.limit} PriorityTier={other.tier}"
            yield partition(other.name, ",".join(other.nodes), more, default=False)
