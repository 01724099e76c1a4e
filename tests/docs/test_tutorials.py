"""The tutorials, followed literally: each command of theirs is run as it stands on the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ.get("GPUSPAWNER_ENVIRONMENT", sys.prefix)
"""The Python environment of the hub; scripts/release names one in which a wheel is installed."""
NAMESPACES = ("unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private")
OVERLAY = """
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work &&
mount -t overlay none -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
"""
"""What has to work in the namespaces."""
COUNTED = re.compile(r"\b[0-9a-f]*\d[0-9a-f.]*\b")
"""Versions, job ids and random parts of names."""


def report_of(module: str, folder: Path, *needed: str) -> dict[str, Any]:
    """What was seen by somebody who follows the pages of a module; the test is skipped if that cannot be done here."""
    if os.geteuid() != 0:
        pytest.skip("only root can follow an admin's pages")
    absent = [name for name in needed if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if absent:
        pytest.skip(f"needs {', '.join(absent)}")
    tried = subprocess.run([*NAMESPACES, "sh", "-c", OVERLAY], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no overlays in namespaces here: {tried.stderr.strip()}")
    command = [*NAMESPACES, sys.executable, "-m", module, str(folder), ENVIRONMENT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture
def followed(needs_slurm: None, site_folder: Path) -> dict[str, Any]:
    """By somebody who follows the tutorials, and the guide about the proxy."""
    return report_of("tests.docs.follow", site_folder, "sudo", "configurable-http-proxy", "ip", "curl")


@pytest.fixture
def followed_by_ssh(needs_slurm: None, site_folder: Path) -> dict[str, Any]:
    """By somebody who follows the guide to a hub without Slurm."""
    needed = ("sudo", "configurable-http-proxy", "ip", "ssh", "ssh-keyscan", "sshd")
    return report_of("tests.docs.follow_login_node", site_folder, *needed)


def plain(text: str) -> str:
    """The text without what differs from run to run."""
    return COUNTED.sub("N", text)


def cut(step: dict[str, Any]) -> str:
    """What a command said; its beginning if the page shows only that, followed by dots."""
    output, shown = str(step["output"]), str(step["shown"])
    if not shown.endswith("\n...\n"):
        return output
    return "".join([*output.splitlines(keepends=True)[: shown.count("\n") - 1], "...\n"])


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
@pytest.mark.timeout(600)  # two hubs, one of them twice, and a notebook
def test_the_tutorials_say_what_happens(followed: dict[str, Any]) -> None:
    """On a fresh machine no command fails, and each prints what the page shows, but for versions and numbers.

    A hub under its own account then serves a notebook of a user who signed in with a password, the notebook outlives a
    restart of the hub, and its job ends with it. Once the guide about the proxy is followed, too, a connection to the
    notebook outlives a restart of the hub.
    """
    done = [step for step in followed["steps"] if step["output"] is not None]
    shown = [step for step in done if step["shown"]]

    assert [step for step in done if step["status"] != 0] == []
    assert [(step["command"], plain(cut(step))) for step in shown] == [
        (step["command"], plain(step["shown"])) for step in shown
    ]
    assert len(shown) == 6
    assert (followed["hub"], followed["kept"], followed["connected"]) == ("jupyterhub", True, True)


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
@pytest.mark.timeout(600)
def test_the_guide_to_a_hub_without_slurm_says_what_happens(followed_by_ssh: dict[str, Any]) -> None:
    """No command fails but the two whose refusal the guide shows, and the hub of its unit starts a user's job."""
    done = [step for step in followed_by_ssh["steps"] if step["output"] is not None]
    shown = [step for step in done if step["shown"]]

    assert [step["command"].rpartition(" ")[2] for step in done if step["status"] != 0] == [
        "/etc/jupyterhub/wrappers/cancel",
        "id",
    ]
    assert [plain(str(step["output"])) for step in shown] == [plain(step["shown"]) for step in shown]
    assert len(shown) == 3
    assert followed_by_ssh["owner"] == "ada"
