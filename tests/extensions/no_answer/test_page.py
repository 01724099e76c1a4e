"""A server that does not answer: what the proxy's error page leads to, and who may read it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from bs4 import BeautifulSoup
from jinja2 import Environment
from jupyterhub.app import JupyterHub
from jupyterhub.handlers import default_handlers
from jupyterhub.handlers.pages import ProxyErrorHandler

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.extensions.no_answer import page
from jupyterhub_gpuspawner.extensions.no_answer.hub import HUB
from jupyterhub_gpuspawner.extensions.no_answer.page import Known, of_a_server, what_is_known
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.routes import PageTools
from jupyterhub_gpuspawner.hub.site.templates import loader_with_ours
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState
from tests.fixtures.hubs import STAND_IN, offer
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

WELL = Known()
BUSY = "It may be very busy, or cut off from the hub for a moment: try again."
RUNS = Job("7", Phase.RUNNING, state="RUNNING", nodes="g1")
KNOWN: dict[str, tuple[Job | None, bool, tuple[str, ...], str, Known]] = {
    "its node is well": (RUNS, False, ("ALLOCATED",), "", WELL),
    "its node is drained, and goes on": (RUNS, False, ("MIXED", "DRAIN"), "kernel update", WELL),
    "its node is down": (
        RUNS,
        False,
        ("DOWN",),
        "fan broken [root@1772442000]",
        Known(out=(("g1", "fan broken, since 2 Mar 2026, 09:00 UTC, by root"),)),
    ),
    "its node is drained and down": (
        RUNS,
        False,
        ("DOWN", "DRAIN"),
        "",
        Known(out=(("g1", ""),)),
    ),
    **{
        f"its node is {word}": (
            RUNS,
            False,
            ("MIXED", word),
            "",
            Known(out=(("g1", why),)),
        )
        for word, why in {
            "NOT_RESPONDING": "it does not respond",
            "REBOOT_ISSUED": "rebooting",
            "FAIL": "",
            "FAILING": "",
            "POWERED_DOWN": "",
        }.items()
    },
    "Slurm does not answer either": (RUNS, True, ("DOWN",), "", Known(silent=True)),
    "its job is suspended": (
        Job("7", Phase.RUNNING, state="SUSPENDED", nodes="g1"),
        False,
        ("ALLOCATED",),
        "",
        Known(suspended=True),
    ),
    "Slurm has not told of its job yet": (None, False, ("DOWN",), "", WELL),
}


@pytest.mark.parametrize(("job", "silent", "states", "reason", "known"), KNOWN.values(), ids=KNOWN)
async def test_what_slurm_says_of_job_and_node_is_told(
    job: Job | None,
    silent: bool,
    states: tuple[str, ...],
    reason: str,
    known: Known,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where nothing is wrong by Slurm."""
    snapshot = ClusterSnapshot(nodes=(NodeState("g1", states=frozenset(states), reason=reason),))

    async def recent(_age: float, _patience: float) -> Any:
        return snapshot

    ours: Any = SimpleNamespace(
        job_id="7",
        watch=SimpleNamespace(silent=silent, status=job),
        connection=lambda: SimpleNamespace(view=SimpleNamespace(recent=recent)),
    )
    monkeypatch.setattr(page, "job_spawner", lambda spawner: spawner)

    assert await what_is_known(ours) == known


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("/user/ann/lab", True),
        ("/user/ann/lab/tree?token=1", True),
        ("//user.example.org/user/ann", False),
        ("https://example.org/user/ann", False),
        ("/hub/home", False),
        ("javascript:alert(1)", False),
        ("", False),
    ],
)
def test_only_an_address_of_a_server_is_led_back_to(address: str, inside: bool) -> None:
    """The address comes from whoever asks for the page."""
    assert of_a_server(address, "/") is inside


def test_its_route_of_an_error_is_the_hubs() -> None:
    """The proxy asks for it."""
    theirs = {path for path, handler, *_ in default_handlers if handler is ProxyErrorHandler}

    assert {path for path, handler, *_ in HUB.pages if issubclass(handler, ProxyErrorHandler)} == theirs


DEAD = f"""
- display_name: Dies alone
  slug: dies
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [bash, -c, "{sys.executable} {STAND_IN} & echo $! >PID; sleep 300"]
"""


@pytest.mark.oldest
@pytest.mark.slurm
@pytest.mark.hub
def test_a_server_that_does_not_answer_has_a_page_of_what_is_known(light_hub: HubProcess, tmp_path: Path) -> None:
    """Its user reads it after the proxy's page, which says nothing of it; nobody else does."""
    pid = tmp_path / "pid"
    offer(light_hub, "dies", DEAD.replace("PID", str(pid)))
    nora, eric = Visitor(light_hub, "nora"), Visitor(light_hub, "eric")
    wait_until(
        lambda: "dies" in {p["slug"] for p in light_hub.api("GET", "/gpuspawner/profiles/nora").json()["profiles"]},
        light_hub.log_end,
    )
    light_hub.spawn("nora", {"profile": "dies"}, server="lab")
    os.kill(int(pid.read_text()), signal.SIGKILL)
    address = "/user/nora/lab/tree"
    pages = [nora.look(address), nora.look(address)]
    anonymous = requests.get(f"{light_hub.url}{address}", timeout=30)
    link = str(pages[0].soup.select("#gpuspawner-known")[0]["href"])
    known, stranger = nora.look(link), eric.look(link)
    again = [str(anchor["href"]) for anchor in known.soup.select(".gs-actions a")]
    elsewhere = [nora.look(f"/hub/gpuspawner/no-answer?url={url}").status for url in ("//a.org/user/nora", "/user/no/")]
    light_hub.end("nora", "lab")
    over = nora.session.get(f"{light_hub.url}{link}", allow_redirects=False, timeout=30)

    assert [page.status for page in pages] == [503, 503]
    assert "This server does not answer" in pages[0].text
    assert "Dies alone" not in anonymous.text
    assert BUSY not in anonymous.text
    assert known.status == 200
    assert "does not answer" in known.text
    assert BUSY in known.text
    assert again == [address, "/hub/gpuspawner/stop/nora/lab", "/hub/home"]
    assert (stranger.status, elsewhere) == (404, [404, 404])
    page = "/hub/spawn-pending/nora/lab?next=%2Fuser%2Fnora%2Flab%2Ftree"
    assert (over.status_code, over.headers["Location"]) == (303, page)


@pytest.mark.parametrize(
    ("name", "path"), [("", "nora"), ("half done: 50%? #1", "nora/half%20done%3A%2050%25%3F%20%231")]
)
def test_its_server_can_be_stopped_whatever_its_name_is(name: str, path: str) -> None:
    """Hubs before JupyterHub 6 take any name without a slash, and one that has such a name goes on with it."""
    extensions = HubExtensions(installed().only(["no_answer"]))
    loader = loader_with_ours([], JupyterHub()._template_paths_default(), extensions.templates)
    nora = SimpleNamespace(name="nora", escaped_name="nora", json_escaped_name="nora")
    hub: dict[str, Any] = {"base_url": "/hub/", "static_url": lambda path, **_: path, "no_spawner_check": True}
    html = (
        Environment(loader=loader, autoescape=True)
        .get_template("no_answer.html")
        .render(
            **hub,
            **{"user": nora, "owner": nora, "server_name": name, "known": WELL, "address": "/user/nora/lab"},
            **{"parsed_scopes": {}, "gpuspawner": PageTools(extensions), "gpuspawner_reader": nora},
        )
    )

    assert [link["href"] for link in BeautifulSoup(html, "html.parser").select(".gs-actions a")] == [
        "/user/nora/lab",
        f"/hub/gpuspawner/stop/{path}",
        "/hub/home",
    ]
