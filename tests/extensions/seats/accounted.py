"""Sites with a real slurmctld and slurmdbd, whose limits, jobs and people are random: what seats says, what Slurm does.

A site's nodes exist in slurm.conf alone (``State=CLOUD``): a job that gets its resources stays CONFIGURING with them.
The people are accounts that every Linux has.
"""

from __future__ import annotations

import os
import pwd
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from jupyterhub_gpuspawner.extensions.seats.site import Request
from jupyterhub_gpuspawner.extensions.seats.twin import read_site, what_runs
from jupyterhub_gpuspawner.slurm.commands import Installation
from tests.fixtures.accounting import Accounting

NAMES = ("daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup")
PEOPLE = [name for name in NAMES if any(entry.pw_name == name for entry in pwd.getpwall())]
TIME = "--time=60"
CLUSTER = "seats"

CONF = """
ClusterName={cluster}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ResumeProgram=/bin/true
SuspendProgram=/bin/true
ResumeTimeout=7200
SuspendTime=100000
ResumeRate=0
TreeWidth=65533
SchedulerParameters=sched_interval=1,default_queue_depth=1000,batch_sched_delay=0,bf_interval=1,bf_continue
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
PrivateData=cloud
"""
ACCOUNTED = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={munge}
AccountingStorageTRES=gres/gpu,gres/gpu:k80
"""


@dataclass(frozen=True)
class Site:
    """A random site: everything that is written into files, or typed."""

    name: str
    conf: tuple[str, ...]
    """Lines of slurm.conf."""
    accounts: tuple[str, ...] = ()
    """Lines of sacctmgr; none without accounting."""
    before: tuple[tuple[str, str], ...] = ()
    """Jobs of others: who, and sbatch's options."""
    people: tuple[str, ...] = ()
    options: str = ""
    """Those of each person's job."""
    needs: str = ""
    """What it is about, for the report."""


@dataclass
class Real:
    """A slurmctld that runs."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str, stdin: str | None = None, check: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def submit(self, user: str, options: str) -> str:
        """The id of a job of this user; empty if sbatch refuses it."""
        job = f"{self.folder}/job"
        done = subprocess.run(
            ["sbatch", "--parsable", f"--uid={user}", "--output=/dev/null", *options.split(), job],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def settled(self) -> None:
        """Wait until both schedulers have run twice more."""
        begin, deadline = self._cycles(), time.monotonic() + 20
        while min(now - then for now, then in zip(self._cycles(), begin, strict=True)) < 2:
            if time.monotonic() > deadline or not self.run("squeue", "-h", "-t", "PD"):
                time.sleep(1.2)
                return
            time.sleep(0.2)

    def considered(self) -> None:
        """Wait until each job runs, or has a reason why it does not."""
        deadline = time.monotonic() + 20
        while "None" in self.states().values() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _cycles(self) -> list[int]:
        lines = [line for line in self.run("sdiag").splitlines() if "Total cycles:" in line]
        return [int(line.split(":")[1]) for line in lines[:2]]

    def states(self) -> dict[str, str]:
        """The state of each job, or the reason why it waits."""
        rows = (line.split("|") for line in self.run("squeue", "-h", "-o", "%i|%T|%r").splitlines())
        return {job: reason if state == "PENDING" else state for job, state, reason in rows}


@contextmanager
def real(site: Site, folder: Path, accounting: Accounting | None, munge: Path) -> Iterator[Real]:
    """The site's slurmctld; ``munge`` is the socket of a munged, which is slurmdbd's where there is one."""
    folder.mkdir()
    (folder / "state").mkdir()
    (folder / "job").write_text("#!/bin/sh\n")
    lines = [CONF.format(cluster=CLUSTER, port=free_ports(1)[0], munge=munge, folder=folder)]
    if accounting is not None and site.accounts:
        lines.append(ACCOUNTED.format(port=accounting.port, munge=munge))
    (folder / "slurm.conf").write_text("\n".join([*lines, *site.conf, ""]))
    (folder / "gres.conf").write_text("AutoDetect=off\nName=gpu Type=k80 File=/dev/nvidia[0-3]\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    here = Real(folder, {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "LANG": "C.UTF-8"})
    if accounting is not None and site.accounts:
        here.run("sacctmgr", "-i", stdin="\n".join([*site.accounts, ""]), check=False)
    with (folder / "out").open("wb") as output:
        daemon = subprocess.Popen(
            ["slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf"],
            env=here.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 30
        while "is UP" not in here.run("scontrol", "ping", check=False):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((folder / "out").read_text()[-2000:])
            time.sleep(0.1)
        yield here
    finally:
        daemon.kill()
        daemon.wait()


# --- random sites ---------------------------------------------------------------------------------------------------


def sites(seed: int, count: int, *, accounted: bool) -> list[Site]:
    """So many, the same for the same seed."""
    return [
        _site(random.Random(f"{seed} {number} {accounted}"), number, accounted=accounted) for number in range(count)
    ]


def _site(rng: random.Random, number: int, *, accounted: bool) -> Site:
    nodes, sockets, cores = rng.randint(1, 3), rng.choice((1, 2)), rng.choice((8, 12))
    if accounted:  # room for most people, so that limits decide
        nodes, sockets = 3, 2
    gpus, cpus = rng.choice((0, 1, 1, 1, 2)), rng.choice((1, 2, 2, 4))
    people = tuple(rng.sample(PEOPLE[2:], rng.randint(3, min(10, len(PEOPLE) - 2))))
    memory = rng.choice((1000, 2000, 6000))
    wide = rng.random() < 0.1 and nodes > 1
    account = f"case{number}"
    options = [f"--cpus-per-task={cpus}", f"--mem={memory}", TIME]
    options += [f"--gres=gpu:{gpus}"] if gpus else []
    options += ["--nodes=2"] if wide else []
    conf = [
        f"NodeName=g[1-{nodes}] Sockets={sockets} CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=64000 "
        "Gres=gpu:k80:4 NodeAddr=127.0.0.1 Port=1 State=CLOUD"
    ]
    lines: list[str] = []
    qos_of_partition, about, flags = "", list[str](), ["associations", "limits", "qos"]
    if accounted:
        lines, qos_of_partition, about = _limits(rng, account, people, cpus, gpus, memory, len(people))
        if rng.random() < 0.25:
            flags.append("safe")
        if any("qos=asked" in line for line in lines):
            options.append(f"--qos=asked{number}")
            lines = [line.replace("qos=asked", f"qos=normal,asked{number}") for line in lines]
        lines = [line.replace("QOSNAME", str(number)) for line in lines]
        conf.append(f"AccountingStorageEnforce={','.join(flags)}")
        ranks = random.Random(f"priority {number}")
        if ranks.random() < 0.5:
            conf += ["PriorityType=priority/multifactor", "PriorityWeightQOS=1000", "PriorityWeightAge=0"]
            first = "Priority=10 " if ranks.random() < 0.7 else ""
            lines = [f"{line} {first}" if line.startswith("add qos asked") else line for line in lines]
        options.append(f"--account={account}b")
    weights = " TRESBillingWeights=CPU=1.0,Mem=0.5G,GRES/gpu=4.0" if rng.random() < 0.3 and accounted else ""
    partition_qos = f" QoS={qos_of_partition.replace('QOSNAME', str(number))}" if qos_of_partition else ""
    conf.append(
        f"PartitionName=gpu Nodes=g[1-{nodes}] Default=YES DefaultTime=60 MaxTime=1-0 State=UP{weights}{partition_qos}"
    )
    before = []
    other = PEOPLE[0] if rng.random() < 0.5 else PEOPLE[1]
    charged = f"--account={account}{'b' if other == PEOPLE[0] else 'c'} " if accounted else ""
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        more = rng.choice((f"--gres=gpu:{rng.randint(1, 2)}", ""))
        length = rng.choice((20, 600))
        before.append((other, f"{charged}--cpus-per-task={rng.randint(1, 4)} --mem=1000 {more} --time={length}"))
    if rng.random() < (0.3 if accounted else 0.7):
        more = rng.choice(("--exclusive", "--gres=gpu:4", f"--cpus-per-task={sockets * cores}", "--mem=63000"))
        spread = f"--nodes={rng.randint(1, max(1, nodes - accounted))}"
        length = rng.choice((30, 600))
        before += [(other, f"{charged}{spread} {more} --time={length}")] * rng.randint(1, nodes + 1 - accounted)
        about.append("waiting")
    return Site(f"{number}", tuple(conf), tuple(lines), tuple(before), people, " ".join(options), ", ".join(about))


def _limits(
    rng: random.Random, account: str, people: Sequence[str], cpus: int, gpus: int, memory: int, number: int
) -> tuple[list[str], str, list[str]]:
    """Lines of sacctmgr, the partition's QOS, and what they limit."""
    some = rng.randint(1, number - 1)  # so many people may, by a limit that they share
    minutes = 60
    tight = int(rng.random() < 0.25)
    shared = {
        "GrpJobs": some,
        "GrpSubmitJobs": some,
        "GrpTRES": rng.choice(
            (
                f"cpu={some * cpus}",
                f"mem={some * memory}",
                f"gres/gpu={some * max(1, gpus)}",
                f"node={rng.randint(1, 2)}",
                f"billing={some * cpus}",
                f"gres/gpu:k80={some * max(1, gpus)}",
            )
        ),
        "GrpTRESMins": f"cpu={some * cpus * minutes}",
        "GrpTRESRunMins": rng.choice((f"cpu={some * cpus * minutes}", f"gres/gpu={some * max(1, gpus) * minutes}")),
    }
    each = {
        "MaxJobs": rng.choice((1, 2)),
        "MaxSubmitJobs": 1,
        "MaxTRES": rng.choice((f"cpu={cpus - tight}", f"gres/gpu={max(0, gpus - tight)}", f"mem={memory - tight}")),
        "MaxTRESPerNode": rng.choice((f"cpu={cpus - tight}", f"gres/gpu={max(0, gpus - tight)}")),
        "MaxTRESMins": f"cpu={cpus * minutes - tight}",
        "MaxWall": minutes - tight * 30,
    }
    of_qos = {
        **shared,
        "MaxJobsPerUser": 1,
        "MaxJobsPerAccount": some,
        "MaxSubmitJobsPerUser": 1,
        "MaxSubmitJobsPerAccount": some,
        "MaxTRESPerUser": rng.choice((f"cpu={cpus - tight}", f"gres/gpu={max(0, gpus - tight)}")),
        "MaxTRESPerAccount": rng.choice((f"cpu={some * cpus}", f"gres/gpu={some * max(1, gpus)}")),
        "MaxTRES": each["MaxTRES"],
        "MaxTRESPerNode": each["MaxTRESPerNode"],
        "MaxTRESMins": each["MaxTRESMins"],
        "MaxWall": each["MaxWall"],
        "MinTRES": rng.choice((f"cpu={cpus + tight}", f"gres/gpu={gpus + tight}")),
    }

    def pick(kinds: dict[str, object], most: int) -> str:
        chosen = rng.sample(sorted(kinds), rng.randint(0, most))
        about.extend(chosen)
        return " ".join(f"{kind}={kinds[kind]}" for kind in chosen)

    about: list[str] = []
    top, low = pick({**shared, **each}, 1), pick(shared, 2)
    lines = [
        f"add account {account}a {top}",
        f"add account {account}b parent={account}a {low}",
        f"add account {account}c",
    ]
    kind = rng.choice(("none", "asked", "partition", "both"))
    flag = rng.choice(("", "", "flags=DenyOnLimit", "flags=OverPartQOS", "flags=NoReserve"))
    if kind in ("asked", "both"):
        lines.append(f"add qos askedQOSNAME {pick(dict(of_qos), 2)} {flag}")
    if kind in ("partition", "both"):
        lines.append(f"add qos partQOSNAME {pick(dict(of_qos), 2)}")
    qos = " qos=asked" if kind in ("asked", "both") else ""
    for person in people:
        own = pick({**shared, **each}, 1) if rng.random() < 0.2 else ""
        where = " partition=gpu" if rng.random() < 0.15 else ""
        lines.append(f"add user {person} account={account}b{where}{qos} {own}")
    lines += [f"add user {PEOPLE[0]} account={account}b", f"add user {PEOPLE[1]} account={account}c"]
    return lines, "partQOSNAME" if kind in ("partition", "both") else "", about


# --- what seats says, and what Slurm does ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Who of a site's people starts: what seats says, and what Slurm does."""

    site: Site
    said: tuple[str, ...]
    """For each of them ``RUNS``, or why not."""
    seen: tuple[str, ...]
    """For each of them ``RUNS``, the reason why it waits, or ``refused``."""
    notes: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether the same people start."""
        return [word == RUNS for word in self.said] == [word == RUNS for word in self.seen]

    def __str__(self) -> str:
        lines = [
            f"site {self.site.name} ({self.site.needs}): {self.said.count(RUNS)} said, {self.seen.count(RUNS)} seen"
        ]
        lines += [*self.site.conf, *self.site.accounts, *map(str, self.site.before), self.site.options]
        lines += [
            f"{name}: {said}; {seen}" for name, said, seen in zip(self.site.people, self.said, self.seen, strict=True)
        ]
        return "\n  ".join([*lines, *self.notes])


RUNS = "RUNS"


async def compare(site: Site, folder: Path, accounting: Accounting | None, munge: Path) -> Compared:
    """Ask seats about a site, and then let its people submit their jobs."""
    with real(site, folder, accounting, munge) as here:
        for user, options in site.before:
            here.submit(user, options)
        here.considered()
        kept = {name: os.environ.get(name) for name in ("SLURM_CONF", "SLURM_TIME_FORMAT")}
        os.environ.update(SLURM_CONF=here.environment["SLURM_CONF"])
        try:
            slurm = Installation()
            read = await read_site(slurm)
            requests = [Request(name, tuple(site.options.split()), name) for name in site.people]
            answers = await what_runs(read, requests, at=time.time(), slurm=slurm)
        finally:
            for name, value in kept.items():
                os.environ.pop(name, None)
                os.environ.update({name: value} if value is not None else {})
        jobs = [here.submit(name, site.options) for name in site.people]
        here.settled()
        states = here.states()
    said = tuple(RUNS if answer.runs else answer.reason or f"refused {answer.refusal}" for answer in answers.answers)
    words = {"CONFIGURING": RUNS, "RUNNING": RUNS}
    seen = tuple(words.get(states.get(job, ""), states.get(job, "")) if job else "refused" for job in jobs)
    return Compared(site, said, seen, (*answers.notes, *answers.not_counted))
