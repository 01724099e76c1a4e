"""Courses in a real hub: what instructors can do, what others cannot, and the start ahead of a session."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import LIGHT, start_hub
from tests.hub.visitor import Visitor
from tests.waiting import wait_until_equal

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

LINES = """
import os
from pathlib import Path
courses = Path(os.environ["GPUSPAWNER_DEMO_FOLDER"]) / "courses"
c.GPUProfilesSpawner.courses_dir = str(courses)
c.GPUCourses.people = "[a-z]+"
c.GPUCourses.every = 0.2
c.Authenticator.manage_groups = True
def logins(authenticator, handler, authentication):
    authentication["groups"] = ["everybody"]
    return authentication
c.Authenticator.post_auth_hook = logins
for role in c.JupyterHub.load_roles:
    role["scopes"] += ["admin:groups", "tokens", "list:users"]
"""
MARKUP = "<b>bold</b> & co"
PROFILES = f"""{LIGHT}
- display_name: For zoe
  slug: closed
  slurm: {{partition: batch}}
  allow: {{users: [zoe]}}
"""
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]
)
"""A file of half a kilobyte that stands for 9 to the 10th items."""


def course_file(
    instructors: str,
    roster: str,
    *,
    begins: timedelta = timedelta(minutes=-2),
    profile: str = "{slug: light, options: {cpus: 2}}",
    **more: str,
) -> str:
    """A course with a session of five minutes that begins at this distance from now."""
    begin = datetime.now(timezone.utc) + begins
    end = begin + timedelta(minutes=5)
    if begin.date() != end.date():
        pytest.skip("a session ends on the day on which it begins")
    fields = {
        "name": f"'{MARKUP}'",
        "instructors": instructors,
        "roster": roster,
        "profile": profile,
        "zone": "UTC",
        "sessions": f"[{{date: {begin:%Y-%m-%d}, from: '{begin:%H:%M}', to: '{end:%H:%M}'}}]",
        **more,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


@pytest.fixture(scope="module")
def hub(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with courses, some of them hostile; its authenticator sets everybody's groups at each login."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "courses").mkdir()
    (folder / "courses" / "deep.yaml").write_text(course_file("ada", "[bob, eve, admin, x01]"))
    (folder / "courses" / "maths.yaml").write_text(course_file("carl", "[dora]"))
    (folder / "courses" / "closed.yaml").write_text(course_file("carl", "[hal]", profile="closed"))
    (folder / "courses" / "bomb.yaml").write_text(BOMB)
    (folder / "courses" / "secret.yaml").symlink_to("/etc/passwd")
    for_ever = "[{weekly: [friday], first: 2026-03-06, last: 9999-12-31, from: '9:00', to: '10:00'}]"
    (folder / "courses" / "for-ever.yaml").write_text(course_file("carl", "[dora]", sessions=for_ever))
    (folder / "courses" / "long.yaml").write_text(course_file("carl", "{file: long.csv}"))
    (folder / "courses" / "long.csv").write_text(f"username\n{'x' * 131_073}\n")
    (folder / "courses" / "crowd.yaml").write_text(course_file(str(["g[1-2000]"] * 300), "[dora]"))
    with ExitStack() as stack:
        hub = start_hub(stack, slurm_cluster, folder, lines=LINES, profiles=PROFILES)
        for name in ("ada", "carl"):
            Visitor(hub, name)
        wait_until_equal(lambda: set(roles(hub, "ada")), {"user", "course-deep-instructors"})
        wait_until_equal(
            lambda: set(roles(hub, "carl")), {"user", "course-maths-instructors", "course-closed-instructors"}
        )
        yield hub


def roles(hub: HubProcess, user: str) -> list[str]:
    """The roles of a user."""
    return list(hub.api("GET", f"/users/{user}").json()["roles"])


def read_anew(hub: HubProcess, user: str) -> set[str]:
    """The roles of a user, after a request that has the hub read the courses' folder."""
    hub.api("GET", "/gpuspawner/courses")
    return set(roles(hub, user))


def token_of(hub: HubProcess, user: str) -> str:
    """A new token with all that a user may do."""
    answer = hub.api("POST", f"/users/{user}/tokens", {"note": "for a test"})
    return str(answer.json()["token"])


def people(hub: HubProcess, course: str, token: str) -> dict[str, str]:
    """The state of each participant."""
    document = hub.api("GET", f"/gpuspawner/courses/{course}", token=token).json()
    return {person["user"]: person["state"] for person in document["people"]}


def act(hub: HubProcess, course: str, action: str, token: str, **body: Any) -> dict[str, str]:
    """What became of an action for each person."""
    answer = hub.api("POST", f"/gpuspawner/courses/{course}/{action}", body, token=token)
    assert answer.ok, answer.text
    return {outcome["user"]: outcome["result"] for outcome in answer.json()["outcomes"]}


def run(hub: HubProcess, token: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line, with an instructor's token."""
    return subprocess.run(
        [Path(sys.executable).parent / "gpuspawner", "course", *words, "--hub", hub.url],
        env={**os.environ, "JUPYTERHUB_API_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
    )


def test_instructors_see_their_course_alone(hub: HubProcess) -> None:
    """Names that may not be on a roster are left out and told; another's course does not exist for an instructor."""
    token = token_of(hub, "ada")

    courses = hub.api("GET", "/gpuspawner/courses", token=token).json()["courses"]

    assert [(course["slug"], course["name"], course["people"]) for course in courses] == [("deep", MARKUP, 2)]
    assert courses[0]["faults"] == [
        "The roster names administrators of the hub, who are left out: admin.",
        "The roster names people whom this hub does not allow on courses: x01.",
    ]
    assert people(hub, "deep", token) == {"bob": "absent", "eve": "absent"}
    assert [user["name"] for user in hub.api("GET", "/users", token=token).json()] == ["bob", "eve"]
    assert hub.api("GET", "/gpuspawner/courses/maths", token=token).status_code == 404


ATTACKS: Mapping[str, tuple[str, str, str, Any, int]] = {
    "an instructor of another course": ("carl", "POST", "/gpuspawner/courses/deep/stop", None, 404),
    "a participant": ("bob", "POST", "/gpuspawner/courses/deep/stop", None, 404),
    "a participant who reads": ("bob", "GET", "/gpuspawner/courses/deep", None, 404),
    "an instructor who starts for others": ("ada", "POST", "/users/dora/server", None, 404),
    "an instructor who chooses what runs": ("ada", "POST", "/users/bob/server", {"profile": "light", "cpus": 2}, 404),
    "an instructor who names a server": ("ada", "POST", "/users/bob/servers/x", {"profile": "light"}, 404),
    "an instructor who repeats what a participant chose": ("carl", "POST", "/users/dora/server", None, 404),
    "an instructor who starts past the course": ("ada", "POST", "/users/bob/server", {"profile": "course-deep"}, 404),
    "an instructor who stops past the course": ("ada", "DELETE", "/users/bob/server", None, 404),
    "an instructor who stops a named server": ("ada", "DELETE", "/users/bob/servers/x", None, 404),
    "an instructor who extends past the course": ("ada", "POST", "/gpuspawner/servers/bob/extend", None, 404),
    "an instructor who stores a choice": ("ada", "PATCH", "/users/bob/server", {"user_options": {"cpus": 2}}, 404),
    "an instructor who stores a server": ("ada", "PUT", "/users/bob/servers/x", {"user_options": {"cpus": 2}}, 404),
    "an instructor who chooses for others": ("ada", "POST", "/users/dora/server", {"profile": "light"}, 404),
    "an instructor who wants a participant's token": ("ada", "POST", "/users/bob/tokens", {}, 403),
    "an instructor who enlarges the group": ("ada", "POST", "/groups/course-deep/users", {"users": ["dora"]}, 403),
    "an instructor who reads the hub's state": ("ada", "GET", "/services", None, 403),
}


@pytest.mark.parametrize(("user", "method", "path", "body", "status"), ATTACKS.values(), ids=ATTACKS.keys())
def test_nobody_goes_beyond_their_course(
    user: str, method: str, path: str, body: Any, status: int, hub: HubProcess
) -> None:
    """A course of others is answered like one that does not exist; JupyterHub itself refuses the rest."""
    token = token_of(hub, user)

    answer = hub.api(method, path, body, token=token)

    assert answer.status_code == status, answer.text


def test_an_instructor_has_no_way_into_a_server_nor_to_the_admins_page(hub: HubProcess) -> None:
    """The scopes of an instructor in full: the participants' names, activity and servers, and nothing else."""
    scopes = hub.api("GET", "/user", token=token_of(hub, "ada")).json()["scopes"]

    ours = sorted(scope for scope in scopes if "course-" in scope)
    assert ours == sorted(
        f"{scope}!group=course-deep"
        for scope in (
            "custom:gpuspawner:teach",
            "list:users",
            "read:servers",
            "read:users:activity",
            "read:users:name",
        )
    )
    assert [
        scope for scope in scopes if "!user=ada" not in scope and "!server" not in scope and scope not in ours
    ] == []


def test_an_instructor_has_no_right_to_a_participants_server_that_is_not_of_the_course(hub: HubProcess) -> None:
    """Neither on the course's page nor past it; eve may have been added to the course for that."""
    token = token_of(hub, "ada")
    hub.spawn("eve", {"profile": "light"})
    extend = hub.api("POST", "/gpuspawner/servers/eve/extend", {"minutes": 5}, token=token)
    stopped = hub.api("DELETE", "/users/eve/server", token=token)
    ada = Visitor(hub, "ada")
    page = ada.session.post(f"{hub.url}/hub/gpuspawner/stop/eve", data={"_xsrf": ada._xsrf}, timeout=60)
    course = [act(hub, "deep", action, token, only=["eve"]) for action in ("stop", "extend", "start")]

    assert (extend.status_code, stopped.status_code, page.status_code) == (404, 404, 404)
    assert course == [{"eve": "unchanged"}, {"eve": "unchanged"}, {"eve": "refused"}]
    assert (people(hub, "deep", token)["eve"], (hub.server("eve") or {}).get("ready")) == ("elsewhere", True)
    hub.end("eve")


def test_hostile_course_files_harm_no_other_course(hub: HubProcess) -> None:
    """They are told to the administrator, without their content.

    A bomb of aliases, a link to a file of the hub's machine, a course for ever, a name of 131,073 characters, and
    600,000 instructors.
    """
    courses = hub.api("GET", "/gpuspawner/courses").json()["courses"]

    faults = {course["slug"]: course["faults"] for course in courses}
    assert {slug: bool(messages) for slug, messages in faults.items()} == {
        "bomb": True,
        "closed": False,
        "crowd": True,
        "deep": True,
        "for-ever": True,
        "long": True,
        "maths": False,
        "secret": True,
    }
    assert "root:" not in str(faults)


def test_a_course_does_not_open_a_profile(hub: HubProcess) -> None:
    """A participant whom the profile does not admit is not started for, and the instructor reads why."""
    token = token_of(hub, "carl")

    assert act(hub, "closed", "start", token) == {"hal": "begun"}
    wait_until_equal(lambda: people(hub, "closed", token), {"hal": "failed"})

    (hal,) = hub.api("GET", "/gpuspawner/courses/closed", token=token).json()["people"]
    assert hal["stage"] == "failed"
    assert hal["fault"].startswith(f"You cannot use {MARKUP} now: it is reserved for other users.")


def test_a_login_that_resets_the_groups_leaves_people_in_their_course(hub: HubProcess) -> None:
    """With manage_groups JupyterHub removes a participant from the course's group at each login."""
    Visitor(hub, "eve")

    wait_until_equal(lambda: set(hub.api("GET", "/users/eve").json()["groups"]), {"everybody", "course-deep"})


def test_an_instructor_starts_tells_and_stops(hub: HubProcess) -> None:
    """Start, message and stop from the command line: each person's result, and what participants then see."""
    token = token_of(hub, "ada")
    bob, eve = Visitor(hub, "bob"), Visitor(hub, "eve")

    started = run(hub, token, "start", "deep", "--every", "0.2")
    assert (started.returncode, sorted(line.split()[:2] for line in started.stdout.splitlines())) == (
        0,
        [["begun", "bob:"], ["begun", "eve:"]],
    )
    wait_until_equal(lambda: people(hub, "deep", token), {"bob": "running", "eve": "running"})
    assert act(hub, "deep", "start", token, only=["bob", "dora"]) == {"bob": "unchanged", "dora": "refused"}
    assert act(hub, "deep", "message", token, message=f"Please save {MARKUP}", only=["bob"]) == {"bob": "done"}
    home = bob.look("/hub/home")
    assert f"Please save {MARKUP}" in home.text
    assert "ada" in home.text
    assert "Please save" not in eve.look("/hub/home").text
    extended = run(hub, token, "extend", "deep", "--only", "eve", "--minutes", "5")
    assert extended.stdout == "done      eve: The server has 5 min more.\n"
    report = run(hub, token, "report", "deep")
    assert [line.split()[:2] for line in report.stdout.splitlines()[-2:]] == [["bob", "running"], ["eve", "running"]]
    stopped = run(hub, token, "stop", "deep", "--only", "bob")
    assert stopped.stdout.split()[:2] == ["begun", "bob:"]
    wait_until_equal(lambda: people(hub, "deep", token), {"bob": "absent", "eve": "running"})
    assert "by ada" in bob.look("/hub/home").text
    act(hub, "deep", "stop", token)
    wait_until_equal(lambda: people(hub, "deep", token), {"bob": "absent", "eve": "absent"})


@pytest.mark.nightly
def test_servers_are_started_ahead_once_and_stopped_where_nobody_comes(hub: HubProcess) -> None:
    """Across a kill of the hub: those who stop their server are left alone, and unvisited servers are stopped.

    The page goes on with what the instructor did before.
    """
    deadline = f"{datetime.now(timezone.utc).second + 30}s"  # after the session's beginning, which is a full minute
    file = course_file("ada", "[fay, gus]", begins=timedelta(0), start_ahead="10min", unvisited_after=deadline)
    (hub.folder / "courses" / "ahead.yaml").write_text(file)
    token = token_of(hub, "ada")
    wait_until_equal(lambda: hub.api("GET", "/gpuspawner/courses/ahead", token=token).status_code, 200)
    wait_until_equal(lambda: people(hub, "ahead", token), {"fay": "running", "gus": "running"})
    hub.end("fay")
    ada, page = Visitor(hub, "ada"), "/hub/gpuspawner/course/ahead"
    message = {"these": "message\nfay", "text": "Save now", "confirmed": "yes", "_xsrf": ada._xsrf}
    assert ada.session.post(f"{hub.url}{page}", data=message, timeout=60).ok

    hub.restart()

    wait_until_equal(lambda: set(roles(hub, "ada")), {"user", "course-deep-instructors", "course-ahead-instructors"})
    assert "ada sent a message to 1 person." in ada.look(page).text
    assert re.findall("Deleting role .*|.*SAWarning.*", hub.log.read_text()) == []
    wait_until_equal(lambda: people(hub, "ahead", token), {"fay": "absent", "gus": "absent"}, seconds=100)
    stages = {
        person["user"]: person["stage"]
        for person in hub.api("GET", "/gpuspawner/courses/ahead", token=token).json()["people"]
    }
    assert stages == {"fay": "started", "gus": "unvisited"}
    assert "Nobody opened this server" in Visitor(hub, "gus").look("/hub/home").text
    (hub.folder / "courses" / "ahead.yaml").unlink()
    wait_until_equal(lambda: read_anew(hub, "ada"), {"user", "course-deep-instructors"})


def test_an_instructor_has_the_seats_of_the_next_session_counted(hub: HubProcess) -> None:
    """By Slurm's scheduler, beside the hub; the page shows the answer with its time, and others cannot ask for it."""
    file = course_file("ada", "[fay, gus]", begins=timedelta(minutes=20))
    (hub.folder / "courses" / "soon.yaml").write_text(file)
    wait_until_equal(lambda: "course-soon-instructors" in read_anew(hub, "ada"), True)
    ada, carl, page = Visitor(hub, "ada"), Visitor(hub, "carl"), "/hub/gpuspawner/course/soon"
    answers = [
        visitor.session.post(f"{hub.url}{page}/check", data={"_xsrf": visitor._xsrf}, timeout=60)
        for visitor in (ada, carl)
    ]

    assert [answer.status_code for answer in answers] == [200, 404]
    wait_until_equal(lambda: "for the next session: 2 people, 3 or more fit." in ada.look(page).text, True)
    (hub.folder / "courses" / "soon.yaml").unlink()
    wait_until_equal(lambda: "course-soon-instructors" in read_anew(hub, "ada"), False)


def test_a_course_that_goes_takes_its_rights_with_it(hub: HubProcess) -> None:
    """Without its file a course has no group and no role; a group of that name made by an admin is not taken over."""
    usual = {"user", "course-maths-instructors", "course-closed-instructors"}
    brief, own = (hub.folder / "courses" / f"{name}.yaml" for name in ("brief", "own"))
    brief.write_text(course_file("carl", "[dora]"))
    wait_until_equal(lambda: read_anew(hub, "carl"), {*usual, "course-brief-instructors"})
    brief.unlink()
    hub.api("POST", "/groups/course-own", {})
    own.write_text(course_file("carl", "[dora]"))

    wait_until_equal(lambda: read_anew(hub, "carl"), usual)
    groups = {group["name"]: group["users"] for group in hub.api("GET", "/groups").json()}
    assert groups["course-own"] == []
    assert "course-brief" not in groups

    own.unlink()
    hub.api("DELETE", "/groups/course-own")
    wait_until_equal(
        lambda: "own" in {course["slug"] for course in hub.api("GET", "/gpuspawner/courses").json()["courses"]}, False
    )
