"""The document of a course and its people."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace

from jupyterhub_gpuspawner.courses.folder import CourseFile
from jupyterhub_gpuspawner.hub.course.api import CoursePerson, course_document
from jupyterhub_gpuspawner.hub.course.book import HubCourse
from jupyterhub_gpuspawner.hub.course.participants import CourseStart, Stage, participants_of
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

NOW = datetime(2026, 3, 2, 10, tzinfo=timezone.utc)


def test_people_are_in_the_states_of_the_page() -> None:
    """With the name of the server that is meant, and why one did not start or ended."""
    placement = PlacementDocument(job_id="7", node="g1")
    servers = [
        Server("ada", "lab", ready=True, profile="course-deep", job_id="7", placement=placement),
        Server("bob", ending=Ending("The job exceeded its memory limit.", at=NOW.timestamp() - 60, served=True)),
        Server("eve", ending=Ending("The job failed.", at=NOW.timestamp() - 60)),
    ]
    starts = {"dan": CourseStart("dan", Stage.FAILED, asked_at=NOW.timestamp() - 60, fault="Too many servers.")}
    course = HubCourse("deep", CourseFile("deep", SimpleNamespace(name="Deep")), ("bob", "ada", "dan", "eve", "zoe"))  # type: ignore[arg-type]

    document = course_document(
        course,
        participants_of(course, servers, now=NOW.timestamp(), starts=starts),
        starts,
        {"ada": NOW.timestamp()},
        now=NOW,
    )

    assert document.people == (
        CoursePerson("bob", "ended", fault="The job exceeded its memory limit."),
        CoursePerson(
            "ada",
            "running",
            "lab",
            profile="course-deep",
            job_id="7",
            node="g1",
            last_activity="2026-03-02T10:00:00Z",
        ),
        CoursePerson("dan", "failed", stage="failed", fault="Too many servers."),
        CoursePerson("eve", "failed", fault="The job failed."),
        CoursePerson("zoe", "absent"),
    )
    assert document.totals == {"ended": 1, "running": 1, "failed": 2, "absent": 1}
