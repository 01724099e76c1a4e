"""Compare the GPUs and cores that Slurm gives to jobs that ask for the same with other options of sbatch.

    python benchmarks/extensions/seats/request_table.py [--write]

It prints a table for the Slurm of this machine; with ``--write`` the table replaces that of the same version in
docs/explanation/request-table.md. ``scripts/request-table`` does so with several versions. Slurm's own scheduler
answers, a slurmctld without nodes (``extensions/seats``), so any account can run it. It takes some minutes.

For each kind of node, each state of it and each request that profiles make there is a node of its own for each form of
the request. What others hold in a state is the same for all forms. A job is *well placed* if its GPUs and cores are of
as few sockets as that state allows, and if each of these sockets has one of the GPUs and one of the cores. Requests for
a whole node count as well placed wherever they run.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.extensions.seats.devices import gres_conf
from jupyterhub_gpuspawner.extensions.seats.site import Request
from jupyterhub_gpuspawner.extensions.seats.twin import Answer, site_from, what_runs
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.units import NodeAllocation

PAGE = Path(__file__).parents[3] / "docs/explanation/request-table.md"
BEGIN, END = "<!-- written by scripts/request-table: -->", "<!-- until here -->"
HEADING = "**Slurm "
SECONDS = 900.0
SOCKETS = 2
MEMORY = 1000
"""MiB of each job that is compared."""


@dataclass(frozen=True)
class Kind:
    """A kind of node with two sockets, half of its GPUs at each."""

    name: str
    types: tuple[str, ...]
    """The type of each GPU; empty for none."""
    cores: int
    """Of each socket."""
    threads: int = 1
    shards: int = 0
    described: bool = True
    """gres.conf has the ``Cores=`` of its GPUs."""

    def node(self, name: str, feature: str) -> str:
        """Its line of ``scontrol show node``; its memory is enough for one of the jobs that are compared."""
        counts = Counter(self.types)
        gres = ",".join(":".join(filter(None, ("gpu", kind, str(count)))) for kind, count in counts.items())
        gres += f",shard:{self.shards}" if self.shards else ""
        cpus = SOCKETS * self.cores * self.threads
        return (
            f"NodeName={name} CoresPerSocket={self.cores} CPUTot={cpus} ActiveFeatures={feature} Gres={gres} "
            f"RealMemory={MEMORY + MEMORY // 2} Sockets={SOCKETS} Boards=1 State=IDLE "
            f"ThreadsPerCore={self.threads} Weight=1\n"
        )

    def gres_conf(self, names: Sequence[str]) -> str:
        """Its lines of gres.conf, for nodes of these names."""
        lines = []
        for gpu, kind in enumerate(self.types):
            first = self.socket(gpu) * self.cores
            words = ["Name=gpu", f"Type={kind}" if kind else "", f"File=/dev/nvidia{gpu}"]
            words += [f"Cores={first}-{first + self.cores - 1}" if self.described else ""]
            lines.append(" ".join(filter(None, words)))
        lines += [f"Name=shard Count={self.shards}"] if self.shards else []
        return "".join(f"NodeName={','.join(names)} {line}\n" for line in lines)

    def socket(self, gpu: int) -> int:
        """The socket of a GPU, whether gres.conf says it or not."""
        return gpu * SOCKETS // len(self.types)


def kinds() -> Iterator[Kind]:
    """Nodes without and with a gres.conf that describes them."""
    for described in (False, True):
        words = f"{'with' if described else 'without'} `Cores=`"
        yield Kind(f"4 GPUs, 2 x 12 cores, {words}", ("k80",) * 4, 12, described=described)
        yield Kind(f"the same, 2 threads a core, {words}", ("k80",) * 4, 12, 2, described=described)
        yield Kind(f"8 GPUs without a type, 2 x 20 cores, {words}", ("",) * 8, 20, described=described)
        yield Kind(f"3 GPUs and 3 MIG devices, {words}", ("a100",) * 3 + ("1g.10gb",) * 3, 16, described=described)
        yield Kind(f"4 GPUs with 16 shards, {words}", ("k80",) * 4, 12, shards=16, described=described)


REQUESTS = (
    *(Resources(gpus=1, cpus=cpus, memory=MEMORY) for cpus in (1, 4, 6, 8, 12)),
    *(Resources(gpus=2, cpus=cpus, memory=MEMORY) for cpus in (2, 8, 12)),
    *(Resources(gpus=4, cpus=cpus, memory=MEMORY) for cpus in (8, 16, 20)),
    *(
        Resources(gpus=n, gpu_type=name, cpus=4 * n, memory=MEMORY)
        for name in ("k80", "a100", "1g.10gb")
        for n in (1, 2)
    ),
    *(Resources(shards=shards, cpus=cpus, memory=MEMORY) for shards, cpus in ((1, 2), (2, 4), (4, 8), (6, 8))),
    *(Resources(cpus=cpus, memory=MEMORY) for cpus in (4, 12, 16)),
    Resources(gpus=1, cpus=4, memory=MEMORY, exclusive=True),
)
"""What profiles ask for: one, two and four GPUs, with a type and without, MIG devices, shards, cores, a whole node."""
STATES: tuple[tuple[Resources, ...], ...] = (
    (),
    (Resources(gpus=1, cpus=4, memory=1),),
    (Resources(gpus=1, cpus=8, memory=1),) * 2,
    (Resources(cpus=14, memory=1), Resources(gpus=1, cpus=2, memory=1)),
)
"""What others hold on a node."""

Form = Callable[[Resources], list[str]]


def script(resources: Resources, policy: str = "best-effort", gpus_option: str = "gres") -> list[str]:
    """The options of a server's batch script."""
    return list(options(resources, policy, gpus_option))


def per_node(resources: Resources) -> list[str]:
    """GPUs with the option of the job's nodes."""
    return [re.sub(r"^--gres=gpu:", "--gpus-per-node=", line) for line in script(resources)]


def per_gpu(resources: Resources) -> list[str]:
    """Cores by GPU, where that is possible."""
    count, cpus = resources.gpus or 0, resources.cpus or 0
    if not count or cpus % count:
        return script(resources)
    lines = [f"--cpus-per-gpu={cpus // count}" if "cpus" in line else line for line in script(resources)]
    return [re.sub(r"^--gres=gpu:", "--gpus=", line) for line in lines]


FORMS: dict[str, Form] = {
    "as servers ask": script,
    "`--ntasks=1`": lambda of: [*script(of), "--ntasks=1"],
    "`--ntasks=1 --distribution=block:block`": lambda of: [*script(of), "--ntasks=1", "--distribution=block:block"],
    "`--gpus`": lambda of: script(of, gpus_option="gpus"),
    "`--gpus-per-node`": per_node,
    "`--cpus-per-gpu`": per_gpu,
    "`enforce-binding`": lambda of: script(of, policy="restricted"),
}


@dataclass(frozen=True)
class Trial:
    """One request in one state of a node: what is free, and what each form gets."""

    kind: Kind
    resources: Resources
    others: tuple[NodeAllocation, ...]
    answers: tuple[Answer, ...]
    """One for each of :data:`FORMS`."""

    def well(self, answer: Answer) -> bool:
        """Whether the job is well placed."""
        if not answer.runs:
            return False
        if self.resources.exclusive:
            return True
        of_gpus, of_cores = self._sockets(answer.allocations[0])
        wants_gpus = bool(self.resources.gpus or self.resources.shards)
        used = of_gpus | of_cores
        return (of_gpus == of_cores or not wants_gpus) and len(used) <= self._fewest()

    def _sockets(self, got: NodeAllocation) -> tuple[set[int], set[int]]:
        gpus = {index for gres in got.gres for index in gres.indices}
        size = self.kind.cores * self.kind.threads
        return {self.kind.socket(gpu) for gpu in gpus}, {cpu // size for cpu in got.cpu_ids}

    def _fewest(self) -> int:
        """The fewest sockets that have as many free GPUs and cores as the job requests."""
        wanted = self.resources.gpus or (1 if self.resources.shards else 0)
        busy_gpus = {index for part in self.others for gres in part.gres for index in gres.indices}
        size = self.kind.cores * self.kind.threads
        busy = Counter(cpu // size for part in self.others for cpu in part.cpu_ids)
        for socket in range(SOCKETS):
            free = [
                gpu
                for gpu, kind in enumerate(self.kind.types)
                if self.kind.socket(gpu) == socket and gpu not in busy_gpus and self.resources.gpu_type in (None, kind)
            ]
            if len(free) >= wanted and size - busy[socket] >= (self.resources.cpus or 1):
                return 1
        return SOCKETS


@dataclass(frozen=True)
class Group:
    """The nodes of one kind and one state, one for each request that this kind may have, in each form."""

    kind: Kind
    others: tuple[Resources, ...]
    prefix: str

    def requests(self) -> list[int]:
        """Which requests this kind may have."""
        return [number for number, resources in enumerate(REQUESTS) if self._has(resources)]

    def pairs(self) -> list[tuple[int, int]]:
        """The request and the form that each node is for."""
        return [(request, form) for request in self.requests() for form in range(len(FORMS))]

    def name(self, request: int, form: int) -> str:
        """The node for a request in this form."""
        return f"{self.prefix}n{self.pairs().index((request, form))}"

    def names(self) -> list[str]:
        """Of the nodes."""
        return [self.name(*pair) for pair in self.pairs()]

    def _has(self, resources: Resources) -> bool:
        if resources.shards:
            return bool(self.kind.shards)
        if resources.gpu_type:
            return self.kind.types.count(resources.gpu_type) >= (resources.gpus or 0)
        return True

    def fillers(self) -> Iterator[Request]:
        """The jobs of the others."""
        count = len(self.pairs())
        for resources in self.others:
            lines = script(resources.model_copy(update={"nodes": count}))
            yield Request("others", (*lines, f"--nodelist={self.prefix}n[0-{count - 1}]", "--time=60"))


async def trials(kind: Kind) -> tuple[list[Trial], str]:
    """The trials on a kind of node, and the version of Slurm.

    A request in one form is a job array with a task for each state. Its constraint is a feature that one node of each
    state has, and a node's memory is enough for one task.
    """
    groups = [Group(kind, others, f"s{number}") for number, others in enumerate(STATES)]
    fillers = [filler for group in groups for filler in group.fillers()]
    jobs = [
        Request(
            "job", (*[*FORMS.values()][form](REQUESTS[request]), f"--constraint={_feature(request, form)}", "--time=60")
        )
        for request, form in groups[0].pairs()
        for _ in groups
    ]
    parameters = {
        "GresTypes": "gpu,shard",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CORE_MEMORY",
        "PrivateData": "none",
    }
    names = [name for group in groups for name in group.names()]
    features = [_feature(*pair) for group in groups for pair in group.pairs()]
    answers = site_from(
        config="".join(f"{key} = {value}\n" for key, value in parameters.items()),
        nodes="".join(map(kind.node, names, features)),
        partitions=f"PartitionName=gpu Default=YES MaxTime=1-00:00:00 Nodes={','.join(names)} State=UP\n",
    )
    site = replace(answers, gres=gres_conf(kind.gres_conf(names), names))
    result = await what_runs(site, [*fillers, *jobs], at=time.time(), slurm=Installation(), timeout=SECONDS)
    held: dict[str, list[NodeAllocation]] = {}
    for answer in result.answers[: len(fillers)]:
        if not answer.runs:
            raise RuntimeError(f"{kind.name}: a state cannot be made: {answer}")
        for part in answer.allocations:
            held.setdefault(part.node, []).append(part)
    by_node = {part.node: answer for answer in result.answers[len(fillers) :] for part in answer.allocations}
    # one of several nodes may be overlooked: jobs that wait are tried once more, each on its own node
    waiting = [
        Request("job", (*[*FORMS.values()][form](REQUESTS[request]), f"--nodelist={name}", "--time=60"))
        for group in groups
        for request, form in group.pairs()
        if (name := group.name(request, form)) not in by_node and group.name(request, 0) in by_node
    ]
    if waiting:
        retry = await what_runs(site, [*fillers, *waiting], at=time.time(), slurm=Installation(), timeout=SECONDS)
        by_node |= {part.node: answer for answer in retry.answers[len(fillers) :] for part in answer.allocations}
    return [
        Trial(
            kind,
            REQUESTS[request],
            tuple(held.get(group.name(request, 0), ())),
            tuple(by_node.get(group.name(request, form), Answer("job")) for form in range(len(FORMS))),
        )
        for group in groups
        for request in group.requests()
    ], result.version


def _feature(request: int, form: int) -> str:
    return f"r{request}f{form}"


def cell(trials: Sequence[Trial], at: int) -> str:
    """``14 of 20``, and what is otherwise than with the form of servers."""
    well = [trial.well(trial.answers[at]) for trial in trials]
    usual = [trial.well(trial.answers[0]) for trial in trials]
    better = sum(a and not b for a, b in zip(well, usual, strict=True))
    worse = sum(b and not a for a, b in zip(well, usual, strict=True))
    waits = sum(trial.answers[0].runs and not trial.answers[at].runs for trial in trials)
    notes = [f"{count} {word}" for count, word in ((better, "better"), (worse, "worse"), (waits, "wait")) if count]
    return f"{sum(well)} of {len(trials)}" + (f" ({', '.join(notes)})" if notes else "")


async def section() -> str:
    """The table of this Slurm, below its version."""
    rows, everything, version = [], list[Trial](), ""
    for kind in kinds():
        tried, version = await trials(kind)
        rows.append((kind.name, [trial for trial in tried if trial.answers[0].runs]))
        everything += rows[-1][1]
    lines = [f"{HEADING}{version}**\n", f"| node | {' | '.join(FORMS)} |", "|---" * (len(FORMS) + 1) + "|"]
    for name, of_kind in (*rows, ("all", everything)):
        lines.append(f"| {name} | {' | '.join(cell(of_kind, at) for at in range(len(FORMS)))} |")
    return "\n".join(lines)


def page(old: str, table: str) -> str:
    """The page with this table in the place of the one of the same version; versions with the same table share it."""
    before, _, rest = old.partition(BEGIN)
    inside, _, after = rest.partition(END)
    tables: dict[str, tuple[str, str]] = {}
    for part in (*inside.split(HEADING)[1:], table.removeprefix(HEADING)):
        names, _, rows = part.partition("**")
        tables |= {name[:5]: (name, rows.strip()) for name in names.split(" and ")}
    shared: dict[str, list[str]] = {}
    for _, (name, rows) in sorted(tables.items()):
        shared.setdefault(rows, []).append(name)
    body = "\n\n".join(f"{HEADING}{' and '.join(names)}**\n\n{rows}" for rows, names in shared.items())
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{after}"


def main() -> None:
    """Print the table, and write it if that is asked for."""
    table = asyncio.run(section())
    print(table)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(PAGE.read_text("utf-8"), table), "utf-8")


if __name__ == "__main__":
    main()
