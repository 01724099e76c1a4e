"""A server that does not use its GPUs: its user is told, keeps it, and it is stopped, in a real hub."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import COMMAND, StartHub
from tests.hub.visitor import Page, Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

PROFILES = f"""
- display_name: A GPU
  slug: gpu
  slurm: {{partition: gpu, gpus: 1, gpu_type: k80, cpus: 1, memory: 100M, time: "0:20:00"}}
  idle: {{gpu: 30s, action: stop, keep: {{by: 10s, times: 1}}}}
  command: {COMMAND}
"""
LINES = """
from jupyterhub_gpuspawner.extensions.idle import fields, policy, watch as idle_watch
idle_watch.POLL_SECONDS = 0.5
fields.WARNED_AFTER, fields.HELD_FACTOR = (2 / 3,), 1
policy.UNUSED_PERCENT = 100.0  # the simulated GPUs are busy now and then
c.GPUSlurmSpawner.usage_interval = 1
c.JupyterHub.load_roles += [{"name": "sees-states", "users": ["admin"], "scopes": ["admin:server_state"]}]
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub in which a server may be idle for seconds."""
    return start_light_hub(lines=LINES, profiles=PROFILES)


def until(visitor: Visitor, condition: Callable[[Page], object]) -> Page:
    """The home page, once something is on it."""
    ends_at = time.monotonic() + 90
    while not condition(page := visitor.look("/hub/home")):
        assert time.monotonic() < ends_at, page.text + visitor.hub.log_end()
        time.sleep(0.5)
    return page


def test_an_idle_server_is_told_kept_and_stopped_with_its_cause(hub: HubProcess) -> None:
    """*Keep* is a form; the card then says why the server was stopped, and the state has it for programs."""
    ada = Visitor(hub, "ada")
    placement = hub.spawn("ada", {"profile": "gpu"})

    page = until(ada, lambda page: page.soup.select_one(".gpuspawner-idle"))
    form: Any = page.soup.select_one(".gpuspawner-idle")
    token = requests.get(f"{hub.url}/user/ada/environ", timeout=10).json()["JUPYTERHUB_API_TOKEN"]
    own = {"Authorization": f"token {token}"}
    session = requests.get(f"{hub.url}/hub/api/gpuspawner/session", headers=own, timeout=30).json()
    form_answer = ada.session.post(f"{hub.url}{form['action']}", data={"_xsrf": ada._xsrf}, timeout=30)
    rest_answer = requests.post(f"{hub.url}/hub/api/gpuspawner/servers/ada/keep", headers=own, timeout=30)

    assert "The GPUs of this server have not been used since" in form.get_text(" ")
    assert "10 s more. You can do this once." in form.get_text(" ")
    assert (session["idle"]["can_keep"], session["idle"]["keeps"]) == (True, "10 s more. You can do this once.")
    assert (form_answer.status_code, form_answer.url) == (200, f"{hub.url}/hub/home")
    assert (rest_answer.status_code, rest_answer.json()["reason"]) == (409, "not_kept")

    card = until(ada, lambda page: page.soup.select('[data-state="stopped"]'))
    assert "A GPU was stopped at" in card.text
    assert "because it was idle: its GPU had not been used for" in card.text
    assert f"job {placement['job_id']} released 1 GPU." in card.text
    stopped = hub.api("GET", "/users/ada?include_stopped_servers").json()
    assert stopped["servers"][""]["state"]["ending"]["cause"] == {"kind": "idle"}
