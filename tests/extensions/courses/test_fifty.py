"""A course of fifty people with accounts of their own, on a real hub and a Slurm with reservations that root made.

The servers are stand-ins; the hub, the accounts, sudo, the jobs and the reservations are real.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jupyterhub_gpuspawner.demo import hub as demo_hub
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    SlurmFailed,
    mig_devices,
    whole_gpus,
)
from tests.extensions.courses.test_courses import act, people, run, token_of
from tests.fixtures.hubs import STAND_IN
from tests.fixtures.users import Classroom, processes_of
from tests.hub.visitor import Page, Visitor
from tests.waiting import wait_until_equal

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users, pytest.mark.timeout(900), pytest.mark.nightly]

PYTHON = "/usr/bin/python3"
PATIENCE = 300
"""Seconds in which fifty servers start or stop, however much else the machine does."""


soon = partial(wait_until_equal, seconds=PATIENCE, interval=1.0)


def dgx(name: str) -> SimulatedNode:
    """A node of eight GPUs and 40 cores."""
    gpus = (whole_gpus("p100", range(4), cores="0-19"), whole_gpus("p100", range(4, 8), cores="20-39"))
    return SimulatedNode(name, "dgx1", sockets=2, cores_per_socket=20, memory_mib=512000, gpus=gpus)


def partitioned(name: str) -> SimulatedNode:
    """A node of two whole GPUs and four MIG devices."""
    gpus = (whole_gpus("a100", range(2), cores="0-15"), mig_devices("1g.10gb", 2, (21, 30, 39, 48), cores="16-31"))
    return SimulatedNode(name, "a100-mig", sockets=2, cores_per_socket=16, memory_mib=512000, gpus=gpus)


DGX = tuple(f"p{number}" for number in range(1, 7))
"""Nodes with 48 GPUs together."""
CLUSTER = ClusterDescription(
    nodes=(*map(dgx, DGX), partitioned("m1"), partitioned("m2")),
    partitions=(SimulatedPartition("teaching", (*DGX, "m1", "m2"), default=True),),
)

CONFIG = """
c.GPUProfilesSpawner.profiles_dir_allows = ["command"]
c.GPUSlurmSpawner.exec_prefix = "sudo -n -E -u {username}"
c.GPUSlurmSpawner.req_homedir = ""  # as the account database says
c.GPUCourses.every = 0.1
for role in c.JupyterHub.load_roles:
    role["scopes"] += ["tokens", "list:users"]
"""


def profile(slug: str, slurm: str, command: str) -> str:
    """A profile of the admin's, as YAML."""
    return f"- {{display_name: {slug}, slug: {slug}, slurm: {{partition: teaching, {slurm}}}, command: {command}}}\n"


@dataclass
class Site:
    """The hub, its Slurm and the people of its courses."""

    hub: HubProcess
    slurm: PrivateSlurm
    room: Classroom
    config: Path
    """For commands that read the hub's configuration."""
    reservations: list[str] = field(default_factory=list)

    def course(self, slug: str, numbers: str, *lines: str, profile: str, sessions: str, zone: str) -> None:
        """Write the file of a course whose roster are the people with these numbers."""
        text = [
            f"name: Course {slug}",
            f"instructors: {self.room.teacher}",
            f"roster: {self.room.prefix}[{numbers}]",
            f"profile: {profile}",
            f"zone: {zone}",
            f"sessions: [{sessions}]",
            *lines,
        ]
        self.file(slug).write_text("\n".join(text) + "\n")

    def file(self, slug: str) -> Path:
        """The file of a course."""
        return self.hub.folder / "courses" / f"{slug}.yaml"

    def reserve(self, name: str, nodes: str, *, start: str = "now") -> None:
        """Reserve nodes for everybody in the courses, for three hours, as root."""
        users = ",".join((self.room.teacher, *self.room.people))
        what = f"StartTime={start} Duration=180 Users={users} Nodes={nodes}"
        self.slurm.run("scontrol", "create", "reservation", f"ReservationName={name}", *what.split())
        self.reservations.append(name)

    def release(self, name: str) -> None:
        """Delete a reservation, as Slurm does at its end."""
        self.slurm.run("scontrol", "delete", f"ReservationName={name}")
        self.reservations.remove(name)

    def teacher(self, *slugs: str) -> str:
        """A token of the teacher, as soon as these courses are theirs."""
        token = token_of(self.hub, self.room.teacher)

        def courses() -> set[str]:
            document = self.hub.api("GET", "/gpuspawner/courses", token=token).json()
            return {course["slug"] for course in document["courses"]}

        soon(lambda: courses() >= set(slugs), expected=True)
        return token

    def check(self) -> dict[str, tuple[int, int]]:
        """For each course of ``gpuspawner course check``: people, and how many fit, as Slurm's scheduler counts."""
        done = subprocess.run(
            [Path(sys.executable).parent / "gpuspawner", "course", "check", "--json", "--config", self.config],
            env={**os.environ, **self.slurm.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        counts = {}
        for course in json.loads(done.stdout)["courses"]:
            (session,) = course["sessions"]
            assert session["counted"] == "slurm", session
            counts[course["course"]] = (session["wanted"], session["fit"])
        return counts

    def jobs(self, *, state: str = "all", after: int = 0) -> list[tuple[str, str, str]]:
        """User, reservation and state of each job in this state with a larger number than ``after``."""
        output = self.slurm.run("squeue", "--noheader", f"--states={state}", "--format=%i %u %v %T")
        rows = (line.split() for line in output.splitlines())
        return sorted((user, reservation, now) for job, user, reservation, now in rows if int(job) > after)

    def last_job(self) -> int:
        """The number of the last job so far."""
        return max((int(job) for job in self.slurm.run("squeue", "-h", "--states=all", "-o", "%i").split()), default=0)

    def alive(self) -> Counter[str]:
        """How many jobs there are in each state, without those that have ended."""
        return Counter(self.slurm.run("squeue", "-h", "-o", "%T").split())

    def has_scheduled(self) -> None:
        """Wait until Slurm has looked twice at all pending jobs, and can start no more of them."""
        first = self._cycles()
        soon(lambda: self._cycles() >= first + 2, expected=True)
        soon(lambda: set(self.alive()) <= {"RUNNING", "PENDING"}, expected=True)

    def _cycles(self) -> int:
        """How often the backfill scheduler has run, which looks at every job; it does where something has changed."""
        self.slurm.run("scontrol", "update", "PartitionName=teaching", "State=UP")
        _, _, backfill = self.slurm.run("sdiag").partition("Backfilling stats")
        cycles = re.search(r"Total cycles: (\d+)", backfill)
        assert cycles is not None, backfill
        return int(cycles[1])

    def left(self) -> list[str]:
        """What is left of servers: jobs, or else processes of the participants and servers that the hub knows."""
        jobs = [f"job of {line}" for line in self.slurm.run("squeue", "-h", "-o", "%u: %T").splitlines()]
        if jobs:
            return jobs
        processes = [f"process {process.info}" for process in processes_of(*self.room.people)]
        user_models = self.hub.api("GET", "/users?state=active").json()
        return [*processes, *(f"server of {user['name']}" for user in user_models)]


@pytest.fixture(scope="module")
def course_slurm(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """A cluster for courses alone, since their reservations take all of its nodes."""
    with PrivateSlurm(CLUSTER, public_folder / "fifty") as slurm:
        yield slurm


@pytest.fixture(scope="module")
def whole_site(
    fifty_users: Classroom, course_slurm: PrivateSlurm, site_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A hub that runs as root and submits jobs as its users; the teacher is signed in."""
    for program in ("configurable-http-proxy", "sudo", PYTHON):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    server = site_folder / STAND_IN.name
    shutil.copy(STAND_IN, server)
    server.chmod(0o644)
    folder = tmp_path_factory.mktemp("hub")
    (folder / "profiles").mkdir()
    command = f"[{PYTHON}, {server}]"
    (folder / "profiles" / "own.yaml").write_text(
        profile("gpu", 'gpus: 2, cpus: 20, memory: 200G, time: "2:00:00"', command)
        + profile("a100", 'gpus: 1, gpu_type: a100, cpus: 20, memory: 200G, time: "2:00:00"', command)
        + profile("mig", 'gpus: 1, gpu_type: 1g.10gb, cpus: 20, memory: 200G, time: "2:00:00"', command)
        + profile("cores", 'cpus: 20, memory: 200G, time: "2:00:00"', command)
    )
    config = folder / "site_config.py"
    config.write_text(f"load_subconfig({str(demo_hub.CONFIG)!r})\n{CONFIG}")
    environment = {
        **course_slurm.environment,
        "GPUSPAWNER_DEMO_SLURM": course_slurm.bin_dir,
        "GPUSPAWNER_DEMO_TOPOLOGY": course_slurm.topology_pattern,
    }
    with HubProcess(folder, config=config, environment=environment) as hub:
        Visitor(hub, fifty_users.teacher)
        yield Site(hub, course_slurm, fifty_users, hub.write_configuration())


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """The same without courses and reservations; what a failed test leaves is removed."""
    yield whole_site
    for file in (whole_site.hub.folder / "courses").iterdir():
        file.unlink()
    while whole_site.left():  # the hub may still be starting some
        whole_site.slurm.run("scancel", "--partition=teaching")
        time.sleep(1)
    for name in list(whole_site.reservations):
        whole_site.release(name)


def hours(begin: timedelta, end: timedelta) -> tuple[str, str, tuple[str, str]]:
    """A session from ``begin`` to ``end``, seen from now: fields of a session, and two zones a day apart.

    In the first zone the session's date is today's there, and so is it in the second, where it is a day later. In both
    of them the session lies within one day.
    """
    now = datetime.now(timezone.utc)
    for east in (14, 13, 12):
        zones = (f"Etc/GMT+{24 - east}", f"Etc/GMT-{east}")
        first, last = ((now + delta).astimezone(ZoneInfo(zones[0])) for delta in (begin, end))
        if first.date() == last.date():
            return f"{first:%Y-%m-%d}", f'from: "{first:%H:%M}", to: "{last:%H:%M}"', zones
    raise AssertionError("in one of three zones it is neither the last hours of a day nor the first")


NOW = (timedelta(minutes=-5), timedelta(minutes=80))
SOON = (timedelta(minutes=30), timedelta(minutes=90))
SHAPES: Mapping[str, tuple[str, str, str]] = {
    "memory": ("01-07", "{slug: gpu, gpus: 1, cpus: 2, memory: 120G}", "p1"),
    "cores": ("08-14", "{slug: gpu, gpus: 1, cpus: 7, memory: 4G}", "p2"),
    "gpus": ("15-24", "{slug: gpu, gpus: 1, cpus: 1, memory: 1G}", "p3"),
    "typed": ("25-30", "{slug: a100, cpus: 1, memory: 1G}", "m1"),
    "mig": ("31-36", "{slug: mig, cpus: 1, memory: 1G}", "m2"),
    "drained": ("37-43", "{slug: gpu, cpus: 1, memory: 1G}", "p4,p5"),
    "without": ("44-50", "{slug: cores, cpus: 9, memory: 1G}", "p6"),
}
"""Seven courses at the same time, named by what is short: people, profile, and nodes of the reservation."""


@pytest.fixture
def drained(whole_site: Site) -> Iterator[None]:
    """The node p5 is out of service."""
    whole_site.slurm.run("scontrol", "update", "NodeName=p5", "State=DRAIN", "Reason=disk")
    yield
    whole_site.slurm.run("scontrol", "update", "NodeName=p5", "State=RESUME")


@pytest.mark.usefixtures("drained")
def test_as_many_start_as_the_check_counts(site: Site) -> None:
    """For seven courses whose fifty people do not all fit: each person starts, and as many run as the check said."""
    date, times, (zone, _) = hours(*NOW)
    before = site.last_job()
    for slug, (numbers, chosen, nodes) in SHAPES.items():
        site.reserve(slug, nodes)
        session = f"{{date: {date}, {times}, reservation: {slug}}}"
        site.course(slug, numbers, profile=chosen, sessions=session, zone=zone)
    token = site.teacher(*SHAPES)

    checked = site.check()
    for slug in SHAPES:
        act(site.hub, slug, "start", token)
    soon(lambda: len(site.jobs(after=before)), 50)
    site.has_scheduled()
    started = Counter(reservation for _, reservation, _ in site.jobs(state="running"))

    assert {slug: wanted for slug, (wanted, _) in checked.items()} == {
        slug: 1 + int(numbers[3:]) - int(numbers[:2]) for slug, (numbers, _, _) in SHAPES.items()
    }
    assert started == {slug: fit for slug, (_, fit) in checked.items()}
    for slug in SHAPES:
        act(site.hub, slug, "stop", token)
    soon(site.left, [])


AHEAD = "start_ahead: 45min"
FIFTY = "01-50"
SEAT = "{slug: gpu, gpus: 1, cpus: 1, memory: 1G}"


def test_the_roster_is_started_ahead_across_a_kill_of_the_hub(site: Site) -> None:
    """Before the session everybody has one job, and as many run as fit; what the teacher stops leaves nothing.

    Whoever's server ran when the hub was killed keeps it; a job that was just being submitted may be replaced.
    """
    date, times, (zone, _) = hours(*SOON)
    session = f"{{date: {date}, {times}, reservation: ahead}}"
    before = site.last_job()
    site.reserve("ahead", ",".join(DGX))
    site.course("ahead", FIFTY, AHEAD, profile=SEAT, sessions=session, zone=zone)
    checked = site.check()
    token = site.teacher("ahead")
    soon(lambda: running(site, "ahead", token) >= 10, expected=True)
    ran = [user for user, state in people(site.hub, "ahead", token).items() if state == "running"]

    site.hub.restart()

    site.teacher("ahead")
    soon(lambda: Counter(people(site.hub, "ahead", token).values()), {"running": 48, "waiting": 2})
    alive = site.jobs(state="running,pending")
    jobs = Counter(user for user, _, _ in site.jobs(after=before))
    assert checked == {"ahead": (50, 48)}
    assert [(user, reservation) for user, reservation, _ in alive] == [(user, "ahead") for user in site.room.people]
    assert Counter(state for _, _, state in alive) == {"RUNNING": 48, "PENDING": 2}
    assert [user for user in ran if jobs[user] != 1] == []

    stopped = run(site.hub, token, "stop", "ahead")

    results = [line.split(":")[0].split() for line in stopped.stdout.splitlines()]
    assert [user for _, user in results] == list(site.room.people)
    assert {result for result, _ in results} <= {"done", "begun"}
    soon(site.left, [])
    assert people(site.hub, "ahead", token) == dict.fromkeys(site.room.people, "absent")


def running(site: Site, slug: str, token: str) -> int:
    """How many people of a course have a server that runs."""
    return list(people(site.hub, slug, token).values()).count("running")


def test_fifty_clicks_at_once(site: Site) -> None:
    """Everybody gets one job: as many servers run as fit, and the others know how many people are ahead of them."""
    date, times, (zone, _) = hours(*NOW)
    before = site.last_job()
    site.reserve("rush", ",".join(DGX))
    session = f"{{date: {date}, {times}, reservation: rush}}"
    site.course("rush", FIFTY, profile=SEAT, sessions=session, zone=zone)
    token = site.teacher("rush")
    visitors = [Visitor(site.hub, name) for name in site.room.people]
    forms = [visitor.look("/hub/spawn") for visitor in visitors]

    def click(visitor: Visitor, form: Page) -> str:
        visitor.session.close()  # the proxy closes a connection that was idle for five seconds
        return visitor.send(form, {"profile": "course-rush"}).url

    with ThreadPoolExecutor(len(visitors)) as pool:
        shown = list(pool.map(click, visitors, forms))

    soon(lambda: Counter(people(site.hub, "rush", token).values()), {"running": 48, "waiting": 2})
    states = people(site.hub, "rush", token)
    waiting = [visitor for visitor in visitors if states[visitor.name] == "waiting"]

    def positions() -> list[str]:
        pages = [visitor.pending().text for visitor in waiting]
        return sorted(
            position[0] for page in pages if (position := re.search(r"You are next|\d+ \w+ ahead of you", page))
        )

    assert [user for user, _, _ in site.jobs(after=before)] == list(site.room.people)
    assert [url for url in shown if "/hub/spawn-pending/" not in url and "/user/" not in url] == []
    soon(positions, ["1 person ahead of you", "You are next"])
    act(site.hub, "rush", "stop", token)
    soon(site.left, [])


def test_tomorrows_reservation_needs_no_hand(site: Site) -> None:
    """The reservation of each day has its date in its name; the hub starts the roster in that of the day.

    For the hub the day passes by another zone, and for Slurm as the first reservation ends and the second begins.
    """
    date, times, (zone, next_zone) = hours(*SOON)
    today = datetime.fromisoformat(date)
    days = [f"{today + timedelta(days=number):%Y-%m-%d}" for number in (0, 1)]
    weekday = f"{today:%A}".lower(), f"{today + timedelta(days=1):%A}".lower()
    sessions = (
        f"{{weekly: [{', '.join(weekday)}], first: {days[0]}, last: {days[1]}, {times}, reservation: day-%Y-%m-%d}}"
    )
    site.reserve(f"day-{days[0]}", "p1")
    site.reserve(f"day-{days[1]}", "p1", start="now+1days")

    token = site.teacher()

    for day, the_zone in zip(days, (zone, next_zone), strict=True):
        before = site.last_job()
        site.course("days", "01-06", AHEAD, profile=SEAT, sessions=sessions, zone=the_zone)
        site.teacher("days")
        soon(lambda: Counter(people(site.hub, "days", token).values()), {"running": 6})
        assert site.jobs(after=before) == [(user, f"day-{day}", "RUNNING") for user in site.room.people[:6]]
        act(site.hub, "days", "stop", token)
        soon(site.left, [])
        site.release(f"day-{day}")
        with suppress(SlurmFailed):  # on the last day there is none
            site.slurm.run("scontrol", "update", f"ReservationName=day-{days[1]}", "StartTime=now")
