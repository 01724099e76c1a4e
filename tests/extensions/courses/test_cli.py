"""``gpuspawner course check``: the seats that it counts are the servers that Slurm starts."""

from __future__ import annotations

import getpass
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    whole_gpus,
)
from jupyterhub_gpuspawner.extensions.courses.check import HubLimits
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport
from jupyterhub_gpuspawner.extensions.courses.site import Checked, hub_limits
from jupyterhub_gpuspawner.extensions.seats.count import SeatCount
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.cli.runner import cli_runner
from tests.extensions.courses.course_hub import configuration
from tests.extensions.courses.test_course import DEEP_LEARNING
from tests.fixtures.clock import about_noon

PEOPLE = 60
SHAPES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "GPUs are tight": ("g1,d1", {"partition": "gpu", "gpus": 1, "cpus": 1, "memory": "1G"}, []),
    "memory is tight": (
        "g1",
        {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "24G"},
        ["With 15 GiB of memory each: 4."],
    ),
    "whole nodes, by an option of sbatch": (
        "g1,d1",
        {"partition": "gpu", "gpus": 1, "cpus": 1, "memory": "1G", "extra": ["--exclusive"]},
        [],
    ),
    "an excluded node": (
        "g1,d1",
        {"partition": "gpu", "gpus": 1, "cpus": 1, "memory": "1G", "extra": ["--exclude=d1"]},
        [],
    ),
    "cores are tight": ("d1", {"partition": "gpu", "gpus": 1, "cpus": 9, "memory": "4G"}, ["With 5 cores each: 8."]),
    "MIG devices": ("m1", {"partition": "gpu", "gpus": 1, "gpu_type": "1g.10gb", "cpus": 2, "memory": "4G"}, []),
    "a drained node": ("c1,c2", {"partition": "batch", "cpus": 8, "memory": "2G"}, []),
}
OF_THE_GATE = ("memory is tight", "whole nodes, by an option of sbatch", "a drained node")


@contextmanager
def reserved(slurm: PrivateSlurm, nodes: str) -> Iterator[None]:
    """A reservation of these nodes for this account, from now on for three hours."""
    what = f"StartTime=now Duration=180 Users={getpass.getuser()} Nodes={nodes} Flags=IGNORE_JOBS"
    slurm.run("scontrol", "create", "reservation", "ReservationName=lesson", *what.split())
    try:
        yield
    finally:
        for job in slurm.run("squeue", "-h", "-o", "%i").split():
            slurm.run("scancel", job)
        while slurm.run("squeue", "-h", "-o", "%i").split():
            time.sleep(0.2)
        slurm.run("scontrol", "delete", "ReservationName=lesson")


def started(slurm: PrivateSlurm, resources: dict[str, Any], count: int) -> int:
    """Submit so many jobs of this request at once; return how many Slurm starts."""
    words = {
        "partition": resources["partition"],
        "time": "2:00:00",
        "reservation": "lesson",
        "output": "/dev/null",
    }
    words |= {
        option: resources[name] for name, option in (("cpus", "cpus-per-task"), ("memory", "mem")) if name in resources
    }
    if "gpus" in resources:
        words["gres"] = ":".join(
            ["gpu", *([resources["gpu_type"]] if "gpu_type" in resources else []), str(resources["gpus"])]
        )
    line = [f"--{name}={value}" for name, value in words.items()]
    line += resources.get("extra", [])
    slurm.run("sbatch", *line, f"--array=1-{count}", "--wrap=sleep 600")
    running = -1
    for _ in range(100):
        time.sleep(1.5)
        states = slurm.run("squeue", "-h", "-r", "-o", "%T").split()
        before, running = running, states.count("RUNNING")
        if running == before and running and set(states) <= {"RUNNING", "PENDING"}:
            break
    return running


def site(folder: Path, slurm: PrivateSlurm, resources: dict[str, Any]) -> Path:
    """A hub's configuration with one profile and one course, whose session is going on now."""
    zone, now = about_noon()
    courses = folder / "courses"
    courses.mkdir()
    (courses / "deep.yaml").write_text(
        f"""
name: Deep learning
instructors: ada
roster: train[01-{PEOPLE}]
profile: lesson
zone: {zone}
sessions:
  - {{date: {now:%Y-%m-%d}, from: {now:%H:%M}, to: {now.hour + 1}:{now:%M}, reservation: lesson}}
"""
    )
    config = folder / "jupyterhub_config.py"
    lesson = {"display_name": "Lesson", "slug": "lesson", "slurm": {**resources, "time": "2:00:00"}}
    config.write_text(configuration(slurm.bin_dir, courses, lesson))
    return config


def run(config: Path, slurm: PrivateSlurm, *words: str) -> Result:
    """Run ``gpuspawner course WORDS`` with this configuration and this Slurm."""
    return cli_runner().invoke(main, ["course", *words, "--config", str(config)], env=slurm.environment)


def check(config: Path, slurm: PrivateSlurm) -> tuple[int, dict[str, Any]]:
    """Exit code, and the report of the only session."""
    done = run(config, slurm, "check", "deep", "--json")
    assert done.stderr == ""
    return done.exit_code, json.loads(done.stdout)["sessions"][0]


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("nodes", "resources", "helps"),
    [
        pytest.param(*shape, id=name, marks=() if name in OF_THE_GATE else pytest.mark.nightly)
        for name, shape in SHAPES.items()
    ],
)
def test_as_many_fit_as_slurm_starts(
    tmp_path: Path, slurm_cluster: PrivateSlurm, nodes: str, resources: dict[str, Any], helps: list[str]
) -> None:
    """And a smaller request is named with which more would."""
    drained = nodes.rsplit(",", maxsplit=1)[-1] if nodes == "c1,c2" else ""
    if drained:
        slurm_cluster.run("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=disk")
    try:
        with reserved(slurm_cluster, nodes):
            code, report = check(site(tmp_path, slurm_cluster, resources), slurm_cluster)
            running = started(slurm_cluster, resources, report["fit"] + 4)
    finally:
        if drained:
            slurm_cluster.run("scontrol", "update", f"NodeName={drained}", "State=RESUME")
    assert (code, report["wanted"], report["counted"]) == (1, PEOPLE, "slurm")
    assert report["fit"] == running > 0
    assert [helps_ for helps_ in helps if helps_ in report["problems"][-1]] == helps


@pytest.mark.slurm
def test_a_partition_may_use_a_part_of_each_node(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """MaxCPUsPerNode counts the CPUs of all its jobs together."""
    resources = {"partition": "batch", "cpus": 3, "memory": "2G"}
    slurm_cluster.run("scontrol", "update", "PartitionName=batch", "MaxCPUsPerNode=10")
    try:
        with reserved(slurm_cluster, "c1"):
            _, report = check(site(tmp_path, slurm_cluster, resources), slurm_cluster)
            running = started(slurm_cluster, resources, report["fit"] + 4)
    finally:
        slurm_cluster.run("scontrol", "update", "PartitionName=batch", "MaxCPUsPerNode=UNLIMITED")

    assert (report["fit"], running) == (3, 3)


THREADED = ClusterDescription(
    nodes=(
        SimulatedNode(
            "h1",
            machine="cpu",
            sockets=2,
            cores_per_socket=4,
            threads=2,
            memory_mib=32000,
            gpus=(whole_gpus("k80", range(4)),),
        ),
    ),
    partitions=(SimulatedPartition("gpu", ("h1",), default=True),),
)
"""One node of four GPUs and eight cores with two hardware threads each."""


@pytest.mark.slurm
def test_slurm_gives_out_whole_cores_and_a_partitions_defaults(
    tmp_path: Path, needs_slurm: None, public_folder: Path
) -> None:
    """A job of three threads holds two cores, and the memory of four CPUs or of its GPU, whichever is the default."""
    shapes: dict[str, dict[str, Any]] = {
        "DefMemPerGPU=10000,DefCpuPerGPU=3": {"partition": "gpu", "gpus": 1},
        "": {"partition": "gpu", "cpus": 3},
    }
    fits: dict[str, tuple[int, int]] = {}
    with PrivateSlurm(THREADED, public_folder / "threads") as slurm:
        for defaults, resources in shapes.items():
            # Slurm 22.05 ignores new JobDefaults once jobs with GPUs have run, so this is the first
            slurm.run("scontrol", "update", "PartitionName=gpu", f"JobDefaults={defaults}")
            folder = tmp_path / str(len(fits))
            folder.mkdir()
            with reserved(slurm, "h1"):
                _, report = check(site(folder, slurm, resources), slurm)
                fits[defaults] = report["fit"], started(slurm, resources, report["fit"] + 4)

    assert fits == {"DefMemPerGPU=10000,DefCpuPerGPU=3": (3, 3), "": (4, 4)}


@pytest.mark.slurm
def test_the_lines_name_who_has_no_account_and_what_is_missing(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Without a reservation, and without the accounts: exit code 1, and a line for each."""
    config = site(tmp_path, slurm_cluster, {"partition": "gpu", "gpus": 1, "cpus": 1, "memory": "1G"})
    config.write_text(config.read_text().replace('c.GPUSlurmSpawner.req_homedir = "/tmp"', ""))
    result = run(config, slurm_cluster, "check", "deep")

    assert (result.exit_code, result.stderr) == (1, "")
    assert [line.strip() for line in result.stdout.splitlines()[1:] if not line.startswith("Note: ")] == [
        "None of the instructors exists: ada. Nobody can open the course's page.",
        "No account or home folder on this machine: train01, train02, train03, train04, train05 and 55 more.",
        "There is no reservation lesson.",
    ]


@pytest.mark.slurm
def test_what_is_wrong_in_every_session_is_printed_once(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Above the sessions; each of them then has what is wrong with it alone."""
    config = site(
        tmp_path, slurm_cluster, {"partition": "gpu", "gpus": 1, "gpu_type": "k80", "cpus": 1, "memory": "1G"}
    )
    (tmp_path / "courses" / "deep.yaml").write_text(
        """
name: Deep learning
instructors: ada
roster: {names: train01, groups: nobody}
profile: lesson
zone: UTC
sessions:
  - {date: 2020-03-02, from: 9:00, to: 10:00}
  - {date: 2020-03-03, from: 9:00, to: 17:00}
"""
    )
    result = run(config, slurm_cluster, "check", "deep", "--all")

    assert result.stdout.splitlines() == [
        "WRONG in every session:",
        "      The roster names groups that JupyterHub does not have: nobody.",
        "WRONG Mon 2020-03-02 09:00-10:00 UTC: 1 person, 2 or more fit",
        "WRONG Tue 2020-03-03 09:00-17:00 UTC: 1 person, 2 or more fit",
        "      Servers end after 2 h, before the session does, which takes 8 h.",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wide"], "gpuspawner: there is no course 'wide'. Courses are: deep."),
        (["deep", "--session", "2020-01-01"], "gpuspawner: course deep has no session '2020-01-01'."),
    ],
)
@pytest.mark.slurm
def test_a_wrong_name_is_told_with_the_right_ones(
    tmp_path: Path, slurm_cluster: PrivateSlurm, words: list[str], message: str
) -> None:
    """Of courses, and of the sessions of one."""
    config = site(tmp_path, slurm_cluster, {"partition": "gpu", "gpus": 1})
    result = run(config, slurm_cluster, "check", *words)

    assert result.exit_code == 1
    assert result.stderr.startswith(message)


@pytest.mark.slurm
def test_without_a_name_every_course_is_checked(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """A faulty file does not hide the others, and sessions that have ended are checked with --all alone.

    A file with a wrong name is named.
    """
    config = site(
        tmp_path, slurm_cluster, {"partition": "gpu", "gpus": 1, "gpu_type": "k80", "cpus": 1, "memory": "1G"}
    )
    courses = tmp_path / "courses"
    old = DEEP_LEARNING.replace("profile: {slug: k80, options: {gpus: 1}}", "profile: lesson")
    (courses / "old.yaml").write_text(old.replace("2026", "2020"))
    (courses / "wrong.yaml").write_text("name: [\n")
    (courses / "New Course.yaml").write_text(old)
    result = run(config, slurm_cluster, "check", "--json")
    with_old = run(config, slurm_cluster, "check", "--json", "--all")
    reports = {course["course"]: course for course in json.loads(result.stdout)["courses"]}
    past = {course["course"]: len(course["sessions"]) for course in json.loads(with_old.stdout)["courses"]}

    assert result.exit_code == with_old.exit_code == 1
    assert {name: len(report["sessions"]) for name, report in reports.items()} == {
        "deep": 1,
        "old": 0,
        "wrong": 0,
        "": 0,
    }
    assert past == {"deep": 1, "old": 4, "wrong": 0, "": 0}
    assert ": not read: New Course.yaml; a course's file has a name of " in reports[""]["fault"]
    assert reports["wrong"]["fault"].startswith("wrong.yaml:2: ")
    assert (reports["deep"]["fault"], reports["old"]["fault"]) == (None, None)


@pytest.mark.parametrize(
    ("services", "seconds"),
    [
        (" = [{'name': 'idle', 'command': ['python3', '-m', 'jupyterhub_idle_culler', '--timeout=3600']}]", 3600),
        (" = [{'name': 'idle', 'command': ['/opt/hub/bin/jupyterhub-idle-culler', '--timeout', '900']}]", 900),
        (" = [{'name': 'idle', 'command': ['jupyterhub-idle-culler']}]", 600),
        (" = [{'name': 'announce', 'command': ['announcements', '--timeout=3']}]", None),
        (" = [{'name': 'outside', 'url': 'http://127.0.0.1:9000'}]", None),
        (".extend([{'name': 'idle', 'command': ['jupyterhub-idle-culler', '--timeout=60']}, 'announcement'])", 60),
    ],
)
def test_the_hubs_own_limits_are_read_from_its_configuration(
    tmp_path: Path, services: str, seconds: int | None
) -> None:
    """Also the time after which an idle culler stops a server; what JupyterHub would refuse is another finding."""
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        f"""
c.JupyterHub.active_server_limit = 40
c.JupyterHub.services{services}
c.Spawner.start_timeout = 300
c.GPUSlurmSpawner.queue_timeout = "15:00"
c.GPUProfilesSpawner.profiles = [{{"display_name": "K80", "slug": "k80"}}]
"""
    )

    assert hub_limits(load_site(config)) == HubLimits(
        concurrent_spawns=100, active_servers=40, start_timeout=300, queue_timeout=900, culled_after=seconds
    )


def printed_calendar(folder: Path) -> Result:
    """What ``gpuspawner course calendar`` does for the example course."""
    courses = folder / "courses"
    courses.mkdir()
    (courses / "deep.yaml").write_text(DEEP_LEARNING)
    config = folder / "jupyterhub_config.py"
    config.write_text(
        f"""
c.GPUSlurmSpawner.hub_name = "site"
c.GPUProfilesSpawner.courses_dir = {str(courses)!r}
c.GPUProfilesSpawner.profiles = [{{"display_name": "K80", "slug": "k80"}}]
"""
    )
    return cli_runner().invoke(main, ["course", "calendar", "deep", "--config", str(config)])


def test_without_icalendar_the_calendar_names_what_is_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra of this package."""
    monkeypatch.setitem(sys.modules, "icalendar", None)
    result = printed_calendar(tmp_path)

    assert (result.exit_code, result.stderr) == (
        1,
        "gpuspawner: a calendar needs icalendar. pip install icalendar, which is the extra `calendar` of this "
        "package.\n",
    )


def test_the_calendar_needs_no_slurm(tmp_path: Path) -> None:
    """It is printed for a file that calendars import."""
    result = printed_calendar(tmp_path)

    assert (result.exit_code, result.stderr) == (0, "")
    assert [line for line in result.stdout.splitlines() if line.startswith("UID:")] == [
        f"UID:deep-2026-03-{day}@site" for day in ("02", "03", "10", "12")
    ]


@pytest.mark.slurm
def test_the_rehearsal_asks_slurm_for_each_participant(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Nothing is submitted; a request that Slurm refuses is told with its reason."""
    resources = {"partition": "gpu", "gpus": 1, "gpu_type": "k80", "cpus": 1, "memory": "1G"}
    config = site(tmp_path, slurm_cluster, resources)
    words = ["rehearse", "deep", "--only", "train01", "--only", "train02", "--every", "0"]
    with reserved(slurm_cluster, "g1"):
        accepted = run(config, slurm_cluster, *words)
        jobs = slurm_cluster.run("squeue", "-h", "-t", "PD,CF,R", "-o", "%i")
    refused = run(config, slurm_cluster, *words)

    assert (accepted.exit_code, accepted.stderr, jobs) == (0, "", ""), accepted.stdout
    assert [line.partition(": would start ")[0] for line in accepted.stdout.splitlines()] == [
        "ok    train01",
        "ok    train02",
    ]
    assert (refused.exit_code, refused.stderr) == (1, "")
    assert [line[:15] for line in refused.stdout.splitlines()] == ["WRONG train01: ", "WRONG train02: "]
    assert "reservation" in refused.stdout


TOMORROW: dict[str, Any] = {
    "display_name": "Lesson",
    "slug": "lesson",
    "allow": {"users": ["t1", "t2", "t4", "t5", "t6", "t7"]},
    "slurm": {"partition": "gpu", "gpus": 1, "gpu_type": "k80", "cpus": 1, "memory": "1G", "time": "10:00:00"},
}
TOMORROWS_COURSE = """
name: Deep learning
instructors: ada
roster: t[1-7]
profile: lesson
zone: UTC
sessions: [{{date: {day:%Y-%m-%d}, from: 10:00, to: 12:00, reservation: {reservation}}}]
start_ahead: 10min
"""


@contextmanager
def reserved_between(slurm: PrivateSlurm, begin: datetime, end: datetime) -> Iterator[None]:
    """A reservation of node g1 for this account."""
    times = f"StartTime={begin.astimezone():%Y-%m-%dT%H:%M:%S} EndTime={end.astimezone():%Y-%m-%dT%H:%M:%S}"
    what = f"{times} Users={getpass.getuser()} Nodes=g1"
    slurm.run("scontrol", "create", "reservation", "ReservationName=tomorrow", *what.split())
    try:
        yield
    finally:
        slurm.run("scontrol", "delete", "ReservationName=tomorrow")


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("hours", "fit", "named"), [pytest.param(2, 4, [], marks=pytest.mark.nightly), (10, 0, ["in maintenance from"])]
)
def test_maintenance_after_the_session_counts_where_servers_would_run_into_it(
    hours: int, fit: int, named: list[str], tmp_path: Path, slurm_cluster: PrivateSlurm
) -> None:
    """Slurm starts no job that could not end before: servers of ten hours wait, those of two start."""
    end = (datetime.now(timezone.utc) + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    courses, config = tmp_path / "courses", tmp_path / "jupyterhub_config.py"
    courses.mkdir()
    course = TOMORROWS_COURSE.format(day=end, reservation="null")
    (courses / "deep.yaml").write_text(f"{course}outside_sessions: without_reservation\n")  # so no time is lowered
    lesson = {**TOMORROW, "slurm": {**TOMORROW["slurm"], "time": f"{hours}:00:00"}}
    config.write_text(configuration(slurm_cluster.bin_dir, courses, lesson))

    begins = (end + timedelta(hours=3)).astimezone()
    what = f"StartTime={begins:%Y-%m-%dT%H:%M:%S} Duration=60 Users=root Nodes=ALL Flags=MAINT,IGNORE_JOBS"
    slurm_cluster.run("scontrol", "create", "reservation", "ReservationName=upkeep", *what.split())
    try:
        _, report = check(config, slurm_cluster)
    finally:
        slurm_cluster.run("scontrol", "delete", "ReservationName=upkeep")

    assert (report["fit"], report["counted"]) == (fit, "slurm")
    assert [text for text in named if any(text in problem for problem in report["problems"])] == named


@pytest.mark.slurm
@pytest.mark.parametrize("reservation", ["tomorrow", pytest.param("null", marks=pytest.mark.nightly)])
def test_the_rehearsal_the_evening_before_is_as_of_the_session(
    reservation: str, tmp_path: Path, slurm_cluster: PrivateSlurm
) -> None:
    """With a reservation that ends with the session, and without: who would start when, who may not, how many fit."""
    end = (datetime.now(timezone.utc) + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    opens = end - timedelta(hours=2, minutes=10)
    courses, config = tmp_path / "courses", tmp_path / "jupyterhub_config.py"
    courses.mkdir()
    (courses / "deep.yaml").write_text(TOMORROWS_COURSE.format(day=end, reservation=reservation))
    config.write_text(configuration(slurm_cluster.bin_dir, courses, TOMORROW))

    reserved_then = reserved_between(slurm_cluster, opens - timedelta(minutes=5), end)
    with reserved_then if reservation == "tomorrow" else nullcontext():
        result = run(config, slurm_cluster, "rehearse", "deep", "--every", "0")
    at = f"would start {opens.astimezone():%Y-%m-%d %H:%M %Z}"
    assert (result.exit_code, result.stderr, result.stdout.splitlines()) == (
        1,
        "",
        [
            f"ok    t1: {at}",
            f"ok    t2: {at}",
            "WRONG t3: cannot use profile lesson: it is reserved for other users.",
            *(f"ok    t{number}: {at}" for number in (4, 5, 6, 7)),
            "WRONG together: 4 of 7 people fit; `gpuspawner course check deep` says what is missing",
        ],
    )


@pytest.mark.parametrize(
    ("fit", "not_counted", "code"),
    [(2, (), 0), (2, ("Limits are hidden.",), 4), (1, ("Limits are hidden.",), 1), (1, (), 1)],
)
def test_the_exit_code_says_whether_all_was_counted(
    fit: int, not_counted: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody fits, as far as it was counted: neither a success nor a fault."""
    now = datetime.now(timezone.utc)
    report = SessionReport(
        CourseDate(now, now + timedelta(hours=1), "today"), 2, SeatCount(2, 3, fit, not_counted=not_counted)
    )

    async def checked(*_arguments: Any, **_more: Any) -> list[Checked]:
        return [Checked("deep", (report,), None)]

    config = tmp_path / "jupyterhub_config.py"
    config.write_text("")
    monkeypatch.setattr("jupyterhub_gpuspawner.extensions.courses.cli.check_courses", checked)
    done = cli_runner().invoke(main, ["course", "check", "deep", "--json", "--config", str(config)])

    assert (done.exit_code, json.loads(done.stdout)["sessions"][0]["not_counted"]) == (code, [*not_counted])
