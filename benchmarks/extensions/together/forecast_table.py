"""What the form says of a start, compared with Slurm: its scheduler on random clusters, and real ones.

    python -m benchmarks.extensions.together.forecast_table [--cases FIRST:END] [--clusters FIRST:END] [--write]

The cases are those of the oracle (tests/extensions/seats/test_oracle.py), as many of each kind of site. Each real
cluster has one to three nodes in overlapping partitions, jobs of others that run or wait, and perhaps a reservation;
every third one has a slurmdbd, and an account and a QOS with limits. For each of some requests it is noted what the
form and seats say; then it is submitted, and has :data:`PATIENCE` seconds to start. At last each is submitted by
another person, at once, for what seats counts. Root is needed: jobs are submitted as other accounts.

A run adds its figures to :data:`FIGURES`, a line for each batch of cases and for each cluster, and takes the place of
those of the same numbers; ``--write`` writes docs/explanation/forecast-table.md from all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
FIGURES = Path(__file__).with_suffix(".jsonl")
PATIENCE = 5.0
"""Seconds that a job has to start."""
AT_ONCE = 4
"""Clusters that run at the same time."""
OTHERS, OWN = "daemon", "games"
PEOPLE = ("bin", "sys", "man", "lp", OWN)
"""Those who submit a cluster's requests at once. All are accounts that every Linux has."""
LIMITS = ("", "", "", "MaxCPUsPerNode=4", "MaxNodes=1", "OverSubscribe=EXCLUSIVE", "ExclusiveUser=YES", "LLN=YES")
OF_SITE = ("", "", "", "MaxMemPerCPU=3000", "MaxMemPerNode=9000")
OF_ACCOUNT = ("", "GrpTRES=cpu=4", "GrpJobs=2", "MaxJobs=1", "MaxTRES=cpu=3", "GrpTRES=gres/gpu=2", "MaxWall=01:00:00")
OF_QOS = ("", "MaxTRESPerUser=cpu=3", "MaxJobsPerUser=1", "MaxWall=01:00:00", "GrpTRES=cpu=6", "MaxTRESPerJob=cpu=2")


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
    limits: tuple[str, str]
    """Of the account and of the QOS."""


@dataclass(frozen=True)
class Verdict:
    """What was said of a request, and what became of it."""

    form: Chance
    seats: bool
    """Whether seats says that it runs."""
    reason: str
    """Why it waits; ``refused`` by sbatch, and empty if it started."""
    text: str

    @property
    def outcome(self) -> str:
        """What became of it, as a column of the table."""
        if self.reason.startswith(("Assoc", "QOS")):
            return "limited"
        return {"": "starts", "refused": "never"}.get(self.reason, "waits")

    def is_wrong(self, has_accounting: bool) -> bool:
        """Whether Slurm contradicts the form. Of accounting's limits the form knows nothing."""
        wrong = {Chance.NOW: ("waits", "never", *(() if has_accounting else ("limited",))), Chance.NEVER: ("starts",)}
        return self.outcome in wrong.get(self.form, ())


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
                "AccountingStorageEnforce=associations,limits,qos",
                "AccountingStorageTRES=gres/gpu",
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
        tuple(request(dice.choice(partitions), (600, 7000, 80000)) for _ in PEOPLE),
        (dice.choice(OF_ACCOUNT), dice.choice(OF_QOS)),
    )


async def compared(
    cluster: RealCluster, folder: Path, accounting: Accounting | None, starting: asyncio.Lock
) -> tuple[list[Verdict], int, int]:
    """What is said of each request, and what becomes of it; how many run at once, as seats says and in truth.

    One cluster starts at a time: two may take the same port, and slurmdbd fails to add the accounts of two.
    """
    slurm = RandomSlurm(cluster, folder, accounting)
    try:
        async with starting:
            await asyncio.to_thread(slurm.start)
            for line in accounts(cluster) if accounting is not None else ():
                await asyncio.to_thread(slurm.run, "sacctmgr", "-i", "add", *line.split(), timeout=60)
        await asyncio.sleep(2 if accounting is not None else 0)
        for resources in cluster.before:
            await submitted(slurm, OTHERS, resources)
        if cluster.reservation:
            await asyncio.to_thread(
                slurm.run, "scontrol", "create", "reservation", "ReservationName=r", *cluster.reservation
            )
        await asyncio.sleep(4)
        verdicts = [await verdict(slurm, resources, cluster) for resources in cluster.requests]
        return verdicts, await seats(slurm, PEOPLE, cluster.requests), await run_at_once(slurm, cluster)
    finally:
        await asyncio.to_thread(slurm.stop)


def accounts(cluster: RealCluster) -> Iterator[str]:
    """What is added to slurmdbd for a cluster; all clusters share it."""
    name, (of_account, of_qos) = cluster.description.name, cluster.limits
    yield f"qos {name} {of_qos}"
    yield f"account {name} cluster={name} {of_account}"
    for user in (OTHERS, *PEOPLE):
        yield f"user {user} account={name} cluster={name} qos={name} defaultqos={name} defaultaccount={name}"


async def seats(slurm: PrivateSlurm, people: Sequence[str], requests: Sequence[Resources]) -> int:
    """How many of these requests, of these people, run at once, as seats says."""
    installation = Installation(bin_dir=slurm.bin_dir, environment=slurm.environment)
    all_of = [
        Request(user, tuple(options(one, "best-effort")), user) for user, one in zip(people, requests, strict=True)
    ]
    return (await what_runs(await read_site(installation), all_of, at=time.time(), slurm=installation)).running


async def run_at_once(slurm: PrivateSlurm, cluster: RealCluster) -> int:
    """How many of a cluster's requests run that people submit at once."""
    all_of = zip(PEOPLE, cluster.requests, strict=True)
    jobs = [job for user, resources in all_of if (job := await submitted(slurm, user, resources))]
    if not jobs:
        return 0
    await asyncio.sleep(PATIENCE)
    shown = await asyncio.to_thread(slurm.run, "squeue", "-h", "-j", ",".join(jobs), "-t", "R,CG", "-o", "%i")
    return len(shown.split())


async def verdict(slurm: PrivateSlurm, resources: Resources, cluster: RealCluster) -> Verdict:
    """What is said of a request, and what becomes of it."""
    client = SlurmClient(Installation(bin_dir=slurm.bin_dir, environment=slurm.environment))
    said = availability(resources, await client.snapshot(), now=time.time(), user=OWN)
    runs = await seats(slurm, [OWN], [resources]) == 1
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
    job_options, before = texts([resources]), texts(cluster.before)
    text = f"{cluster.description.name}: {said.sentence} / {state} {reason}: {job_options}"
    site = f"{cluster.conf} {before} {cluster.reservation} {cluster.limits}"
    return Verdict(said.chance, runs, "" if state == "RUNNING" else reason, f"{text} {site}")


def texts(requests: Sequence[Resources]) -> list[str]:
    """What sbatch is given for each of these requests."""
    return [" ".join(options(resources, "best-effort")) for resources in requests]


async def submitted(slurm: PrivateSlurm, user: str, resources: Resources) -> str:
    """The id of a job of this user; empty if sbatch refuses it."""
    fixed = ("--parsable", f"--uid={user}", "--output=/dev/null", "--chdir=/", "--wrap=sleep 3000")
    try:
        return await asyncio.to_thread(slurm.run, "sbatch", *fixed, *options(resources, "best-effort"))
    except SlurmFailed:
        return ""


# --- figures ---------------------------------------------------------------------------------------


async def figures_of_clusters(numbers: Sequence[int], seed: int, folder: Path) -> list[dict[str, Any]]:
    """A line of figures for each of these clusters; one that did not work has the reason."""
    places, starting = asyncio.Semaphore(AT_ONCE), asyncio.Lock()
    accounted = [number for number in numbers if number % 3 == 2]
    with slurmdbd(folder / "db") if accounted else nullcontext() as accounting:

        async def one(number: int) -> dict[str, Any]:
            cluster = real_cluster(random.Random(f"{seed} {number}"), number)
            figures: dict[str, Any] = {
                "of": "clusters",
                "seed": seed,
                "first": number,
                "accounting": number in accounted,
            }
            try:
                async with places:
                    database = accounting if number in accounted else None
                    found = await compared(cluster, folder / f"c{number}", database, starting)
            except (SlurmFailed, TwinFailed) as error:
                print(f"LEFT OUT c{number}: {error}", flush=True)
                return figures | {"left_out": str(error).partition("\n")[0]}
            return figures | of_cluster(*found, has_accounting=number in accounted)

        return list(await asyncio.gather(*map(one, numbers)))


def of_cluster(found: Sequence[Verdict], counted: int, ran: int, *, has_accounting: bool) -> dict[str, Any]:
    """The figures of a cluster's requests. What is wrong is printed."""
    wrong = [one for one in found if one.is_wrong(has_accounting)]
    seats_wrong = [one for one in found if one.seats != (one.outcome == "starts")]
    for one in wrong:
        print(f"WRONG {one.form.value}: {one.text}", flush=True)
    for one in seats_wrong:
        print(f"WRONG seats, {one.seats}: {one.text}", flush=True)
    if counted != ran:
        print(f"WRONG at once: {counted}, in truth {ran}: {[one.text for one in found]}", flush=True)
    return {
        "said": Counter(f"{one.form.value} {one.outcome}" for one in found),
        "wrong": Counter(one.form.value for one in wrong),
        "seats": [len(found) - len(seats_wrong), len(found)],
        "at_once": [int(counted == ran), 1],
    }


def figures_of_cases(numbers: tuple[int, int], seed: int) -> Iterator[dict[str, Any]]:
    """A line of figures for each batch of the oracle's cases."""

    async def judged(of_site: str, batch: Sequence[Case]) -> tuple[list[tuple[Chance, Chance, Case]], Counter[str]]:
        """The verdicts, and why cases have none: one case of which a twin fails is found by halves."""
        try:
            return await verdicts_of(of_site, batch), Counter()
        except TwinFailed as error:
            if len(batch) == 1:
                print(f"LEFT OUT {batch[0]}: {error}", flush=True)
                return [], Counter([str(error).partition("\n")[0]])
            half = len(batch) // 2
            before, after = await judged(of_site, batch[:half]), await judged(of_site, batch[half:])
            return [*before[0], *after[0]], before[1] + after[1]

    async def of_one(of_site: str) -> list[dict[str, Any]]:
        (first, end), lines = numbers, list[dict[str, Any]]()
        of_all = cases(seed, end, of_site)
        for at in range(first, end, CLUSTERS_PER_TWIN):
            found, left_out = await judged(of_site, of_all[at : min(end, at + CLUSTERS_PER_TWIN)])
            wrong = [(form, slurm, case) for form, slurm, case in found if not agree(form, slurm, case)]
            for form, slurm, case in wrong:
                print(f"WRONG {form.value}, Slurm {slurm.value}: {case}", flush=True)
            words = {Chance.NOW: "starts", Chance.LATER: "waits", Chance.NEVER: "never"}
            lines.append(
                {"of": "cases", "site": of_site, "seed": seed, "first": at}
                | {"said": Counter(f"{form.value} {words[slurm]}" for form, slurm, _ in found)}
                | {"wrong": Counter(form.value for form, _, _ in wrong), "left_out": left_out}
            )
        return lines

    async def all_of_them() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*map(of_one, SITES))

    return (line for lines in asyncio.run(all_of_them()) for line in lines)


# --- the page --------------------------------------------------------------------------------------


def rows(lines: Sequence[Mapping[str, Any]], subject: str) -> Iterator[str]:
    """A row for each thing that the form says."""
    said: Counter[str] = sum((Counter(line.get("said", {})) for line in lines), Counter())
    wrong: Counter[str] = sum((Counter(line.get("wrong", {})) for line in lines), Counter())
    for form in (Chance.NOW, Chance.LATER, Chance.NEVER, Chance.UNKNOWN):
        numbers = [said[f"{form.value} {outcome}"] for outcome in ("starts", "waits", "limited", "never")]
        yield f"| {subject} | {form.value} | {cells(numbers)} | {wrong[form.value]:,} |"


def cells(numbers: Sequence[int]) -> str:
    """Numbers as cells of a table."""
    return " | ".join(f"{number:,}" for number in numbers)


def section(version: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The part of the page about a version of Slurm."""
    yield from (f"**Slurm {version}**", "")
    yield "| compared with | the form says | starts | waits | waits for a limit | never | wrong |"
    yield "|---|---|---|---|---|---|---|"
    of_cases = [line for line in lines if line["of"] == "cases"]
    clusters = [line for line in lines if line["of"] == "clusters"]
    count = sum(sum(line["said"].values()) for line in of_cases)
    if of_cases:
        yield from rows(of_cases, f"its scheduler, {count:,} random cases")
    for has_accounting in (False, True):
        of = [line for line in clusters if line["accounting"] == has_accounting and "said" in line]
        if not of:
            continue
        jobs = sum(sum(line["said"].values()) for line in of)
        yield from rows(of, f"{jobs} jobs on {len(of)} real clusters{', with limits' if has_accounting else ''}")
        for field, subject in (("seats", "seats: a job each"), ("at_once", "seats: all of a cluster at once")):
            right, all_of = (sum(line[field][at] for line in of) for at in (0, 1))
            yield f"| {subject} | right of {right} of {all_of} | | | | | {all_of - right} |"
    left_out = sum((Counter(line["left_out"]) for line in of_cases), Counter[str]())
    left_out.update(line["left_out"] for line in clusters if "left_out" in line)
    for reason, number in sorted(left_out.items()):
        yield f"| left out: {reason} | {number} | | | | | |"


def page(text: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """The page with the figures of these lines."""
    parts = [text.partition("**Slurm ")[0].rstrip()]
    for version in sorted({str(line["slurm"]) for line in lines}):
        parts.append("\n".join(section(version, [line for line in lines if line["slurm"] == version])))
    return "\n\n".join([*parts, ""])


def key(line: Mapping[str, Any]) -> tuple[str, ...]:
    """What a line of figures is about."""
    return (*(str(line.get(name, "")) for name in ("slurm", "of", "site", "seed")), f"{line['first']:06}")


def span(text: str) -> tuple[int, int]:
    """``FIRST:END``, or ``END``."""
    first, _, end = text.rpartition(":")
    return int(first or 0), int(end)


def main() -> None:
    """Add the figures of a run, and write the page if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=span, default=(0, 0), help="of each kind of site")
    parser.add_argument("--clusters", type=span, default=(0, 0))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    made = list(figures_of_cases(asked.cases, asked.seed)) if asked.cases[1] else []
    if asked.clusters[1]:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            Path(folder).chmod(0o755)
            made += asyncio.run(figures_of_clusters(range(*asked.clusters), asked.seed, Path(folder)))
    before = [json.loads(line) for line in FIGURES.read_text("utf-8").splitlines()] if FIGURES.exists() else []
    lines = {key(line): line for line in (*before, *({"slurm": slurm_version()} | line for line in made))}
    in_order = [lines[at] for at in sorted(lines)]
    FIGURES.write_text("".join(f"{json.dumps(line)}\n" for line in in_order), "utf-8")
    if asked.write:
        PAGE.write_text(page(PAGE.read_text("utf-8"), in_order), "utf-8")


if __name__ == "__main__":
    main()
