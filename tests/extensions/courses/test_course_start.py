"""A participant starts from the card of a course, on a real hub and a real Slurm."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import COMMAND, StartHub

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

PROFILES = f"""
- display_name: Cores
  slug: cores
  slurm: {{partition: batch, cpus: 4, memory: 100G, time: "8:00:00"}}
  command: {COMMAND}
  profile_options:
    cpus: {{display_name: Cores, range: {{min: 1, max: 4, default: 1, sets: slurm.cpus}}}}
"""


COURSE = {"profile": "course-lesson"}
FACTS = r"(?<!\w)(JobState|Reservation|NodeList|CPUs/Task|MinMemoryNode)=(\S+)"


@dataclass(frozen=True)
class Lesson:
    """A course whose session began half an hour ago, with a reservation that ends with it.

    Its node has a seat of much memory, and many of little.
    """

    hub: HubProcess
    file: Path
    end: datetime


@pytest.fixture
def lesson(
    slurm_cluster: PrivateSlurm, start_light_hub: StartHub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lesson]:
    """The hub, the course's file and the end of its session."""
    now = datetime.now().astimezone()
    offset = datetime.now(ZoneInfo("UTC")).hour - 12
    zone = ZoneInfo(f"Etc/GMT{offset:+d}")  # where it is about noon, so that the session is within one day
    begin, end = (
        (now + timedelta(minutes=minutes)).astimezone(zone).replace(second=0, microsecond=0) for minutes in (-30, 90)
    )
    folder = tmp_path_factory.mktemp("courses")
    file = folder / "lesson.yaml"
    file.write_text(
        f"""
name: A lesson
instructors: teacher
roster: student[1-2]
profile: [{{slug: cores, options: {{cpus: 2}}}}, {{slug: cores, options: {{cpus: 1}}, memory: 200M}}]
zone: {zone.key}
sessions: [{{date: {begin:%Y-%m-%d}, from: "{begin:%H:%M}", to: "{end:%H:%M}", reservation: lesson}}]
"""
    )
    until = end.astimezone(now.tzinfo)
    what = f"StartTime=now EndTime={until:%Y-%m-%dT%H:%M:%S} Users={getpass.getuser()} Nodes=c2 Flags=IGNORE_JOBS"
    slurm_cluster.run("scontrol", "create", "reservation", "ReservationName=lesson", *what.split())
    hub = start_light_hub(f"c.GPUProfilesSpawner.courses_dir = {str(folder)!r}", PROFILES)
    try:
        yield Lesson(hub, file, until)
    finally:
        for user in ("student1", "student2", "teacher"):
            hub.end(user)
        slurm_cluster.run("scontrol", "delete", "ReservationName=lesson")


def offered(hub: HubProcess, user: str) -> dict[str, bool]:
    """The profiles that a user is offered, and whether they may use them now."""
    profiles = hub.api("GET", f"/gpuspawner/profiles/{user}").json()["profiles"]
    return {profile["slug"]: profile["allowed"] for profile in profiles}


def test_a_participant_who_is_late_gets_what_the_course_says(lesson: Lesson, slurm_cluster: PrivateSlurm) -> None:
    """The job has the session's reservation, the course's cores and memory, and ends with the session.

    When the first profile has no seat left, the next participant gets the second. The job goes on when the course's
    file is gone and the hub is restarted; the course is no longer offered then.
    """
    hub = lesson.hub
    for user in ("student1", "student2", "teacher", "outsider"):
        hub.api("POST", f"/users/{user}")
    placement = hub.spawn("student1", COURSE)
    job = slurm_cluster.run("scontrol", "show", "job", placement["job_id"])
    second = slurm_cluster.run("scontrol", "show", "job", hub.spawn("student2", COURSE)["job_id"])
    ends = datetime.fromisoformat(re.search(r"EndTime=(\S+)", job)[1]).astimezone()  # type: ignore[index]

    facts = {"JobState": "RUNNING", "Reservation": "lesson", "NodeList": "c2"}
    assert dict(re.findall(FACTS, job)) == {**facts, "CPUs/Task": "2", "MinMemoryNode": "100G"}
    assert dict(re.findall(FACTS, second)) == {**facts, "CPUs/Task": "1", "MinMemoryNode": "200M"}
    assert timedelta() < lesson.end - ends <= timedelta(minutes=2)
    assert {user: offered(hub, user) for user in ("student2", "teacher", "outsider")} == {
        "student2": {"cores": True, "course-lesson": True},
        "teacher": {"cores": True, "course-lesson": True},
        "outsider": {"cores": True},
    }

    lesson.file.unlink()
    hub.restart()

    hub.wait("student1", ready=True)
    assert offered(hub, "student2") == {"cores": True}
