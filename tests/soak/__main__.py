"""``python -m tests.soak``: fifty users and one fault after the other; at the end every job is accounted for.

    scripts/soak [--minutes 60] [--users 50] [--seed N]

It uses a real hub and a real Slurm with stand-in servers. Users start and stop servers all the time; faults come and
go, one at a time: in the hub, Slurm, the nodes and the database. Within some minutes after the last fault, each job in
Slurm must belong to a server that the hub shows, each server must have its job and answer through the proxy, and no
process of another server may be left. At no time may another user's job be cancelled.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import re
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from jupyterhub_gpuspawner.hub.lost_jobs import state_job_ids
from tests.fixtures import postgres
from tests.fixtures.hubs import COMMAND, STAND_IN, new_hub
from tests.soak.faults import UNHEARD, Fault, World

CONFIG = """
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0}}  # a start over REST is answered at once
c.JupyterHub.concurrent_spawn_limit = 0
c.Spawner.poll_interval = 20
c.GPUSlurmSpawner.slurm_bin_dir = {bin_dir!r}
c.GPUSlurmSpawner.slurm_timeout = 4.0
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 1.5
watcher.REST_INTERVAL = 10.0
from jupyterhub_gpuspawner.hub.site import slurm_settings
slurm_settings.RECONCILE_INTERVAL = 30.0
c.GPUSlurmSpawner.start_timeout = 60
c.GPUSlurmSpawner.queue_timeout = "0:01:00"
c.GPUSlurmSpawner.port_range = "{ports[0]}-{ports[1]}"
"""
PROFILES = f"""
- display_name: Light
  slug: light
  slurm: {{partition: batch, cpus: 1, memory: 50M, time: "2:00:00"}}
  command: {COMMAND}
- display_name: Two K80, of which a node has four
  slug: k80
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 1, memory: 50M, time: "2:00:00"}}
  command: {COMMAND}
- display_name: Fails
  slug: fails
  slurm: {{partition: batch, cpus: 1, memory: 50M, time: "2:00:00"}}
  command: [bash, -c, "sleep 0.5; exit 3"]
"""
CONSISTENT_WITHIN = 300.0
"""Seconds from the last fault until everything must be consistent."""


class Soak:
    """Users, faults and counters."""

    def __init__(self, hub: HubProcess, world: World, users: int, dice: random.Random) -> None:
        self.hub = hub
        self.world = world
        self.dice = dice
        self.users = [f"soak{number:02}" for number in range(users)]
        self.count = world.count
        self.faults = world.faults(hub)
        self.first = dice.sample(self.faults, len(self.faults))
        """Each kind of fault once, then at random, so that a short soak contains all of them."""
        self.running: tuple[Fault, float] | None = None

    def run(self, seconds: float) -> None:
        """Run users and faults."""
        for user in self.users:
            self._ask("POST", f"/users/{user}")
        ends_at = time.monotonic() + seconds
        next_fault = time.monotonic() + 3.0
        while time.monotonic() < ends_at:
            if self.running is not None and time.monotonic() > self.running[1]:
                self._end_fault()
                next_fault = time.monotonic() + self.dice.uniform(0.5, 6.0)
            elif self.running is None and time.monotonic() > next_fault:
                self._begin_fault()
            self._person()
            time.sleep(self.dice.uniform(0.05, 0.6))
        if self.running is not None:
            self._end_fault()

    def _begin_fault(self) -> None:
        weights = [fault.weight for fault in self.faults]
        fault = self.first.pop() if self.first else self.dice.choices(self.faults, weights)[0]
        self.count[f"fault: {fault.name}"] += 1
        fault.begin()
        self.running = fault, time.monotonic() + self.dice.uniform(*fault.seconds)

    def _end_fault(self) -> None:
        assert self.running is not None
        self.running[0].end()
        self.running = None
        self.world.check_strangers()

    def _person(self) -> None:
        user = self.dice.choice(self.users)
        if self.dice.random() < 0.2:
            with suppress(requests.RequestException):
                requests.get(f"{self.hub.url}/user/{user}/environ", timeout=10)
        if self.dice.random() < 0.6:
            profile = self.dice.choices(["light", "k80", "fails"], [10, 3, 1])[0]
            status = self._ask("POST", server_path(user), {"profile": profile})
            self.count["starts asked for" if status in (201, 202) else f"starts answered {status or 'not at all'}"] += 1
        else:
            status = self._ask("DELETE", server_path(user))
            self.count["stops asked for" if status in (202, 204) else f"stops answered {status or 'not at all'}"] += 1

    def _ask(self, method: str, path: str, body: Any = None) -> int:
        try:
            return self.hub.api(method, path, body).status_code
        except requests.RequestException:
            return 0

    # --- the account -----------------------------------------------------------------------------

    def account(self) -> list[str]:
        """Inconsistencies as sentences; checked again until there are none or the time is over."""
        ends_at = time.monotonic() + CONSISTENT_WITHIN
        while True:
            try:
                self.world.resume_all()
                wrong = self._wrong()
            except (*UNHEARD, requests.RequestException) as error:
                wrong = [f"No account could be made: {error}"]
            if not wrong or time.monotonic() > ends_at:
                self.world.check_strangers()
                return [*wrong, *dict.fromkeys(self.world.wrong)]
            time.sleep(3.0)

    def _wrong(self) -> list[str]:
        wrong = []
        jobs = self.world.jobs()
        named: dict[str, str] = {}
        for user in self.hub.api("GET", "/users?state=active&limit=200").json():
            for model in user["servers"].values():
                if model["pending"] == "stop" or not (model["ready"] or model["pending"]):
                    wrong.append(f"The server of {user['name']} is neither there nor on its way: {model['pending']}")
                for job in state_job_ids(model["state"]):
                    if job in named:
                        wrong.append(f"Job {job} is the server's of {named[job]} and of {user['name']}")
                    named[job] = user["name"]
                if model["ready"]:
                    answer = requests.get(f"{self.hub.url}/user/{user['name']}/environ", timeout=10)
                    job = _job_of(answer)
                    if job not in state_job_ids(model["state"]):
                        wrong.append(f"Behind the address of {user['name']} is job {job}, not {model['state']}")
        wrong += [f"Job {job} ({jobs[job]}) belongs to no server" for job in sorted(jobs.keys() - named.keys())]
        wrong += [f"The server of {named[job]} has no job {job}" for job in sorted(named.keys() - jobs.keys())]
        processes = [
            process for process in psutil.process_iter(["cmdline"]) if str(STAND_IN) in (process.info["cmdline"] or [])
        ]
        here = [process for process in processes if self._of_ours(process)]
        running = set(self.world.slurm.run("squeue", "-h", "-t", "R,S,CG", "-o", "%i").split())
        if len(here) > len(running):
            wrong.append(f"{len(here)} servers' processes run in {len(running)} jobs")
        self.count["at the end: servers"] = len(named)
        self.count["at the end: jobs"] = len(jobs)
        self.count["at the end: servers' processes"] = len(here)
        return wrong

    def _of_ours(self, process: psutil.Process) -> bool:
        """Whether it is a server of this soak; shell and launcher have the server's words on their command lines."""
        try:
            words = process.cmdline()
            ours = process.environ().get("SLURM_CONF", "") == str(self.world.slurm.conf)
        except psutil.Error:
            return False
        return ours and words[0] != "bash" and "--plan" not in words

    def table(self) -> str:
        """What was done, and what the hub's log has of it."""
        log = self.hub.log.read_text(errors="replace")
        for name, words in {
            "log: jobs submitted": r"Submitted \S+ as job",
            "log: servers ready": r"Job \d+ of \S+ serves at",
            "log: jobs ended under a server": r"Job \d+ of \S+ has ended",
            "log: starts taken up by the next hub": "taking it up",
            "log: jobs of starts given up, cancelled": "was cancelled: cancelling",
            "log: orphans cancelled": "belongs to no server: cancelling",
            "log: outages of Slurm": "Slurm is not responding",
            "log: outages of the database": "database does not accept changes at the moment",
            "log: tracebacks": "Traceback",
        }.items():
            self.count[name] = len(re.findall(words, log))
        return "\n".join(f"{number:8} {name}" for name, number in sorted(self.count.items()))


def _job_of(answer: requests.Response) -> str:
    """The job in which a stand-in server runs; what answers instead where that is none."""
    try:
        return str(answer.json()["SLURM_JOB_ID"])
    except (ValueError, KeyError):
        return f"none ({answer.status_code}: {answer.text[:40]!r})"


def main() -> int:
    """Exit status 1 if a job is not accounted for, or something happened that must never happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="the same faults in the same order")
    parser.add_argument("--keep-log", type=Path, default=None, help="where the hub's log is copied to")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    dice = random.Random(seed)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuspawner-soak-")))
        folder.chmod(0o755)
        slurm = stack.enter_context(PrivateSlurm(DEMO_CLUSTER, folder / "slurm"))
        absent = postgres.missing()
        database = None if absent else stack.enter_context(postgres.PrivatePostgres(folder / "postgres"))
        world = World(slurm, folder, dice, database)
        lines = CONFIG.format(bin_dir=str(world.bin_dir), ports=world.ports)
        if database is not None:
            lines += f"c.JupyterHub.db_url = {database.url!r}\n"
        hub = new_hub(slurm, folder / "hub", lines=lines, profiles=PROFILES)
        stack.callback(hub.stop)
        hub.start()
        soak = Soak(hub, world, arguments.users, dice)
        soak.run(arguments.minutes * 60.0)
        over = time.monotonic()
        wrong = soak.account()
        on = "Postgres" if database is not None else f"sqlite ({absent})"
        who = "another account's" if os.geteuid() == 0 else "the hub's own account's: not root"
        print(f"{arguments.minutes:g} minutes, {arguments.users} users, seed {seed}, hub on {on}, strangers {who}")
        print(soak.table())
        print(f"Settled {time.monotonic() - over:.0f} s after the last fault.")
        print("\n".join(wrong) or "Every job is accounted for, and nothing happened that must not.")
        if arguments.keep_log is not None:
            arguments.keep_log.write_bytes(hub.log.read_bytes())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
