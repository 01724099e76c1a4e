"""The demo's web application: its profile, and its page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml
from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.demo.monitor import page
from jupyterhub_gpuspawner.demo.run import MONITOR, RIGHTS, monitor_profile
from jupyterhub_gpuspawner.demo.simulated_use import simulated_use
from jupyterhub_gpuspawner.demo.slurm_cluster import MACHINES
from jupyterhub_gpuspawner.profiles.files import ProfileFolder
from jupyterhub_gpuspawner.profiles.sections import program_of
from tests.waiting import wait_until

NOW = 1200.0 * 1000
PATTERN = str(MACHINES / "{node}.json")


def test_the_demo_may_offer_it(tmp_path: Path) -> None:
    """Its profile is a valid one that the rights of the demo's files allow."""
    text = monitor_profile(PATTERN)
    assert text is not None
    (tmp_path / "monitor.yaml").write_text(text)

    (offered,) = ProfileFolder(tmp_path, RIGHTS).read().profiles

    program = program_of(offered)
    assert program is not None
    assert (offered.slug, program.title) == ("monitor", "Web application")
    assert yaml.safe_load(text)[0]["app"]["command"] == [sys.executable, str(MONITOR), PATTERN]


def test_without_jupyter_server_proxy_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It could not be started."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert monitor_profile(PATTERN) is None


def test_its_page_shows_each_gpu_with_the_use_that_the_pages_show() -> None:
    """By its number on the node; where the job runs is text."""
    environ = {"SLURM_JOB_ID": "<7>", "SLURMD_NODENAME": "k80-2socket", "CUDA_VISIBLE_DEVICES": "2,0"}
    soup = BeautifulSoup(page(environ, PATTERN, NOW), "html.parser")
    words = " ".join(soup.get_text(" ").split())

    assert [link["href"] for link in soup.select("a")] == ["gpuspawner/home"]
    assert f"Job <7> on node k80-2socket: CUDA_VISIBLE_DEVICES=2,0, {len(os.sched_getaffinity(0))} core" in words
    assert [heading.get_text() for heading in soup.select("h2")] == ["GPU 2: Tesla K80", "GPU 0: Tesla K80"]
    use = simulated_use(2, 11441, NOW)
    assert (
        f"GPU 2: Tesla K80 Utilization {use.utilization:g} % Memory {use.memory_used_mib} of 11441 MiB "
        f"Power {use.power_watts:g} W" in words
    )


def test_it_serves_its_page_on_the_socket(tmp_path: Path) -> None:
    """As the profile starts it."""
    environ = {**os.environ, "SLURMD_NODENAME": "k80-2socket", "CUDA_VISIBLE_DEVICES": "0"}
    with subprocess.Popen([sys.executable, str(MONITOR), PATTERN, "app.sock"], cwd=tmp_path, env=environ) as process:
        try:
            wait_until((tmp_path / "app.sock").exists, seconds=60)
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "app.sock")), timeout=30) as client:
                answer = client.get("http://localhost/")
        finally:
            process.terminate()

    assert (answer.status_code, "GPU 0: Tesla K80" in answer.text) == (200, True)
