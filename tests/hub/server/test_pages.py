"""A server is stopped, named and deleted on the hub's pages, without a script: who may, and what is said afterwards."""

from __future__ import annotations

import re

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.hub.visitor import Visitor

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


def test_a_participant_sees_no_map(light_hub: HubProcess) -> None:
    """Neither the page nor its documents, nor a link to it."""
    lou = Visitor(light_hub, "lou")
    paths = ("gpuspawner/cluster", "api/gpuspawner/cluster", "api/gpuspawner/fleet")

    assert [lou.look(f"/hub/{path}").status for path in paths] == [403, 403, 403]
    assert lou.look("/hub/home").soup.select('a[href$="/gpuspawner/cluster"]') == []
