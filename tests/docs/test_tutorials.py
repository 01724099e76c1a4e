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
NAMESPACES = ("unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private")
OVERLAY = """
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work &&
mount -t overlay none -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
"""
"""What has to work in the namespaces."""
COUNTED = re.compile(r"\b[0-9a-f]*\d[0-9a-f.]*\b")
"""Versions, job ids and random parts of names."""


def follow(module: str, folder: Path, *programs: str) -> dict[str, Any]:
    """What was seen by a module of this folder that follows pages; it is skipped if that cannot be done here."""
    if os.geteuid() != 0:
        pytest.skip("only root can follow an admin's tutorial")
    needed = ("sudo", "configurable-http-proxy", "ip", *programs)
    absent = [name for name in needed if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if absent:
        pytest.skip(f"needs {', '.join(absent)}")
    tried = subprocess.run([*NAMESPACES, "sh", "-c", OVERLAY], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no overlays in namespaces here: {tried.stderr.strip()}")
    command = [*NAMESPACES, sys.executable, "-m", f"tests.docs.{module}", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def plain(text: str) -> str:
    """The text without what differs from run to run."""
    return COUNTED.sub("N", text)


def cut(step: dict[str, Any]) -> str:
    """What a command said; its beginning if the page shows only that, followed by dots."""
    said, shown = str(step["said"]), str(step["shown"])
    if not shown.endswith("\n...\n"):
        return said
    return "".join([*said.splitlines(keepends=True)[: shown.count("\n") - 1], "...\n"])


def shown(steps: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The commands whose output the page shows, and that output."""
    return [(step["command"], plain(step["shown"])) for step in steps if step["shown"]]


def said(steps: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The same commands with what they said."""
    return [(step["command"], plain(cut(step))) for step in steps if step["shown"]]


@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
@pytest.mark.timeout(600)  # two hubs, one of them twice, and a notebook
def test_the_tutorials_say_what_happens(needs_slurm: None, site_folder: Path) -> None:
    """On a fresh machine no command fails, and each prints what the page shows, but for versions and numbers.

    A hub under its own account then serves a notebook of a user who signed in with a password, the notebook outlives a
    restart of the hub, and its job ends with it. Once the guide about the proxy is followed, too, a connection to the
    notebook outlives a restart of the hub.
    """
    followed = follow("follow", site_folder, "curl")
    done = [step for step in followed["steps"] if step["said"] is not None]

    assert [step for step in done if step["status"] != 0] == []
    assert said(done) == shown(done)
    assert len(shown(done)) == 6
    assert (followed["hub"], followed["kept"], followed["connected"]) == ("jupyterhub", True, True)


@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
@pytest.mark.timeout(600)  # two machines, a hub and a notebook
def test_a_hub_without_slurm_is_set_up_as_its_page_says(needs_slurm: None, site_folder: Path) -> None:
    """On two fresh machines no command fails but those of which the page shows the refusal.

    The hub's machine has no Slurm and no account of a user. Its hub then serves a notebook through the login node's
    sshd, as the user who signed in, and stopping it cancels the job.
    """
    followed = follow("follow_ssh", site_folder, "sshd", "ssh", "ssh-keyscan", "nsenter")
    done = [step for step in followed["steps"] if step["said"] is not None]

    assert [step["shown"] for step in done if step["status"] != 0] == [
        "cancel: the input is not a job id\n",
        "gate: the hub may not run this\n",
    ]
    assert said(done) == shown(done)
    assert len(shown(done)) == 3
    assert followed["jobs"] == ["ada CANCELLED"]
