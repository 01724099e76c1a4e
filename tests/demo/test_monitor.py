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

from jupyterhub_gpuspawner.demo.run import MONITOR, RIGHTS, monitor_profile
from jupyterhub_gpuspawner.profiles.files import ProfileFolder
from tests.waiting import wait_until

NVIDIA_SMI = """\
#!/bin/sh
echo '3, Tesla <K80>, 17, 457, 11441, 30.00'
echo '4, Tesla K80, [N/A], 0, 11441, [N/A]'
"""


def test_the_demo_may_offer_it(tmp_path: Path) -> None:
    """Its profile is a valid one that the rights of the demo's files allow."""
    text = monitor_profile()
    assert text is not None
    (tmp_path / "monitor.yaml").write_text(text)

    (offered,) = ProfileFolder(tmp_path, RIGHTS).profiles()

    assert offered.app is not None
    assert (offered.slug, offered.app.title, offered.app.auth) == ("monitor", "Web application", "hub")
    assert yaml.safe_load(text)[0]["app"]["command"] == [sys.executable, str(MONITOR)]


def test_without_jupyter_server_proxy_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It could not be started."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert monitor_profile() is None


def test_its_page_shows_what_nvidia_smi_reports(tmp_path: Path) -> None:
    """Each GPU of the job, and where the job runs; a value that is not known as nvidia-smi writes it."""
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "<g1>"}
    command = [sys.executable, str(MONITOR), "app.sock"]
    with subprocess.Popen(command, cwd=tmp_path, env={**environ, "CUDA_VISIBLE_DEVICES": "3,4"}) as process:
        try:
            wait_until((tmp_path / "app.sock").exists, seconds=60)
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "app.sock")), timeout=30) as client:
                soup = BeautifulSoup(client.get("http://localhost/").text, "html.parser")
        finally:
            process.terminate()

    assert [each["href"] for each in soup.select("a")] == ["gpuspawner/home"]
    words = " ".join(soup.get_text(" ").split())
    assert f"Job 7 on node <g1>: CUDA_VISIBLE_DEVICES=3,4, {len(os.sched_getaffinity(0))} core" in words
    assert [each.get_text() for each in soup.select("h2")] == ["GPU 3: Tesla <K80>", "GPU 4: Tesla K80"]
    assert "Utilization 17 % Memory 457 of 11441 MiB Power 30.00 W" in words
    assert "Utilization [N/A] % Memory 0 of 11441 MiB Power [N/A] W" in words
