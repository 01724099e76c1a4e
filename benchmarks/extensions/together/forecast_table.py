"""What the form says of a start, compared with Slurm: its scheduler on random clusters, and real ones.

    python -m benchmarks.extensions.together.forecast_table [--cases 1020] [--clusters 50] [--write]

The cases are those of the oracle (tests/extensions/seats/test_oracle.py). Each real cluster has one to three nodes in
overlapping partitions, jobs of others that run or wait, and perhaps a reservation; every third one has a slurmdbd, and
an account with limits. For each of some requests it is noted what the form says; then it is submitted, and has
:data:`PATIENCE` seconds to start. ``--write`` writes the figures of this version into
docs/explanation/forecast-table.md. Root is needed: jobs are submitted as other accounts.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.batch.script import options
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SlurmFailed,
    slurm_version,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.availability.model.availability import availability
from jupyterhub_gpuspawner.extensions.seats.site import Request
from jupyterhub_gpuspawner.extensions.seats.twin import TwinFailed, read_site, what_runs
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.estimate import Chance
from tests.extensions.seats.random_clusters import SITES, Case, cases
from tests.extensions.seats.test_oracle import CLUSTERS_PER_TWIN, agree, verdicts_of
from tests.fixtures.accounting import Accounting, slurmdbd
from tests.standins.resources import resolved

PAGE = Path(__file__).parents[3] / "docs/explanation/forecast-table.md"
HEADING = "**Slurm "
PATIENCE = 5.0
"""Seconds that a job has to start."""
REQUESTS = 5
"""Of each real cluster."""
AT_ONCE = 4
"""Clusters that run at the same time."""
OTHERS, OWN = "daemon", "games"
"""Accounts that every Linux has."""
LIMITS = ("", "", "", "MaxCPUsPerNode=4", "MaxNodes=1", "OverSubscribe=EXCLUSIVE", "ExclusiveUser=YES", "LLN=YES")
OF_SITE = ("", "", "", "MaxMemPerCPU=3000", "MaxMemPerNode=9000")
OF_ACCOUNT = ("", "GrpTRES=cpu=4", "GrpJobs=2", "MaxJobs=1", "MaxTRES=cpu=3")


@dataclass(frozen=True)
class RealCluster:
    """A random cluster: everything that is written into files, or typed."""

    description: ClusterDescription
    conf: tuple[str, ...]
    """Lines of slurm.conf."""
    before: tuple[Resources, ...]
    """Jobs of others."""
    reservation: tuple[str, ...]
    """Words of ``scontrol create``; none without one."""
    requests: tuple[Resources, ...]
    limit: str
    """Of the account."""


@dataclass(frozen=True)
class Verdict:
    """What was said of a request, and what became of it."""

    form: Chance
    started: bool
    reason: str
    """Why it waits, or that it is refused."""
    text: str

    @property
    def limited(self) -> bool:
        """Whether accounting keeps it from running, of which the form knows nothing."""
        return self.reason.startswith(("Assoc", "QOS"))


class RandomSlurm(PrivateSlurm):
    """The private Slurm of a random cluster; with accounting where that is given."""

    def __init__(self, cluster: RealCluster, folder: Path, accounting: Accounting | None) -> None:
        super().__init__(cluster.description, folder)
        self._random, self._accounting = cluster, accounting

    def _write_files(self) -> None:
        super()._write_files()
        lines = [*self._random.conf]
        if self._accounting is not None:
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={self._accounting.port}",
                f"AccountingStoragePass={self.layout.munge_socket}",
                "AccountingStorageEnforce=associations,limits",
            ]
            (self.layout.folder / "munge.key").write_bytes(self._accounting.key)
        text = self.conf.read_text().replace("bf_interval=5", "bf_interval=1,bf_continue")
        self.conf.write_text("\n".join([text, *lines, ""]))


def real_cluster(dice: random.Random, number: int) -> RealCluster:
    """A random cluster, the same for the same dice."""
    sockets, cores, has_gpus = dice.choice((1, 2)), dice.choice((4, 6)), dice.random() < 0.75
    nodes = tuple(
        SimulatedNode(
            f"n{at}",
            machine="",
            sockets=sockets,
            cores_per_socket=cores,
            memory_mib=dice.choice((16000, 32000)),
            gpus=(whole_gpus("t4", range(dice.choice((2, 4)))),) if has_gpus else (),
            features=(dice.choice(("old", "new")),),
        )
        for at in range(dice.randint(1, 3))
    )
    names = [node.name for node in nodes]
    partitions = ["p", *("q", "r")[: dice.choice((0, 1, 1, 2))]]
    conf = [dice.choice(OF_SITE)]
    for partition in partitions:
        members = names if partition == "p" else sorted(dice.sample(names, dice.randint(1, len(names))))
        conf.append(
            f"PartitionName={partition} Nodes={','.join(members)} Default={'YES' if partition == 'p' else 'NO'} "
            f"DefaultTime=60 MaxTime=1-0 State=UP PriorityTier={dice.choice((1, 1, 5))} {dice.choice(LIMITS)}"
        )

    def request(partition: str, times: Sequence[int]) -> Resources:
        wanted: dict[str, Any] = {"time": dice.choice(times), "cpus": dice.choice((1, 1, 2, 3, cores + 1))}
        wanted["memory"] = dice.choice((500, 500, 2000, 8000, 0))
        if has_gpus and dice.random() < 0.6:
            wanted["gpus"] = dice.choice((1, 1, 2, 4))
        if dice.random() < 0.15:
            wanted["exclusive"] = True
        if dice.random() < 0.15:
            wanted["nodes"] = 2
        if dice.random() < 0.1:
            wanted["constraint"] = dice.choice(("old", "new"))
        return resolved(partition, **wanted)

    before = [request(dice.choice(partitions), (1800, 7200)) for _ in range(dice.randint(0, 5))]
    if dice.random() < 0.4:
        whole: dict[str, Any] = {"exclusive": True, "nodes": len(names), "time": 3600, "memory": 500}
        before.insert(dice.randint(0, len(before)), resolved(dice.choice(partitions), **whole))
    reservation: tuple[str, ...] = ()
    if dice.random() < 0.3:
        whose, starts = dice.choice((OTHERS, OWN)), dice.choice(("now", "now+1hour"))
        flags = dice.choice(("IGNORE_JOBS", "MAINT,IGNORE_JOBS", "IGNORE_JOBS,DAILY"))
        reservation = (f"StartTime={starts}", "Duration=3:00:00", f"Users={whose}", "Nodes=n0", f"Flags={flags}")
    return RealCluster(
        ClusterDescription(nodes, (), name=f"c{number}"),
        tuple(conf),
        tuple(before),
        reservation,
        tuple(request(dice.choice(partitions), (600, 7000, 80000)) for _ in range(REQUESTS)),
        dice.choice(OF_ACCOUNT),
    )


async def compared(
    cluster: RealCluster, folder: Path, accounting: Accounting | None
) -> tuple[list[Verdict], tuple[bool, bool]]:
    """What the form says of each request, and what becomes of it; and of the first one, whether seats says it runs."""
    slurm = RandomSlurm(cluster, folder, accounting)
    await asyncio.to_thread(slurm.start)
    try:
        if accounting is not None:
            for line in (f"account lab {cluster.limit}", f"user {OTHERS} account=lab", f"user {OWN} account=lab"):
                await asyncio.to_thread(slurm.run, "sacctmgr", "-i", "add", *line.split(), timeout=60)
            await asyncio.sleep(1)
        for resources in cluster.before:
            await submitted(slurm, OTHERS, resources)
        if cluster.reservation:
            await asyncio.to_thread(
                slurm.run, "scontrol", "create", "reservation", "ReservationName=r", *cluster.reservation
            )
        await asyncio.sleep(4)
        installation = Installation(bin_dir=slurm.bin_dir, environment=slurm.environment)
        site, first = await read_site(installation), cluster.requests[0]
        seats = await what_runs(
            site, [Request("first", tuple(options(first, "best-effort")), OWN)], at=time.time(), slurm=installation
        )
        client = SlurmClient(installation)
        verdicts = [await verdict(slurm, client, resources, cluster) for resources in cluster.requests]
        return verdicts, (seats.running == 1, verdicts[0].started)
    finally:
        await asyncio.to_thread(slurm.stop)


async def verdict(slurm: PrivateSlurm, client: SlurmClient, resources: Resources, cluster: RealCluster) -> Verdict:
    """What the form says of a request, and what becomes of it."""
    said = availability(resources, await client.snapshot(), now=time.time(), user=OWN)
    job, state, reason = await submitted(slurm, OWN, resources), "", "refused"
    deadline = time.monotonic() + PATIENCE
    while job and state != "RUNNING" and time.monotonic() < deadline:
        await asyncio.sleep(0.3)
        shown = await asyncio.to_thread(slurm.run, "squeue", "-h", "-j", job, "-o", "%T|%r")
        state, _, reason = shown.partition("|")
    if job:
        await asyncio.to_thread(slurm.run, "scancel", job)
        for _ in range(100):
            if not await asyncio.to_thread(slurm.run, "squeue", "-h", "-j", job, "-t", "R,PD,CG", "-o", "%i"):
                break
            await asyncio.sleep(0.3)
    job_options, before = options(resources, "best-effort"), [options(one, "best-effort") for one in cluster.before]
    text = f"{said.sentence} / {state} {reason}: {job_options} {cluster.conf} {before} {cluster.reservation}"
    return Verdict(said.chance, state == "RUNNING", reason, text)


async def submitted(slurm: PrivateSlurm, user: str, resources: Resources) -> str:
    """The id of a job of this user; empty if sbatch refuses it."""
    fixed = ("--parsable", f"--uid={user}", "--output=/dev/null", "--chdir=/", "--wrap=sleep 3000")
    try:
        return await asyncio.to_thread(slurm.run, "sbatch", *fixed, *options(resources, "best-effort"))
    except SlurmFailed:
        return ""


async def real(count: int, seed: int, folder: Path) -> tuple[list[Verdict], list[tuple[bool, bool]]]:
    """The verdicts of so many clusters, and what seats says of each first request."""
    places = asyncio.Semaphore(AT_ONCE)
    with slurmdbd(folder / "db") if count > 2 else nullcontext() as accounting:

        async def one(number: int) -> tuple[list[Verdict], tuple[bool, bool]]:
            cluster = real_cluster(random.Random(f"{seed} {number}"), number)
            async with places:
                return await compared(cluster, folder / f"c{number}", accounting if number % 3 == 2 else None)

        found = await asyncio.gather(*(one(number) for number in range(count)), return_exceptions=True)
    for failed in (one for one in found if isinstance(one, BaseException)):
        print(f"A cluster is left out: {failed!r}", flush=True)
    whole = [one for one in found if not isinstance(one, BaseException)]
    return [verdict for verdicts_, _ in whole for verdict in verdicts_], [seats for _, seats in whole]


def rows_of_oracle(count: int, seed: int) -> Iterator[str]:
    """A row for each thing that the form says, against Slurm's scheduler."""

    async def judged(of_site: str, batch: Sequence[Case]) -> list[tuple[Chance, Chance, Case]]:
        try:
            return await verdicts_of(of_site, batch)
        except TwinFailed:  # slurmctld 24.11.5 may crash in its backfill scheduler
            half = len(batch) // 2
            return [*await judged(of_site, batch[:half]), *await judged(of_site, batch[half:])] if half else []

    async def of_one(of_site: str) -> list[tuple[Chance, Chance, Case]]:
        of_all = cases(seed, -(-count // len(SITES)), of_site)
        batches = [of_all[at : at + CLUSTERS_PER_TWIN] for at in range(0, len(of_all), CLUSTERS_PER_TWIN)]
        return [one for batch in batches for one in await judged(of_site, batch)]

    async def all_of_them() -> Counter[tuple[Chance, Chance, bool]]:
        groups = await asyncio.gather(*map(of_one, SITES))
        return Counter((form, slurm, agree(form, slurm, case)) for group in groups for form, slurm, case in group)

    found = asyncio.run(all_of_them())
    crashed = -(-count // len(SITES)) * len(SITES) - sum(found.values())
    if crashed:
        yield f"| its scheduler | {crashed} cases are left out, in which slurmctld crashes | | | | |"
    for form in (Chance.NOW, Chance.LATER, Chance.NEVER, Chance.UNKNOWN):
        of = [sum(n for (f, s, _), n in found.items() if (f, s) == (form, slurm)) for slurm in list(Chance)[:3]]
        wrong = sum(n for (f, _, right), n in found.items() if f is form and not right)
        yield f"| its scheduler, {sum(found.values()):,} random cases | {form.value} | {cells(of)} | {wrong} |"


def cells(numbers: Sequence[int]) -> str:
    """Numbers as cells of a table."""
    return " | ".join(f"{number:,}" for number in numbers)


def rows_of_real(found: Sequence[Verdict], seats: Sequence[tuple[bool, bool]], clusters: int) -> Iterator[str]:
    """The same against real jobs, and a row for seats."""
    for form in (Chance.NOW, Chance.LATER, Chance.NEVER, Chance.UNKNOWN):
        of = [verdict for verdict in found if verdict.form is form]
        refused = sum(verdict.reason == "refused" for verdict in of)
        started = sum(verdict.started for verdict in of)
        wrong = [one for one in of if form is Chance.NOW and not one.started and not one.limited]
        limited = sum(one.limited for one in of if form is Chance.NOW)
        wrong += [one for one in of if form is Chance.NEVER and one.started]
        for one in wrong:
            print(f"WRONG {one.form.value}: {one.text}", flush=True)
        note = f"{len(wrong)}" + (f", and {limited} wait for a limit of accounting" if limited else "")
        numbers = cells([started, len(of) - started - refused, refused])
        yield f"| {len(found)} jobs on {clusters} real clusters | {form.value} | {numbers} | {note} |"
    right = sum(said == started for said, started in seats)
    yield f"| the first job of each: seats | right of {right} of {len(seats)} | | | | {len(seats) - right} |"


def page(text: str, section: str) -> str:
    """The page with this section in place of that of the same version."""
    before, *sections = re.split(rf"^(?={re.escape(HEADING)})", text, flags=re.MULTILINE)
    kept = {part.partition("\n")[0]: part.rstrip() for part in sections}
    kept[section.partition("\n")[0]] = section.rstrip()
    return "\n\n".join([before.rstrip(), *(kept[head] for head in sorted(kept)), ""])


def main() -> None:
    """Print the table, and write it if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1020)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines = [f"{HEADING}{slurm_version()}**", "", "| compared with | the form says | starts | waits | never | wrong |"]
    lines += ["|---|---|---|---|---|---|", *(rows_of_oracle(asked.cases, asked.seed) if asked.cases else ())]
    if asked.clusters:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            Path(folder).chmod(0o755)
            found, seats = asyncio.run(real(asked.clusters, asked.seed, Path(folder)))
        lines += rows_of_real(found, seats, len(seats))
    section = "\n".join([*lines, ""])
    print(section)
    if asked.write:
        PAGE.write_text(page(PAGE.read_text("utf-8"), section), "utf-8")


if __name__ == "__main__":
    main()
