"""*More time*: the end of a running server moves in Slurm, on its card, on the map and in REST."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.more_time.extending import FRESH
from tests.fixtures.hubs import COMMAND, StartHub
from tests.fixtures.slurm import hanging
from tests.hub.visitor import Page, Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

HALF_AN_HOUR = 1800
PROFILES = f"""
- display_name: A GPU
  slug: gpu
  slurm: {{partition: gpu, gpus: 1, gpu_type: k80, cpus: 1, memory: 100M, time: "0:20:00"}}
  extend: {{by: 30min, times: 2}}
  command: {COMMAND}
- display_name: Fixed
  slug: fixed
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:20:00"}}
  command: {COMMAND}
"""
ROLES = """
c.GPUSlurmSpawner.slurm_timeout = 5
c.JupyterHub.load_roles += [
    {"name": "teacher", "users": ["tea"], "scopes": ["servers!user=ada", "read:users:name!user=ada"]},
    {"name": "reader", "users": ["rea"], "scopes": ["read:servers", "access:servers"]},
    {"name": "user", "scopes": ["self", "shares!user", "read:users:name!user=fay"]},
]
c.Authenticator.allowed_users = {"ada", "ben", "fay", "tea", "rea"}
"""


LOSES = """#!/bin/sh
{real}/scontrol "$@" || exit
if [ "$1" = update ] && [ -e {folder}/loses ]; then
  echo "slurm_update error: Unable to contact slurm controller" >&2
  exit 1
fi
"""
"""An scontrol whose answer to an update can be lost after Slurm has done it."""


@pytest.fixture(scope="module")
def commands(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Slurm's commands; with a file ``loses`` in it, answers to updates are lost."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("sbatch", "squeue", "scancel", "sinfo"):
        (folder / name).symlink_to(f"{slurm_cluster.bin_dir}/{name}")
    (folder / "scontrol").write_text(LOSES.format(real=slurm_cluster.bin_dir, folder=folder))
    (folder / "scontrol").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, commands: Path) -> HubProcess:
    """A hub whose account is SlurmUser, with a profile that may be extended twice by half an hour."""
    lines = f"{ROLES}c.GPUSlurmSpawner.slurm_bin_dir = {str(commands)!r}\n"
    return start_light_hub(lines=lines, profiles=PROFILES)


@pytest.fixture
def ada(hub: HubProcess, slurm_cluster: PrivateSlurm) -> Iterator[Visitor]:
    """Ada, whose server runs."""
    visitor = Visitor(hub, "ada")  # signing in leads to a server that runs
    hub.spawn("ada", {"profile": "gpu"})
    wait_for_the_button(visitor)
    yield visitor
    hub.end("ada")


def wait_for_the_button(visitor: Visitor) -> None:
    """Until Slurm has been asked since the job, or the hub, has started, the card has none."""
    wait_until(lambda: card(visitor).soup.select(".gpuspawner-more-time"), lambda: card(visitor).text, seconds=60)


def limit(slurm: PrivateSlurm, job: str) -> int:
    """The job's time limit in Slurm, in seconds."""
    hours, minutes, seconds = f"0:0:{slurm.run('squeue', '-h', '-j', job, '-o', '%l').strip()}".split(":")[-3:]
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def job_of(hub: HubProcess, user: str) -> str:
    """The id of a user's job."""
    return str(hub.api("GET", f"/gpuspawner/placement/{user}").json()["job_id"])


def end(hub: HubProcess, user: str) -> float:
    """When the server ends by REST, in seconds since the epoch."""
    return datetime.fromisoformat(hub.api("GET", f"/gpuspawner/placement/{user}").json()["ends_at"]).timestamp()


def card(visitor: Visitor) -> Page:
    """The home page."""
    return visitor.look("/hub/home")


def button(page: Page) -> tuple[bool, str]:
    """Whether *More time* can be clicked, and what it says beside it."""
    form = page.soup.select_one(".gpuspawner-more-time")
    assert form is not None, page.text
    clickable = form.button
    assert clickable is not None
    return "disabled" not in clickable.attrs, " ".join(form.select("span")[-1].get_text(" ").split())


def click(visitor: Visitor, owner: str = "", **fields: str) -> requests.Response:
    """A click on *More time*, without JavaScript."""
    return visitor.click(f"/hub/gpuspawner/extend/{owner or visitor.name}", **fields)


def until(page: Page) -> float:
    """The end that the card shows, in seconds since the epoch."""
    shown = page.soup.select_one("[data-ends]")
    assert shown is not None, page.text
    return datetime.fromisoformat(str(shown["data-ends"])).timestamp()


def test_the_end_moves_everywhere_at_once(hub: HubProcess, slurm_cluster: PrivateSlurm, ada: Visitor) -> None:
    """Twice by half an hour, as the profile allows; then the button is grey and a click is refused."""
    job, before = job_of(hub, "ada"), end(hub, "ada")
    possible, words = button(card(ada))

    assert possible, words
    assert words.startswith("30 min more, until ")
    assert words.endswith(" You can do this twice.")

    clicked = click(ada)
    shown = card(ada)

    assert (clicked.status_code, clicked.headers["Location"]) == (303, "/hub/home")
    assert limit(slurm_cluster, job) == 20 * 60 + HALF_AN_HOUR
    assert end(hub, "ada") == before + HALF_AN_HOUR
    assert until(shown) == before + HALF_AN_HOUR
    assert "Extended by 30 min at " in shown.text
    assert button(shown)[1].endswith(" You can do this once.")
    assert re.search(r"\b4\d min left", Visitor(hub, "admin").look("/hub/gpuspawner/cluster?text=ada").text)

    answer = hub.api("POST", "/gpuspawner/servers/ada/extend", token=ada.token())

    assert answer.json() == {
        "version": 1,
        "possible": False,
        "ends_at": answer.json()["ends_at"],
        "seconds": 0,
        "until": answer.json()["until"],
        "uses_left": 0,
        "reason": "used",
        "words": "",
        "message": "This server cannot be extended again.",
        "extended": HALF_AN_HOUR,
    }
    assert button(card(ada)) == (False, "This server cannot be extended again.")

    refused = click(ada)

    assert (refused.status_code, "This server cannot be extended again." in refused.text) == (409, True)
    assert limit(slurm_cluster, job) == 20 * 60 + 2 * HALF_AN_HOUR


def test_staff_extend_beside_the_profiles_rule(hub: HubProcess, slurm_cluster: PrivateSlurm, ada: Visitor) -> None:
    """By any number of minutes; the card says who it was, and the user's own extensions are left."""
    job, teacher = job_of(hub, "ada"), Visitor(hub, "tea")
    page = teacher.look("/hub/gpuspawner/extend/ada")
    done = click(teacher, "ada", minutes="45")

    assert page.soup.select_one("input[name=minutes]") is not None
    assert (done.status_code, done.headers["Location"]) == (303, "/hub/gpuspawner/extend/ada")
    assert limit(slurm_cluster, job) == 65 * 60
    assert ", by tea." in card(ada).text
    assert button(card(ada))[1].endswith(" You can do this twice.")


def test_a_friend_extends_as_the_servers_user_does(hub: HubProcess, slurm_cluster: PrivateSlurm, ada: Visitor) -> None:
    """With whom a server is shared has its profile's extensions, together with its user; the same over REST."""
    friend = Visitor(hub, "fay")
    share = {"user": "fay", "scopes": ["servers!server=ada/"]}
    shared = hub.api("POST", "/shares/ada/", share, token=ada.token())
    inputs = friend.look("/hub/gpuspawner/extend/ada").soup.select("input[name=minutes]")
    days = click(friend, "ada", minutes="1440")
    first = click(friend, "ada")
    second = hub.api("POST", "/gpuspawner/servers/ada/extend", token=friend.token())
    third = hub.api("POST", "/gpuspawner/servers/ada/extend", {"minutes": 1440}, token=friend.token())

    assert (shared.status_code, inputs) == (200, [])
    assert (days.status_code, "Choose at most 30 minutes." in days.text) == (400, True)
    assert (first.status_code, first.headers["Location"]) == (303, "/hub/gpuspawner/extend/ada")
    assert (second.status_code, second.json()["uses_left"]) == (200, 0)
    assert (third.status_code, third.json()["message"]) == (409, "This server cannot be extended again.")
    assert limit(slurm_cluster, job_of(hub, "ada")) == 20 * 60 + 2 * HALF_AN_HOUR


def test_the_servers_own_token_extends_it_and_no_other(hub: HubProcess, ada: Visitor) -> None:
    """The token with which a program in the session asks is enough for this server, and for nothing else."""
    hub.spawn("ben", {"profile": "gpu"})
    try:
        token = requests.get(f"{hub.url}/user/ada/environ", timeout=30).json()["JUPYTERHUB_API_TOKEN"]
        own = hub.api("POST", "/gpuspawner/servers/ada/extend", {"minutes": 5}, token=token)
        others = [
            hub.api("POST", f"/gpuspawner/servers/{path}/extend", token=token).status_code
            for path in ("ben", "ada/other", "nobody")
        ]
    finally:
        hub.end("ben")

    assert (own.status_code, own.json()["extended"], own.json()["uses_left"]) == (200, 300, 1)
    assert others == [403, 403, 403]


def test_a_session_is_told_to_its_own_token_alone(hub: HubProcess, ada: Visitor) -> None:
    """JupyterLab on the node asks so: end, resources, more time; other tokens are refused, and so are too many."""
    token = requests.get(f"{hub.url}/user/ada/environ", timeout=30).json()["JUPYTERHUB_API_TOKEN"]
    answer = hub.api("GET", "/gpuspawner/session", token=token)
    document = answer.json()
    picture = hub.api("GET", "/gpuspawner/session/picture", token=token)

    assert answer.status_code == 200
    assert document["ends_at"] == hub.api("GET", "/gpuspawner/placement/ada").json()["ends_at"]
    assert document["more_time"] == hub.api("GET", "/gpuspawner/servers/ada/extend", token=token).json()
    assert {name: document[name] for name in ("version", "profile", "job_id", "messages", "notices", "saves")} == {
        "version": 1,
        "profile": "A GPU",
        "job_id": job_of(hub, "ada"),
        "messages": [],
        "notices": [30, 10, 2],
        "saves": [10, 2],
    }
    assert (picture.status_code, picture.headers["Content-Type"]) == (200, "image/svg+xml")
    assert [
        hub.api("GET", "/gpuspawner/session", token=other_token).status_code for other_token in (ada.token(), hub.token)
    ] == [
        403,
        403,
    ]
    refused = [hub.api("GET", "/gpuspawner/session", token=token) for _ in range(40)][-1]
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)


REFUSED: dict[str, tuple[str, object, int, dict[str, str]]] = {
    "more than the profile says at once": ("ada", {"minutes": 31}, 400, {"field": "minutes"}),
    "no minutes": ("ada", {"minutes": 0}, 400, {"field": "minutes"}),
    "fewer minutes": ("ada", {"minutes": -30}, 400, {"field": "minutes"}),
    "a year": ("ada", {"minutes": 525600}, 400, {"field": "minutes"}),
    "no number": ("ada", {"minutes": "30"}, 400, {}),
    "true": ("ada", {"minutes": True}, 400, {}),
    "a part of a minute": ("ada", {"minutes": 1.5}, 400, {}),
    "another field": ("ada", {"until": "tomorrow"}, 400, {}),
    "a list": ("ada", [30], 400, {}),
    "a long body": ("ada", {"minutes": 1, "x": "x" * 2000}, 413, {}),
    "somebody who may only look": ("rea", {"minutes": 5}, 404, {}),
}


def test_what_is_refused_changes_nothing(hub: HubProcess, slurm_cluster: PrivateSlurm, ada: Visitor) -> None:
    """The answer names the field; Slurm is not asked."""
    job = job_of(hub, "ada")
    tokens = {"ada": ada.token(), "rea": Visitor(hub, "rea").token()}
    answers = {
        name: hub.api("POST", "/gpuspawner/servers/ada/extend", body, token=tokens[who])
        for name, (who, body, *_) in REFUSED.items()
    }

    assert {name: answer.status_code for name, answer in answers.items()} == {
        name: status for name, (_, _, status, _) in REFUSED.items()
    }
    assert {name: answers[name].json() | fields for name, (*_, fields) in REFUSED.items()} == {
        name: answer.json() for name, answer in answers.items()
    }
    assert click(ada, minutes="9" * 20).status_code == 400
    assert ada.session.post(f"{hub.url}/hub/gpuspawner/extend/ada", timeout=30).status_code == 403
    assert limit(slurm_cluster, job) == 20 * 60


def test_a_profile_without_it_has_no_button(hub: HubProcess) -> None:
    """And REST refuses the user, while staff may extend all the same."""
    ben = Visitor(hub, "ben")
    hub.spawn("ben", {"profile": "fixed"})
    try:
        offered = card(ben).soup.select(".gpuspawner-more-time")
        extension = hub.api("GET", "/gpuspawner/servers/ben/extend", token=ben.token()).json()
        refused = hub.api("POST", "/gpuspawner/servers/ben/extend", token=ben.token())
        by_staff = hub.api("POST", "/gpuspawner/servers/ben/extend", {"minutes": 10})
    finally:
        hub.end("ben")

    assert offered == []
    assert extension == {"version": 1, "possible": False, "ends_at": extension["ends_at"]}
    assert (refused.status_code, refused.json()["field"]) == (400, "profile")
    assert (by_staff.status_code, by_staff.json()["extended"]) == (200, 600)


def test_maintenance_cuts_it_short(hub: HubProcess, slurm_cluster: PrivateSlurm, ada: Visitor) -> None:
    """The extension ends where a reservation for maintenance begins, and after it there is none."""
    start = int(end(hub, "ada")) + 10 * 60 + 30
    when = datetime.fromtimestamp(start).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    options = ["Duration=60", "Nodes=ALL", "Users=root", "Flags=MAINT,IGNORE_JOBS"]
    slurm_cluster.run("scontrol", "create", "reservation", "ReservationName=repair", f"StartTime={when}", *options)
    try:
        time.sleep(FRESH)  # what an earlier test has read of the cluster is new until then
        done = click(ada)
        shown = card(ada)
    finally:
        slurm_cluster.run("scontrol", "delete", "ReservationName=repair")

    assert done.status_code == 303
    assert limit(slurm_cluster, job_of(hub, "ada")) == 30 * 60
    assert button(shown) == (False, "No more time: maintenance of the node begins then.")


def test_slurm_does_not_answer(hub: HubProcess, slurm_cluster: PrivateSlurm, ada: Visitor) -> None:
    """The page says so with 503, the server keeps its end, and the extension is not used up."""
    job = job_of(hub, "ada")
    with hanging(slurm_cluster):
        failed = click(ada)

    assert (failed.status_code, "Slurm is not responding at the moment." in failed.text) == (503, True)
    assert limit(slurm_cluster, job) == 20 * 60
    assert click(ada).status_code == 303
    assert button(card(ada))[1].endswith(" You can do this once.")


def test_an_answer_that_is_lost_after_slurm_has_extended_the_job(
    hub: HubProcess, slurm_cluster: PrivateSlurm, ada: Visitor, commands: Path
) -> None:
    """The hub looks at the job, and takes the extension for what it is: done, once."""
    (commands / "loses").touch()
    try:
        done = click(ada)
    finally:
        (commands / "loses").unlink()

    assert done.status_code == 303
    assert limit(slurm_cluster, job_of(hub, "ada")) == 20 * 60 + HALF_AN_HOUR
    assert button(card(ada))[1].endswith(" You can do this once.")


def test_a_restarted_hub_knows_how_often_a_server_was_extended(hub: HubProcess, ada: Visitor) -> None:
    """What the profile allowed and what was used are in the server's state."""
    click(ada)
    hub.kill()
    hub.start()
    wait_for_the_button(ada)

    assert button(card(ada))[1].endswith(" You can do this once.")
