"""A server is stopped, named and deleted on the hub's pages, without a script: who may, and what is said afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import offer
from tests.hub.servers import job_id, start
from tests.hub.visitor import Visitor, events
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

LIGHT = {"profile": "light"}


def cards(visitor: Visitor) -> dict[str, str]:
    """What the home page says of each server, by its name."""
    sections = visitor.look("/hub/home").soup.select(".gpuspawner-server")
    return {str(card["data-server-name"]): " ".join(card.get_text(" ").split()) for card in sections}


def test_nobody_stops_deletes_or_reads_another_ones_server(light_hub: HubProcess) -> None:
    """404, as for a server that does not exist."""
    light_hub.spawn("dora", LIGHT)
    eric = Visitor(light_hub, "eric")
    answers = [eric.click(f"/hub/gpuspawner/{what}").status_code for what in ("stop/dora", "delete/dora/lab")]
    log, left = eric.look("/hub/gpuspawner/log/dora").status, light_hub.server("dora") or {}
    light_hub.end("dora")

    assert [*answers, log] == [404, 404, 404]
    assert left["ready"]


def test_what_another_site_asks_for_is_refused(light_hub: HubProcess) -> None:
    """The forms have JupyterHub's XSRF token; without it nothing is stopped or deleted."""
    light_hub.spawn("clea", LIGHT, server="lab")
    clea = Visitor(light_hub, "clea")
    pages = [f"{light_hub.url}/hub/gpuspawner/{what}/clea/lab" for what in ("stop", "delete")]
    answers = [clea.session.post(page, timeout=30).status_code for page in pages]
    left = light_hub.server("clea", "lab") or {}
    light_hub.end("clea", "lab")

    assert answers == [403, 403]
    assert left["ready"]


def test_how_a_server_ended_is_told_until_the_next_start(light_hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """A stop names the server's user, and on their card the admin who did it; so does a scancel on the page of its end.

    Also after a restart of the hub.
    """
    admin, dirk, tia = (Visitor(light_hub, name) for name in ("admin", "dirk", "tia"))
    stopped, cancelled = (str(light_hub.spawn(name, LIGHT)["job_id"]) for name in ("dirk", "tia"))
    slurm_cluster.run("scancel", cancelled)
    light_hub.wait("tia", ready=False)
    question = admin.look("/hub/gpuspawner/stop/dirk")
    admin.click("/hub/gpuspawner/stop/dirk")
    answer = admin.look("/hub/gpuspawner/stop/dirk")
    light_hub.restart()
    texts = (cards(dirk)[""], tia.look("/user/tia/lab").text)
    for name in ("dirk", "tia"):
        light_hub.spawn(name, LIGHT)
        light_hub.end(name)

    by_admin = re.compile(rf"Light was stopped at .* by admin; job {stopped} ")
    assert "Stop Light of dirk?" in question.text
    assert by_admin.search(answer.text)
    assert by_admin.search(texts[0])
    assert re.search(r"The job was cancelled\. It ended at .*\d\d", texts[1])
    assert cards(dirk) == {}
    assert "You have no running server" in tia.look("/user/tia/lab").text


def test_a_named_server_is_started_and_deleted(light_hub: HubProcess) -> None:
    """Its name leads to its form, is not given twice, and stays until the server is deleted, which is stopped first."""
    lina = Visitor(light_hub, "lina")
    form = lina.click("/hub/home", name="lab").headers["Location"]
    lina.start({"profile": "light"}, "lab")
    light_hub.wait("lina", "lab", ready=True)
    duplicate = lina.click("/hub/home", name="lab")
    active = lina.click("/hub/gpuspawner/delete/lina/lab")
    light_hub.end("lina", "lab")
    names = list(cards(lina))
    lina.click("/hub/gpuspawner/delete/lina/lab")

    assert form == "/hub/spawn/lina/lab"
    assert (duplicate.status_code, "You already have a server named lab." in duplicate.text) == (400, True)
    assert "This server is active. Stop it before you delete it." in active.text
    assert (names, list(cards(lina))) == (["lab"], [])


def test_the_number_of_named_servers_is_limited(light_hub: HubProcess) -> None:
    """Where there are as many as the admin allows, the page says so instead of a form, and no more are made."""
    liv = Visitor(light_hub, "liv")
    for name in ("one", "two"):
        liv.look(f"/hub/spawn/liv/{name}")
    full = liv.look("/hub/home")
    third = liv.click("/hub/home", name="three")
    liv.click("/hub/gpuspawner/delete/liv/two")

    assert "You have 2 of at most 2 named servers." in full.soup.get_text()
    assert (full.soup.select("input[name=name]"), third.status_code) == ([], 400)
    assert len(liv.look("/hub/home").soup.select("input[name=name]")) == 1


SLOW = """
- display_name: Held
  slug: held
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00", extra: ["--hold"]}
- display_name: Starts for long
  slug: starts
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}
  environment: {setup: sleep 600}
  command: [/bin/true]
- display_name: No such module
  slug: broken
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}
  environment: {modules: [no-such-module]}
  command: [/bin/true]
"""
STATES = {"held": "queued", "starts": "starting", "light": "running", "broken": "failed", "": "stopped"}
"""Of the server of a user, by the profile that they start."""
PAGES = ("/hub/spawn-pending/{user}", "/hub/user/{user}/", "/hub/gpuspawner/log/{user}", "/hub/gpuspawner/stop/{user}")
MORE = ("/hub/gpuspawner/extend/{user}", "/hub/gpuspawner/delete/{user}/lab", "/hub/gpuspawner/cluster")
TO_ITS_USER = re.compile(r"\b(?!You will be notified|Your browser)(?:[Yy]ours?|[Yy]ou|My)\b[^.]*")


def said_to(visitor: Visitor, user: str) -> Mapping[str, list[str]]:
    """What the pages of a user's server say to its user, in words and for the scripts; what it is told is not."""
    found = {}
    for path in (*PAGES, *MORE):
        soup = visitor.look(path.format(user=user)).soup
        scripts = [part.get_text() for part in soup.select("main script[type='application/json']")]
        told = [*soup.select("main")] or [soup]
        text = " ".join(" ".join(part.get_text(" ") for part in told).split())
        sentences = TO_ITS_USER.findall(" ".join([re.sub(r"What \S+ is told: .*", "", text), *scripts]))
        if sentences:
            found[path] = sentences
    return found


def test_an_administrator_is_not_spoken_to_as_the_servers_user(
    light_hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """On each page, in each state of the server; its progress neither. Its user is."""
    offer(light_hub, "slow", SLOW)
    admin = Visitor(light_hub, "admin")
    wrong, own = {}, {}
    for profile, state in STATES.items():
        user = f"wp-{state}"
        visitor = Visitor(light_hub, user)
        start(light_hub, user, profile or "light")
        if state in ("running", "stopped"):
            light_hub.wait(user, ready=True)
        elif state == "failed":
            light_hub.wait(user, ready=False)
        elif state == "starting":
            job = job_id(light_hub, user)
            wait_until(partial(slurm_cluster.run, "squeue", "-h", "-t", "R", "-j", job, "-o", "%i"))
        if state == "stopped":
            light_hub.end(user)
        wrong[state] = said_to(admin, user)
        own[state] = TO_ITS_USER.findall(visitor.pending().text)
        if state in ("queued", "starting"):
            wrong[f"progress, {state}"] = {"": TO_ITS_USER.findall(json.dumps(next(admin.events(user))))}
        if state != "failed":
            light_hub.end(user)

    assert {state: found for state, found in wrong.items() if any(found.values())} == {}
    assert {state for state, sentences in own.items() if sentences} >= {"queued", "starting", "failed", "stopped"}


@pytest.mark.parametrize("reader", ["its user", "an administrator", "a program"])
def test_a_start_that_was_stopped_is_told_from_one_that_failed(light_hub: HubProcess, reader: str) -> None:
    """By the last event of its progress, whoever reads it and whoever has stopped it; JupyterHub calls both failed."""
    offer(light_hub, "slow", SLOW)
    user = f"end-{reader.split()[-1]}"
    visitor = Visitor(light_hub, "admin" if reader == "an administrator" else user)
    last = {}
    for profile in ("broken", "held"):
        start(light_hub, user, profile)
        stream = events(light_hub, user) if reader == "a program" else visitor.events(user)
        seen = [next(stream)]
        if profile == "held":
            light_hub.end(user)
        last[profile] = [*seen, *stream][-1]

    assert {profile: (event.get("failed"), event.get("stopped")) for profile, event in last.items()} == {
        "broken": (True, None),
        "held": (True, True),
    }
