"""The main job of this package, as it is run on each site: from the choice of a profile to the end by the time limit.

The module of a site has a fixture ``site`` (scope: module) that returns a :class:`Site`, and a class ``TestMainJob``
that inherits from :class:`MainJob`. What is special about the site is tested by functions beside it. ``scripts/sites``
runs the modules and writes the table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import COMMAND, NO_SPAWN_WAIT
from tests.hub.servers import in_the_end, job_id, start, state, why_it_ended
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

CONFIG = f"""
{NO_SPAWN_WAIT}
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL, watcher.REST_INTERVAL = 0.5, 1.0
c.JupyterHub.cleanup_servers = False
"""
"""Lines of configuration for a site's hub: what happens is noticed within a second, and servers outlive the hub."""


def profiles(command: str = COMMAND, *, slurm: str = "partition: gpu, gpus: 2, gpu_type: k80, cpus: 4") -> str:
    """The profiles of the main job as YAML, whose single-user server is a stand-in.

    ``slurm`` are the fields of both profiles, without the memory and the time limit.
    """
    return f"""
- {{display_name: The main job, slug: main, command: {command},
   slurm: {{{slurm}, memory: 600M, time: "0:10:00"}}}}
- {{display_name: One minute, slug: minute, command: {command},
   slurm: {{{slurm}, memory: 600M, time: "0:01:00"}}}}
"""


@dataclass(frozen=True)
class Site:
    """A site with its hub, and what the main job asks for there."""

    hub: HubProcess
    slurm: PrivateSlurm
    partition: str = "gpu"
    """That of the profile ``main``."""
    user: str = "ada"
    findings: tuple[str, ...] = ()
    """The codes of the findings that ``gpuspawner check`` has here and on no other site."""
    numbers: Callable[[str], str] = str
    """The kernel's numbers of CPUs by Slurm's, both as lists such as ``0-3,8``; where they are not the same."""

    def check(self, *words: str) -> list[dict[str, str]]:
        """Run ``gpuspawner check`` with this hub's configuration, and return its findings."""
        program = Path(sys.executable).with_name("gpuspawner")
        command = [str(program), "check", "--json", "--config", str(self.hub.write_configuration()), *words]
        answer = subprocess.run(command, cwd=self.hub.folder, capture_output=True, text=True, check=False, timeout=170)
        assert answer.stdout, answer.stderr
        findings: list[dict[str, str]] = json.loads(answer.stdout)["findings"]
        return findings


def answers(site: Site) -> bool:
    """Whether the user's server answers behind the proxy."""
    url = f"{site.hub.url}/user/{site.user}/api"
    return requests.get(url, timeout=10, allow_redirects=False).status_code == 200


def granted(slurm: PrivateSlurm, job: str) -> dict[str, Any]:
    """What Slurm allocated to a job on its node: the node, the CPU ids, and the GRES indices of the GPUs."""
    text = slurm.run("scontrol", "show", "job", "-d", job)
    match = re.search(r"Nodes=(\S+) CPU_IDs=(\S+) (?:.*?IDX:([0-9,-]+))?", text)
    assert match is not None, text
    return {"node": match[1], "cpus": match[2], "gpus": gpu_indices(match[3] or "")}


def gpu_indices(text: str) -> list[int]:
    """The numbers of a list such as ``0-1,3``."""
    ends = [part.split("-") for part in filter(None, text.split(","))]
    return [number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)]


@pytest.mark.usefixtures("minute")
class MainJob:
    """What has to work on every site; the tests run in this order, and leave no server."""

    def test_choose(self, visitor: Visitor) -> None:
        """The form offers both profiles."""
        form = visitor.look("/hub/spawn")
        assert [choice["value"] for choice in form.soup.select("input[type=radio][name=profile]")] == ["main", "minute"]

    def test_wait(self, site: Site, visitor: Visitor) -> None:
        """While Slurm starts no jobs in the partition, the page says so; afterwards the server starts."""
        site.slurm.run("scontrol", "update", f"partitionname={site.partition}", "state=down")
        try:
            start(site.hub, site.user, "main")
            job = job_id(site.hub, site.user)
            wait_until(lambda: "partition" in visitor.pending().text, lambda: visitor.pending().text)
            waited = state(site.slurm, job, "CONFIGURING")
        finally:
            site.slurm.run("scontrol", "update", f"partitionname={site.partition}", "state=up")
        site.hub.wait(site.user, ready=True, timeout=170)
        assert waited == "PENDING"

    def test_start(self, site: Site, server: str) -> None:
        """The server answers behind the proxy, and its job runs."""
        assert (answers(site), state(site.slurm, server)) == (True, "RUNNING")

    def test_placed(self, site: Site, server: str) -> None:
        """Node, CPUs and GPUs on the hub's pages are those that Slurm allocated, and the placement was applied."""
        placement = site.hub.api("GET", f"/gpuspawner/placement/{site.user}").json()
        shown, expected = self.placement_and_grant(site, server, placement)
        assert shown == expected

    def placement_and_grant(self, site: Site, server: str, placement: dict[str, Any]) -> tuple[object, object]:
        """What of the placement on the hub's pages has to be what; a site with more evidence compares more."""
        shown = {name: placement[name] for name in ("node", "cpus")}
        allocated = granted(site.slurm, server)
        allocated["cpus"] = site.numbers(str(allocated["cpus"]))
        return {**shown, "gpus": sorted(gpu["index"] for gpu in placement["gpus"])}, allocated

    def test_restart(self, site: Site, server: str) -> None:
        """A hub that is killed and started again has the same server with the same job."""
        site.hub.restart()
        site.hub.wait(site.user, ready=True)
        assert (job_id(site.hub, site.user), answers(site)) == (server, True)

    def test_log(self, site: Site, visitor: Visitor, server: str) -> None:
        """The page of the log shows what the job wrote."""
        page = visitor.look(f"/hub/gpuspawner/log/{site.user}")
        assert (page.status, server in page.soup.text) == (200, True)

    def test_stop(self, site: Site, server: str) -> None:
        """A server that its user stops leaves no job."""
        site.hub.end(site.user)
        assert in_the_end(site.slurm, server) == "CANCELLED"

    def test_time_limit(self, site: Site, minute: str) -> None:
        """Slurm ends the job within a minute after its limit, and the hub says why."""
        user = f"{site.user}-minute"
        wait_until(lambda: not site.hub.server(user), seconds=160)
        assert state(site.slurm, minute) == "TIMEOUT"
        assert re.search("time limit", why_it_ended(site.hub, user))

    def test_check(self, site: Site) -> None:
        """`gpuspawner check` finds nothing but what is to be known of this site."""
        findings = [finding for finding in site.check() if finding["severity"] in ("warning", "error")]
        expected = sorted(["time-doubtful", *site.findings])  # a minute is less than anybody means
        assert sorted(finding["code"] for finding in findings) == expected, findings
