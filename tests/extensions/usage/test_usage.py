"""A server's use, from the process beside it to the card, REST and the metrics, of those who may see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.hub.job.session import Ended, Placed, Ready, Submitted, Usage
from tests.fixtures.hubs import COMMAND, StartHub
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

PROFILES = f"""
- display_name: A GPU
  slug: gpu
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 1, memory: 100M, time: "0:20:00"}}
  command: {COMMAND}
- display_name: Four GPUs, of which one is always busy in the simulation
  slug: four
  slurm: {{partition: gpu, gpus: 4, gpu_type: p100, cpus: 1, memory: 100M, time: "0:20:00"}}
  command: {COMMAND}
"""
LINES = """
import logging

c.GPUSlurmSpawner.usage_interval = 1
c.EventLogger.handlers = [logging.FileHandler("events.log")]
c.JupyterHub.load_roles += [
    {"name": "reader", "users": ["rea"], "scopes": ["read:servers"]},
]
c.Authenticator.allowed_users = {"ada", "ben", "rea", "eve"}
"""
PATH = "/hub/api/gpuspawner/usage"


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub whose servers are sampled each second."""
    return start_light_hub(lines=LINES, profiles=PROFILES)


@pytest.fixture(scope="module")
def ada(hub: HubProcess) -> Iterator[Visitor]:
    """Ada, whose server runs, and has sent a summary."""
    visitor = Visitor(hub, "ada")  # signing in leads to a server that runs
    hub.spawn("ada", {"profile": "gpu"})
    wait_until(
        lambda: fetch(visitor, f"{PATH}/ada").status_code == 200, hub.log_end, seconds=60
    )  # the first one comes after the second sample
    yield visitor
    hub.end("ada")


def fetch(visitor: Visitor, path: str) -> requests.Response:
    return visitor.session.get(f"{visitor.hub.url}{path}", headers={"Referer": f"{visitor.hub.url}/hub/"}, timeout=30)


def test_a_summary_reaches_the_card_rest_and_the_metrics(hub: HubProcess, ada: Visitor) -> None:
    """Within seconds of the second sample; the GPUs of this node are simulated, and so is their use."""
    ends_at = time.monotonic() + 60
    while not (card := ada.look("/hub/home")).soup.select(".gpuspawner-gpu"):
        assert time.monotonic() < ends_at, card.text
        time.sleep(0.5)

    names = [tag.get_text() for tag in card.soup.select(".gpuspawner-gpu b")]
    document = fetch(ada, f"{PATH}/ada").json()
    metrics = fetch(Visitor(hub, "admin"), "/hub/metrics").text

    summary = next(entry for entry in document["summaries"] if entry["use"]["gpus"])
    use = summary["use"]
    assert [f"GPU {gpu['index']}" for gpu in use["gpus"]] == names
    assert (use["simulated"], use["final"]) == (True, False)
    assert use["samples"] >= 2  # of the first summary; a later one has more
    assert all(gpu["utilization"] is not None for gpu in use["gpus"])
    assert len(card.soup.select(".gpuspawner-gpu svg.gs-spark")) == 2
    assert "Simulated, like the GPUs." in card.text
    assert 'gpuspawner_gpus_measured{cluster="",partition="gpu",profile="gpu",use="known"} 2.0' in metrics
    assert 'gpuspawner_gpus_busy{cluster="",partition="gpu",profile="gpu"}' in metrics


def test_a_session_is_told_in_events(hub: HubProcess) -> None:
    """From sbatch's answer to the stop, with its use; the hub is killed in between."""
    visitor = Visitor(hub, "eve")  # signing in leads to a server that runs
    placement = hub.spawn("eve", {"profile": "four"})
    wait_until(lambda: fetch(visitor, f"{PATH}/eve").status_code == 200, hub.log_end, seconds=60)

    def events() -> list[dict[str, Any]]:
        lines = (hub.folder / "events.log").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event.get("username") == "eve" and "session" in event]

    hub.kill()
    before = len(events())
    hub.start()
    hub.wait("eve", ready=True)
    wait_until(lambda: len(events()) > before, events, seconds=60)  # a summary reaches the second hub
    hub.end("eve")
    ended = Ended.schema_id()
    wait_until(lambda: events()[-1]["__schema__"] == ended, events, seconds=20)
    history = events()
    kinds = [event["__schema__"] for event in history if event["__schema__"] != Usage.schema_id()]
    assert kinds == [Submitted.schema_id(), Placed.schema_id(), Ready.schema_id(), ended]
    assert len(history) > len(kinds)
    assert {event["job_id"] for event in history} == {placement["job_id"]}


def test_a_servers_use_is_for_those_who_may_read_the_server(hub: HubProcess, ada: Visitor) -> None:
    """Its owner, and whoever has the scope; nobody else learns whether there is one."""
    wait_until(lambda: fetch(ada, f"{PATH}/ada").status_code == 200, hub.log_end, seconds=60)
    others = (Visitor(hub, name) for name in ("rea", "admin", "ben"))
    answers = {visitor.name: fetch(visitor, f"{PATH}/ada").status_code for visitor in (ada, *others)}

    assert answers == {"ada": 200, "rea": 200, "admin": 200, "ben": 404}


@pytest.mark.usefixtures("ada")
def test_only_the_servers_own_token_sends_a_summary(hub: HubProcess) -> None:
    """A service's does not, and a summary of another job is refused."""
    environ = requests.get(f"{hub.url}/user/ada/environ", timeout=10).json()

    def send(token: str, **fields: object) -> int:
        headers = {"Authorization": f"token {token}"}
        body = json.dumps({"version": 1, **fields})
        return requests.post(f"{hub.url}{PATH}", data=body, headers=headers, timeout=30).status_code

    own = environ["JUPYTERHUB_API_TOKEN"]
    assert send(hub.token) == send("0" * 64) == 403
    assert (send(own, job_id="1000000"), send(own, cores=-1), send(own)) == (409, 400, 204)


def test_an_administrators_message_is_shown_to_those_it_is_for(hub: HubProcess, ada: Visitor) -> None:
    """By the command, to whoever has a server on the node: on the pages and in JupyterLab, until it is withdrawn."""
    node = hub.api("GET", "/gpuspawner/placement/ada").json()["node"]
    others = {name: Visitor(hub, name) for name in ("ben", "admin")}
    token = requests.get(f"{hub.url}/user/ada/environ", timeout=10).json()["JUPYTERHUB_API_TOKEN"]
    nodes = {"ada": node, "elsewhere": f"{node}x"}

    sentences = {
        where: sent(hub, f"Save <b>now</b>, {where}.", "--node", name).stdout.rpartition(". ")[2]
        for where, name in nodes.items()
    }
    shown = {who.name: "Save <b>now</b>, ada." in who.look("/hub/home").text for who in (ada, *others.values())}
    session = hub.api("GET", "/gpuspawner/session", token=token).json()
    refused = hub.api("POST", "/gpuspawner/messages", {"message": "x", "to": {"everybody": True}}, token=token)
    withdrawn = sent(hub, "--withdraw", "--node", node)

    assert sentences == {
        "ada": "At the moment it reaches the users of 1 server.\n",
        "elsewhere": "At the moment it reaches no server.\n",
    }
    assert shown == {"ada": True, "ben": False, "admin": False}
    assert [(message["course"], message["sender"], message["text"]) for message in session["messages"]] == [
        ("", "demo", "Save <b>now</b>, ada.")
    ]
    assert (refused.status_code, withdrawn.stdout) == (403, "The message is withdrawn.\n")
    assert "Save <b>now</b>" not in ada.look("/hub/home").text


def sent(hub: HubProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``gpuspawner message``."""
    environ = {**os.environ, "JUPYTERHUB_API_TOKEN": hub.token, "JUPYTERHUB_API_URL": f"{hub.url}/hub/api"}
    command = [str(Path(sys.executable).with_name("gpuspawner")), "message", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
