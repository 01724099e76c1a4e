"""The page on which a server is chosen, over HTTP: what a link can do, and what needs a click."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import COMMAND, StartHub
from tests.hub.visitor import Page, Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.oldest]

QUERIES = {
    "no options": "",
    "a profile": "?opt-profile=light&opt-cpus=2",
    "KubeSpawner's names": "?opt-profile=light&opt-profile-option-light--cpus=2",
    "without the prefix, as before JupyterHub 6": "?profile=light&cpus=2",
    "a profile that there is not": "?opt-profile=nope",
    "not UTF-8": "?opt-profile=%ff%fe",
    "an empty name": "?opt-=1",
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_no_address_starts_anything(light_hub: HubProcess, query: str) -> None:
    """Status 200 with the form, whatever the query says."""
    page = Visitor(light_hub, "ann").look(f"/hub/spawn{query}")

    assert page.status == 200
    assert page.soup.select_one("#spawn_form") is not None
    assert light_hub.server("ann") is None


def test_a_link_leads_through_the_sign_in_to_the_form(light_hub: HubProcess) -> None:
    """The choice survives the login page; the form is sent to an address without it."""
    page = Visitor(light_hub, "bea").look("/hub/spawn?opt-profile=light&opt-cpus=3")
    field = page.soup.select_one("[name=profile-option-light--cpus]")
    form = page.soup.select_one("#spawn_form")

    assert field is not None
    assert field["value"] == "3"
    assert form is not None
    assert "opt-" not in str(form["action"])


def test_a_link_to_another_choice_says_that_a_server_is_in_its_place(light_hub: HubProcess) -> None:
    """On the home page, with what can be done; a link to the choice that runs leads to the server."""
    visitor = Visitor(light_hub, "gus")
    light_hub.spawn("gus", {"profile": "light", "cpus": 2})
    try:
        other = visitor.look("/hub/spawn?opt-profile=k80-node&next=%2Fuser%2Fgus%2Ftree")
        more = visitor.look("/hub/spawn?opt-profile=light&opt-cpus=3")
        same = [
            visitor.session.get(f"{light_hub.url}/hub/spawn?{query}", allow_redirects=False, timeout=30).headers
            for query in ("opt-profile=light&opt-cpus=2", "opt-profile=light&profile-option-light--cpus=2")
        ]
        question = visitor.look(str(_link(other, "Switch")))
        stopped = visitor.click("/hub/gpuspawner/stop/gus", link="opt-profile=k80-node")
    finally:
        light_hub.end("gus")
    usable = visitor.look("/hub/home?link=opt-profile%3Dk80-node&server=&next=%2Fuser%2Fgus%2Ftree")
    hostile = visitor.look("/hub/home?link=opt-profile%3D%22%3E%3Cb%3E&server=")

    assert _notice(other).startswith("This link asks for The K80 node: 4 ")
    assert " K80, 12 GB " in _notice(other)
    assert " 24 cores " in _notice(other)
    assert " 10 min. Nothing was started: Light is running." in _notice(other)
    assert _link(other, "Start it beside") == "/hub/spawn/gus/k80-node?opt-profile=k80-node&next=%2Fuser%2Fgus%2Ftree"
    assert "Light: 3 cores" in _notice(more)
    assert urlsplit(same[0]["Location"]).path == "/user/gus/"
    assert question.soup.select_one('form input[name="link"][value="opt-profile=k80-node"]') is not None
    assert stopped.headers["Location"] == "/hub/spawn/gus?opt-profile=k80-node"
    assert _link(usable, "Open the link again") == "/hub/spawn/gus?opt-profile=k80-node&next=%2Fuser%2Fgus%2Ftree"
    assert hostile.soup.select("#gpuspawner-unused-link b") == []


CANNOT = {
    "opt-profile=nope": "There is no profile 'nope'.",
    "opt-profile=light&opt-cpus=9": "Cores: '9' is not allowed: it must be a number from 1 to 4.",
    "opt-profile=light&opt-gpus=1": "Light has no option 'gpus'. Its options are cpus.",
}


def test_a_link_that_cannot_work_says_why_also_while_a_server_runs(light_hub: HubProcess) -> None:
    """In the words of the form; there is nothing to click, since no click could help."""
    visitor = Visitor(light_hub, "gesa")
    light_hub.spawn("gesa", {"profile": "light"})
    try:
        pages = {query: visitor.look(f"/hub/spawn?{query}") for query in CANNOT}
    finally:
        light_hub.end("gesa")

    assert {query: _notice(page) for query, page in pages.items()} == {
        query: f"This link does not work for you. {reason}" for query, reason in CANNOT.items()
    }


def _notice(page: Page) -> str:
    notice = page.soup.select_one("#gpuspawner-unused-link")
    return notice.get_text(" ", strip=True) if notice is not None else ""


def _link(page: Page, text: str) -> str:
    """The address of the link with this text in the notice."""
    links = page.soup.select("#gpuspawner-unused-link a")
    return next((str(link["href"]) for link in links if text in link.get_text()), "")


def test_a_click_with_bytes_that_are_no_text(light_hub: HubProcess) -> None:
    """It is refused like any other, without an internal error."""
    visitor = Visitor(light_hub, "emil")
    page = visitor.start({"profile": b"\xff\xfe"})

    assert page.status == 400
    assert "There is no profile" in page.text


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"profile": "light", "cpus": ["1", "2"]}, "cpus is given twice. Give one value."),
        ({"cpus": "1", "profile-option-light--cpus": "1"}, "Options were given without a profile. Choose a profile."),
        ({"profile": "light", "two words\n": "1"}, "'two words\\n' is not a valid option name."),
        ({"profile": "light", "cpus": "9"}, "Cores: '9' is not allowed: it must be a number from 1 to 4."),
    ],
    ids=["twice", "no profile", "no name", "not allowed"],
)
def test_a_form_that_comes_back_was_refused(light_hub: HubProcess, fields: dict[str, Any], error: str) -> None:
    """Its status is 400 in every case; JupyterHub sends 200 where a form cannot be parsed."""
    page = Visitor(light_hub, "emil").start(fields)

    assert (page.status, page.error) == (400, error)


@pytest.mark.parametrize(
    ("user", "server", "fields"),
    [
        ("cleo", "", {"profile": "light", "profile-option-light--cpus": "9"}),
        ("cleo", "second", {"profile": "light", "cpus": "9"}),
        ("lena", "", {"profile": "light", "cpus": "9"}),
    ],
    ids=["the default server", "a named server", "longer than JupyterHub waits"],
)
def test_a_refused_click_keeps_what_was_filled_in(
    light_hub: HubProcess, user: str, server: str, fields: dict[str, str]
) -> None:
    """Status 400; the error at its field and at the top with a link to the field; value and address are kept."""
    visitor = Visitor(light_hub, user)
    page = visitor.start(fields, server=server)
    field = page.soup.select_one("#profile-option-light--cpus")
    link = page.soup.select_one(".spawn-error-msg a")
    form = page.soup.select_one("#spawn_form")

    assert page.status == 400
    assert page.error == "Cores: '9' is not allowed: it must be a number from 1 to 4."
    assert link is not None
    assert link["href"] == "#profile-option-light--cpus"
    assert field is not None
    assert (field["value"], field["aria-invalid"]) == ("9", "true")
    assert form is not None
    assert str(form["action"]).startswith(f"/hub/spawn/{user}/{server}" if server else "/hub/spawn")


def test_a_link_may_say_what_opens_then(light_hub: HubProcess) -> None:
    """``next`` is passed on by the form and the waiting page to the page that opens on the server."""
    visitor = Visitor(light_hub, "fay")
    there = "/hub/user-redirect/lab/tree/exercises/start.ipynb"
    form = visitor.look(f"/hub/spawn?opt-profile=light&next={quote(there, safe='')}")
    waiting = visitor.send(form, {"profile": "light"})
    light_hub.wait("fay", ready=True)
    opened = visitor.look(waiting.url.removeprefix(light_hub.url)) if "spawn-pending" in waiting.url else waiting
    light_hub.end("fay")

    assert opened.url == f"{light_hub.url}/user/fay/lab/tree/exercises/start.ipynb"


def test_a_second_click_leads_where_the_first_one_did(light_hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """To the waiting page while the server starts, and to the server once it runs; there is only one job."""
    light_hub.spawn("gil", {"profile": "k80-node"})
    visitor = Visitor(light_hub, "hal")
    page = visitor.look("/hub/spawn")
    clicks = [visitor.send(page, {"profile": profile}) for profile in ("k80-node", "k80-node", "light")]
    jobs = slurm_cluster.run("squeue", "-h", "-o", "%k").split()
    light_hub.end("gil")
    light_hub.wait("hal", ready=True)
    late = visitor.send(page, {"profile": "light"})
    light_hub.end("hal")

    assert {(click.status, click.url.partition("?")[0]) for click in clicks} == {
        (200, f"{light_hub.url}/hub/spawn-pending/hal")
    }
    assert sum("/hal/" in job for job in jobs) == 1
    assert late.url.startswith(f"{light_hub.url}/user/hal/")


def test_a_field_that_is_given_twice(light_hub: HubProcess) -> None:
    """Which of the two is meant is unknown, so the error is shown at the field."""
    page = Visitor(light_hub, "dora").look("/hub/spawn?opt-profile=light&opt-cpus=1&opt-cpus=2")

    assert page.error == "cpus is given twice. Give one value."


FORMLESS = 'c.GPUProfilesSpawner.options_form = ""'
ALONE = f"""
c.JupyterHub.spawner_class = "gpu-slurm"
c.GPUSlurmSpawner.cmd = {COMMAND.strip("[]").split(", ")!r}
c.GPUSlurmSpawner.req_partition = "batch"
"""


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(FORMLESS, id="profiles without a form"),
        pytest.param(ALONE, id="no profiles", marks=pytest.mark.nightly),
    ],
)
def test_without_a_form_a_click_is_needed_all_the_same(start_light_hub: StartHub, lines: str) -> None:
    """JupyterHub would start a server on a GET, and so would any link in an e-mail.

    Where there are profiles, a link still chooses: its options are in the page until the click, and one that is not
    allowed is reported.
    """
    hub = start_light_hub(lines)
    visitor = Visitor(hub, "ann")
    page = visitor.look("/hub/spawn?opt-profile=light&opt-cpus=2" if lines == FORMLESS else "/hub/spawn")
    wrong = visitor.look("/hub/spawn?opt-profile=light&opt-cpus=9")
    before = hub.server("ann")
    visitor.start(hidden(page))
    hub.wait("ann", ready=True)
    model = hub.server("ann") or {}
    hub.stop()

    assert page.status == 200
    assert "Click Start to start your server" in page.text
    assert before is None
    if lines == FORMLESS:
        assert hidden(page) == {"profile": "light", "cpus": "2"}
        assert wrong.error == "Cores: '9' is not allowed: it must be a number from 1 to 4."
        assert model["user_options"] == {"profile": "light", "cpus": 2}


def hidden(page: Page) -> dict[str, str]:
    """The fields that are sent with a click."""
    return {str(field["name"]): str(field["value"]) for field in page.soup.select("#spawn_form input[type=hidden]")}
