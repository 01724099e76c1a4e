"""The faults of a soak: each begins, lasts a while and ends, while users start and stop servers."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm, SlurmFailed
from tests.fixtures.postgres import PrivatePostgres
from tests.hub.commands import NAMES, commands

UNHEARD = (SlurmFailed, subprocess.TimeoutExpired)
MOOD = """
case "$(cat FOLDER/mood 2>/dev/null)" in
    slow) sleep "$((RANDOM % 30)).5e-1"; "$real" "$@"; status=$?; sleep "$((RANDOM % 20)).5e-1"; exit $status ;;
    dead) sleep 0.2; echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2; exit 1 ;;
    garbage) echo "?|?|?" ;;
    *) exec "$real" "$@" ;;
esac
"""


@dataclass(frozen=True)
class Fault:
    """One kind of fault; while ``begin`` and ``end`` run, the rest of the soak is paused."""

    name: str
    weight: int
    seconds: tuple[float, float]
    """Its minimum and maximum duration, in seconds."""
    begin: Callable[[], None]
    end: Callable[[], None]


class World:
    """Hub and Slurm, and the faults that can be produced."""

    def __init__(
        self, slurm: PrivateSlurm, folder: Path, dice: random.Random, postgres: PrivatePostgres | None = None
    ) -> None:
        self.slurm = slurm
        self.dice = dice
        self.postgres = postgres
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        """What happened during a fault although it must never happen, as sentences."""
        first = dice.randrange(20000, 31850)
        self.ports = (first, first + 149)
        """Of the servers; below the range for outgoing connections."""
        self._strangers: set[str] = set()
        self._lock: sqlite3.Connection | None = None
        self._hub_folder = folder / "hub"
        self._mood = folder / "mood"
        self.bin_dir = commands(
            folder / "bin", slurm.bin_dir, {name: MOOD.replace("FOLDER", str(folder)) for name in NAMES}
        )
        self._node = ""

    def faults(self, hub: HubProcess) -> list[Fault]:
        """All kinds of faults."""
        database = (
            [
                Fault("Postgres restarted", 4, (0.5, 8.0), self.postgres.stop, self.postgres.start),
                Fault("Postgres hangs", 2, (1.0, 6.0), self.postgres.hang, self.postgres.go_on),
            ]
            if self.postgres is not None
            else [Fault("sqlite locked", 4, (1.0, 8.0), self._lock_database, self._unlock_database)]
        )
        return [
            *database,
            Fault("state of slurmctld lost", 2, (1.0, 6.0), self._lose_state, self._begin_anew),
            Fault("hub killed (-9)", 4, (0.0, 6.0), hub.kill, hub.start),
            Fault("slurmctld hangs", 3, (2.0, 15.0), self._hang, self._go_on),
            Fault("slurmctld down", 2, (2.0, 15.0), self.slurm.stop_controller, self.slurm.start_controller),
            Fault("commands slow (0.05 to 5 s)", 3, (5.0, 20.0), lambda: self._feel("slow"), lambda: self._feel("")),
            Fault("commands fail", 2, (3.0, 12.0), lambda: self._feel("dead"), lambda: self._feel("")),
            Fault("commands answer garbage", 1, (3.0, 8.0), lambda: self._feel("garbage"), lambda: self._feel("")),
            Fault("node down", 2, (3.0, 10.0), self._take_down, self._resume),
            Fault("scancel from outside", 5, (0.0, 0.5), self._cancel_one, lambda: None),
            Fault("requeue", 1, (0.0, 0.5), self._requeue_one, lambda: None),
            Fault("suspended and resumed", 1, (1.0, 5.0), self._suspend_all, self._resume_all),
        ]

    def jobs(self) -> dict[str, str]:
        """The comments of the servers' pending and running jobs, by id."""
        listing = self.slurm.run("squeue", "-h", "-t", "PD,CF,R,S", "-O", "JobID:|,Comment:")
        rows = (line.strip().partition("|") for line in listing.splitlines())
        return {job: comment for job, _, comment in rows if comment.startswith("jupyterhub-gpuspawner/")}

    def _lock_database(self) -> None:
        self._lock = sqlite3.connect(self._hub_folder / "hub.sqlite", isolation_level=None, timeout=20)
        with suppress(sqlite3.OperationalError):  # another transaction is writing
            self._lock.execute("BEGIN EXCLUSIVE")

    def _unlock_database(self) -> None:
        assert self._lock is not None
        self._lock.close()

    def _lose_state(self) -> None:
        self.check_strangers()
        with suppress(*UNHEARD):
            self.count["state lost: jobs of servers lost with it"] += len(self.jobs())
        self.slurm.stop_controller()
        for path in (self.slurm.layout.folder / "state").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._strangers.clear()

    def _begin_anew(self) -> None:
        """Job ids start over, and the first ones go to an unrelated user."""
        self.slurm.start_controller(nodes=False)
        words = ["--parsable", "-p", "batch", "--mem=10M", "--output=/dev/null", "--wrap=sleep 100", "--chdir=/"]
        if os.geteuid() == 0:
            words += [f"--uid={pwd.getpwnam('nobody').pw_uid}"]
        for _ in range(self.dice.randrange(5, 30)):
            with suppress(*UNHEARD):
                self._strangers.add(self.slurm.run("sbatch", *words))
        self.count["state lost: jobs of strangers after it"] += len(self._strangers)

    def check_strangers(self) -> None:
        """Count the unrelated jobs that have been cancelled; only the hub could have done it."""
        with suppress(*UNHEARD):
            job_ids = self.slurm.run("squeue", "-h", "-t", "CA", "-o", "%i").split()
            cancelled = self._strangers & set(job_ids)
            self._strangers -= cancelled
            self.count["state lost: jobs of strangers cancelled"] += len(cancelled)
            self.wrong += [f"Job {job}, a stranger's, was cancelled." for job in sorted(cancelled)]

    def _feel(self, mood: str) -> None:
        part = self._mood.with_suffix(".part")
        part.write_text(mood)
        part.rename(self._mood)

    def _hang(self) -> None:
        os.kill(self.slurm.pids["slurmctld"], signal.SIGSTOP)

    def _go_on(self) -> None:
        os.kill(self.slurm.pids["slurmctld"], signal.SIGCONT)

    def _take_down(self) -> None:
        self._node = self.dice.choice(["c1", "c2", "g1"])
        self._scontrol("update", f"nodename={self._node}", "state=down", "reason=soak")

    def _resume(self) -> None:
        self._scontrol("update", f"nodename={self._node}", "state=resume")

    def resume_all(self) -> None:
        """Return to service every node that is DOWN."""
        for node in ("c1", "c2", "g1"):
            if self.slurm.run("sinfo", "-h", "-n", node, "-o", "%T").startswith("down"):
                self._scontrol("update", f"nodename={node}", "state=resume")

    def _some_job(self) -> str:
        with suppress(*UNHEARD):
            jobs = sorted(self.jobs())
            return self.dice.choice(jobs) if jobs else ""
        return ""

    def _cancel_one(self) -> None:
        job = self._some_job()
        with suppress(*UNHEARD):
            if job:
                self.slurm.run("scancel", job)

    def _requeue_one(self) -> None:
        job = self._some_job()
        if job:
            self._scontrol("update", f"jobid={job}", "requeue=1")
            self._scontrol("requeue", job)

    def _suspend_all(self) -> None:
        with suppress(*UNHEARD):
            self._suspended = sorted(self.jobs())[:5]
            for job in self._suspended:
                self._scontrol("suspend", job)

    _suspended: tuple[str, ...] | list[str] = ()

    def _resume_all(self) -> None:
        for job in self._suspended:
            self._scontrol("resume", job)

    def _scontrol(self, *words: str) -> None:
        with suppress(*UNHEARD):
            self.slurm.run("scontrol", *words)
