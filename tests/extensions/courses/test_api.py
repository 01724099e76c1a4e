"""The body of an action for a course's people."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from jupyterhub_gpuspawner.extensions.courses.api import ActionRequest, CoursePerson, course_document, parse_action
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStart, Stage, participants_of
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

BODIES: dict[str, tuple[str, object, ActionRequest]] = {
    "no body": ("start", None, ActionRequest()),
    "an empty body": ("stop", {}, ActionRequest()),
    "nobody": ("stop", {"only": []}, ActionRequest(only=())),
    "some, slowly": ("start", {"only": ["ada"], "every": 2}, ActionRequest(("ada",), every=2.0)),
    "a text": ("message", {"message": "Hello"}, ActionRequest(text="Hello")),
    "as the profile says": ("extend", {}, ActionRequest()),
    "an hour": ("extend", {"minutes": 60}, ActionRequest(minutes=60)),
}
FAULTS: dict[str, tuple[str, object, str]] = {
    "a list": ("start", [], "The body must be a JSON object."),
    "an unknown field": ("stop", {"every": 1}, "every: there is no such field; stop has only."),
    "a name": ("stop", {"only": "ada"}, "only: must be a list of user names."),
    "numbers for names": ("stop", {"only": [1]}, "only: must be a list of user names."),
    "a negative pause": ("start", {"every": -1}, "every: must be a number of seconds, at most 60."),
    "no number": ("start", {"every": float("nan")}, "every: must be a number of seconds, at most 60."),
    "an empty text": ("message", {"message": " "}, "message: must be a text."),
    "no text": ("message", {}, "message: must be a text."),
    "half a minute": ("extend", {"minutes": 0.5}, "minutes: must be a whole number from 1 to 1440."),
    "true": ("extend", {"minutes": True}, "minutes: must be a whole number from 1 to 1440."),
}


@pytest.mark.parametrize(("action", "body", "action_request"), BODIES.values(), ids=BODIES.keys())
def test_a_body_is_parsed(action: str, body: object, action_request: ActionRequest) -> None:
    """A list without names is for nobody; without the list the action is for everybody."""
    assert parse_action(body, action) == action_request


@pytest.mark.parametrize(("action", "body", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_names_the_field(action: str, body: object, fault: str) -> None:
    """And says what would be right."""
    with pytest.raises(ValueError) as raised:
        parse_action(body, action)
    assert str(raised.value) == fault


NOW = datetime(2026, 3, 2, 10, tzinfo=timezone.utc)


def test_people_are_in_the_states_of_the_page() -> None:
    """With the name of the server that is meant, and why one did not start or ended."""
    placement = PlacementDocument(job_id="7", node="g1")
    servers = [
        Server("ada", "lab", ready=True, profile="course-deep", job_id="7", placement=placement),
        Server("bob", last_profile="course-deep", ending=Ending(Cause(Kind.MEMORY), at=NOW.timestamp() - 60)),
        Server("eve", last_profile="course-deep", ending=Ending(start_failed("unreachable"), at=NOW.timestamp() - 60)),
        Server("fay", ready=True, profile="k80", job_id="8"),
    ]
    starts = {"dan": CourseStart("dan", Stage.FAILED, asked_at=NOW.timestamp() - 60, fault="Too many servers.")}
    file = CourseFile("deep", SimpleNamespace(name="Deep"))  # type: ignore[arg-type]
    course = HubCourse("deep", file, ("bob", "ada", "dan", "eve", "fay", "zoe"))

    document = course_document(
        course,
        participants_of(course, servers, now=NOW.timestamp(), starts=starts),
        starts,
        {"ada": NOW.timestamp()},
        now=NOW,
    )

    assert document.people == (
        CoursePerson("bob", "ended", fault="The job has ended."),
        CoursePerson(
            "ada",
            "running",
            "lab",
            profile="course-deep",
            job_id="7",
            node="g1",
            last_activity="2026-03-02T10:00:00+00:00",
        ),
        CoursePerson("dan", "failed", stage="failed", fault="Too many servers."),
        CoursePerson("eve", "failed", fault="The server was started, but the hub cannot reach it."),
        CoursePerson("fay", "elsewhere"),
        CoursePerson("zoe", "absent"),
    )
    assert document.totals == {"ended": 1, "running": 1, "failed": 2, "elsewhere": 1, "absent": 1}
