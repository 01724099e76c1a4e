"""A server that waits in the queue is given up for another profile that starts now, on a real Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import LIGHT, StartHub
from tests.hub.commands import commands, slow
from tests.hub.visitor import Page, Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.Authenticator.admin_users = {"root-of-the-hub"}
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0, "slow_stop_timeout": 2}
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
"""
PROFILES = f"""{LIGHT}
- display_name: Broken
  slug: broken
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [bash, -c, "exit 3"]
- display_name: Refused
  slug: refused
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00", extra: ["--mail-type=NONSENSE"]}}
  command: [sleep, "100"]
"""


@pytest.fixture(scope="module")
def bin_dir(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the hub's Slurm commands."""
    return commands(tmp_path_factory.mktemp("bin"), slurm_cluster.bin_dir, {})


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, bin_dir: Path) -> HubProcess:
    """A hub with a profile for each way in which a switch can end."""
    return start_light_hub(lines=f"{CONFIG}c.GPUSlurmSpawner.slurm_bin_dir = {str(bin_dir)!r}\n", profiles=PROFILES)


@pytest.fixture
def slow_scancel(bin_dir: Path, slurm_cluster: PrivateSlurm) -> Iterator[None]:
    """Slurm's scancel takes longer than JupyterHub waits for a stop."""
    commands(bin_dir, slurm_cluster.bin_dir, {"scancel": slow(before=3.0)})
    yield
    commands(bin_dir, slurm_cluster.bin_dir, {})


@pytest.fixture
def waiting(hub: HubProcess, slurm_cluster: PrivateSlurm) -> Iterator[Callable[[str], str]]:
    """``waiting("ann")``: the K80 node is full, and this user's server waits for it; returns its job's id."""
    line = "--parsable -p gpu --gres=gpu:k80:4 --exclusive -t 10 -o /dev/null"
    blocker = slurm_cluster.run("sbatch", *line.split(), "--wrap=sleep 600")
    users: list[str] = []

    def start(user: str) -> str:
        users.append(user)
        hub.api("POST", f"/users/{user}")
        assert hub.api("POST", server_path(user), {"profile": "k80-node"}).status_code == 202
        for _ in range(600):
            if "Waiting in line" in Visitor(hub, user).pending().text:
                return jobs(slurm_cluster, user)[0]
            time.sleep(0.2)
        raise AssertionError(hub.log_end())

    yield start
    for user in users:
        hub.end(user)
    slurm_cluster.run("scancel", blocker)


def jobs(slurm: PrivateSlurm, user: str) -> list[str]:
    """The ids of the jobs of this user's servers that have not ended."""
    lines = slurm.run("squeue", "-h", "-t", "PD,CF,R", "-O", "JobID:20,Comment:200").splitlines()
    return [line.split()[0] for line in lines if f"/{user}/" in line]


def switch(visitor: Visitor, profile: str, user: str = "", **more: str) -> Page:
    """Click *Switch*; returns the page that follows."""
    path = f"/hub/gpuspawner/instead/{user or visitor.name}"
    data = {"_xsrf": visitor._xsrf, "profile": profile, **more}
    answer = visitor.session.post(f"{visitor.hub.url}{path}", data=data, timeout=60)
    return Page(answer.status_code, answer.url, BeautifulSoup(answer.text, "html.parser"))


def test_one_click_gives_up_the_place_and_starts_the_other_profile(
    hub: HubProcess, slurm_cluster: PrivateSlurm, waiting: Callable[[str], str]
) -> None:
    """The page says before that the place is lost; a second click does nothing more."""
    first = waiting("ann")
    ann = Visitor(hub, "ann")
    page = ann.pending()
    offered = [field["value"] for field in page.soup.select('#gpuspawner-instead input[name="profile"]')]
    following = switch(ann, "light").text
    switch(ann, "light")
    hub.wait("ann", ready=True)
    model = hub.server("ann")

    assert offered == ["light", "broken", "refused"]
    assert "If you switch, you give up your place in line." in page.text
    assert "Waiting in line" not in following  # what was free only settles
    assert model is not None
    assert model["user_options"] == {"profile": "light"}
    assert len(jobs(slurm_cluster, "ann")) == 1
    assert first not in jobs(slurm_cluster, "ann")


@pytest.mark.nightly
def test_a_stop_that_takes_long_is_followed_by_the_start(
    hub: HubProcess, slurm_cluster: PrivateSlurm, waiting: Callable[[str], str], slow_scancel: None
) -> None:
    """JupyterHub waits no longer for the stop, and the page after the click says that the server is being stopped."""
    waiting("flo")
    page = switch(Visitor(hub, "flo"), "light")

    assert page.soup.select_one("#gpuspawner-stopping") is not None

    wait_until(lambda: (hub.server("flo") or {}).get("ready"))  # after the stop there is none for a moment
    model = hub.server("flo")

    assert model is not None
    assert model["user_options"] == {"profile": "light"}
    assert len(jobs(slurm_cluster, "flo")) == 1


@pytest.mark.nightly
def test_what_is_wanted_survives_a_restart_of_the_hub_before_it_starts(
    hub: HubProcess, slurm_cluster: PrivateSlurm, waiting: Callable[[str], str], slow_scancel: None
) -> None:
    """The hub ends while it waits for the stop: the form then has the choice that was clicked, not the one before."""
    waiting("fay")
    switch(Visitor(hub, "fay"), "light")
    hub.kill()
    hub.start()
    hub.wait("fay", ready=False)
    page = Visitor(hub, "fay").look("/hub/spawn")

    chosen = page.soup.select_one('input[name="profile"][checked]')
    assert chosen is not None
    assert chosen["value"] == "light"
    assert jobs(slurm_cluster, "fay") == []


def test_a_link_switches_to_its_choice_though_it_is_not_free(
    hub: HubProcess, slurm_cluster: PrivateSlurm, waiting: Callable[[str], str]
) -> None:
    """The home page offers it with the link's options, and says that the place is given up."""
    first = waiting("lia")
    lia = Visitor(hub, "lia")
    page = lia.look("/hub/spawn?opt-profile=light&opt-cpus=3")
    form = page.soup.select_one("#gpuspawner-unused-link form")
    assert form is not None
    link = form.select_one('[name="link"]')
    assert link is not None
    refused = lia.click(str(form["action"]), link="opt-profile=light&opt-cpus=9")
    lia.click(str(form["action"]), link=str(link["value"]))
    hub.wait("lia", ready=True)
    model = hub.server("lia")

    assert "If you switch, you give up your place in line." in page.text
    assert refused.status_code == 400
    assert model is not None
    assert model["user_options"] == {"profile": "light", "cpus": 3}
    assert first not in jobs(slurm_cluster, "lia")


def test_nothing_is_given_up_for_a_profile_that_is_not_free(
    hub: HubProcess, slurm_cluster: PrivateSlurm, waiting: Callable[[str], str]
) -> None:
    """Nor for one that does not exist; the page says that the place is kept."""
    first = waiting("bea")
    bea = Visitor(hub, "bea")
    texts = [switch(bea, profile).text for profile in ("no-such", "", "../x")]

    assert ["That choice is no longer free, so you are still in line." in text for text in texts] == [True] * 3
    assert jobs(slurm_cluster, "bea") == [first]


@pytest.mark.nightly
def test_where_the_server_leads_is_kept_with_the_place(hub: HubProcess, waiting: Callable[[str], str]) -> None:
    """A link to a notebook still opens it; JupyterHub refuses one that leads away from the hub when it follows it."""
    waiting("ned")
    ned = Visitor(hub, "ned")
    there = "/user/ned/lab/tree/a.ipynb?reset"
    page = ned.look(f"/hub/spawn-pending/ned?{urlencode({'next': there})}")
    sent = {str(field["value"]) for field in page.soup.select('#gpuspawner-instead input[name="next"]')}

    assert sent == {there}
    assert parse_qs(urlsplit(switch(ned, "no-such", next=there).url).query) == {
        "gpuspawner-not-free": ["1"],
        "next": [there],
    }


@pytest.mark.parametrize("profile", ["broken", "refused"])
def test_a_switch_that_fails_says_what_is_lost_and_offers_it_again(
    hub: HubProcess, slurm_cluster: PrivateSlurm, waiting: Callable[[str], str], profile: str
) -> None:
    """A server that does not start, and a job that sbatch refuses."""
    user = f"cia-{profile}"
    waiting(user)
    cia = Visitor(hub, user)
    where = switch(cia, profile).url.removeprefix(hub.url)
    for _ in range(300):
        page = cia.look(where)
        if page.soup.select_one("#gpuspawner-not-running"):
            break
        time.sleep(0.2)
    link = page.soup.select_one("#start")

    assert "Your server did not start" in page.text
    assert "You are no longer in line for The K80 node." in page.text
    assert link is not None
    assert (link.get_text(), link["href"]) == (
        "Choose The K80 node again",
        f"/hub/spawn/{user}?opt-profile=k80-node",
    )
    assert jobs(slurm_cluster, user) == []


def test_only_those_who_may_start_a_server_may_switch_it(
    hub: HubProcess, slurm_cluster: PrivateSlurm, waiting: Callable[[str], str]
) -> None:
    """Another user cannot; an administrator can. Without the page's token nobody can."""
    first = waiting("dee")
    stranger, admin = Visitor(hub, "eve"), Visitor(hub, "root-of-the-hub")
    dee = Visitor(hub, "dee")
    forged = dee.session.post(f"{hub.url}/hub/gpuspawner/instead/dee", data={"profile": "light"}, timeout=60)

    assert switch(stranger, "light", "dee").status == 404
    assert forged.status_code == 403
    assert jobs(slurm_cluster, "dee") == [first]

    switch(admin, "light", "dee")
    hub.wait("dee", ready=True)
    model = hub.server("dee")
    assert model is not None
    assert model["user_options"] == {"profile": "light"}
