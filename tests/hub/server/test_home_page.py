"""The home page in hubs with settings and templates of their own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm, SlurmFailed
from tests.fixtures.hubs import StartHub
from tests.hub.servers import state
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.oldest]

OWN_PAGE = """{% extends "templates/page.html" %}
{% block script %}{{ super() }}<script src="/site/statistics.js"></script>{% endblock script %}
"""
LINES = """
c.JupyterHub.allow_named_servers = False
c.JupyterHub.template_vars = {{"announcement_home": "Maintenance on Friday"}}
c.JupyterHub.template_paths = [{folder!r}]
"""


def test_a_sites_own_parts_of_the_page_stay(start_light_hub: StartHub, tmp_path: Path) -> None:
    """Its announcement and its script are there, JupyterHub's script for the stock page is not; no named servers."""
    (tmp_path / "page.html").write_text(OWN_PAGE)
    visitor = Visitor(start_light_hub(lines=LINES.format(folder=str(tmp_path))), "ann")
    page = visitor.look("/hub/home")
    scripts = [script.get("src") or script.get_text() for script in page.soup.select("script")]
    answer = visitor.click("/hub/home", name="lab")

    assert [element.get_text(strip=True) for element in page.soup.select(".announcement")] == ["Maintenance on Friday"]
    assert page.soup.select("input[name=name]") == []
    assert "/site/statistics.js" in scripts
    assert [script for script in scripts if 'require(["home"])' in script] == []
    assert answer.status_code == 400


def test_a_card_does_not_say_running_once_slurm_has_said_that_the_node_is_down(
    light_hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """The first look at the page after that, without a wait for the hub's own look at its jobs."""
    olga = Visitor(light_hub, "olga")
    job = light_hub.spawn("olga", {"profile": "light"})["job_id"]
    name = slurm_cluster.run("squeue", "-h", "-j", job, "-o", "%N")
    before = olga.look("/hub/home").text
    slurm_cluster.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=fan")
    try:
        told = state(slurm_cluster, job)
        after = olga.look("/hub/home").soup.select(".gpuspawner-server .gs-state")
    finally:
        with suppress(SlurmFailed):  # its slurmd has brought it back (ReturnToService)
            slurm_cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    light_hub.wait("olga", ready=False)

    assert ("running" in before, told) == (True, "NODE_FAIL")
    assert "running" not in [part.text for part in after]
    assert "The node of the job failed" in olga.look("/hub/home").text
