"""``gpuspawner-run`` as the launcher brings it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node import command as run_command
from jupyterhub_gpuspawner.extensions.several_nodes.node.command import ENTRY
from tests.node.test_folder import hold, left, make

pytestmark = pytest.mark.usefixtures("own_descriptors")


def test_gpuspawner_run_is_the_last_in_the_path(tmp_path: Path) -> None:
    """Only in a job, so that it hides no command of the user; it is removed with the folder."""
    folder = make(tmp_path, "gpuspawner.g1.AAAAAAAAAA")
    environ = {"GPUSPAWNER_LAUNCHER": f"{folder}/launch.pyz", "GPUSPAWNER_PYTHON": "/opt/a b/python3", "PATH": "/bin"}
    run_command.provide({}, environ, ["jupyterhub-singleuser"])
    assert environ["PATH"] == "/bin"

    environ["SLURM_JOB_ID"] = "7"
    for _ in range(2):
        run_command.provide({}, environ, ["jupyterhub-singleuser"])
    command = folder / "bin" / "gpuspawner-run"
    assert (environ["PATH"], environ["GPUSPAWNER_RUN"]) == (f"/bin:{folder}/bin", str(command))
    assert (
        command.read_text() == f"#!/bin/sh\nexec '/opt/a b/python3' -I '{folder}/launch.pyz' --entry {ENTRY} \"$@\"\n"
    )
    assert os.access(command, os.X_OK)

    os.utime(folder, (0, 0))
    hold(make(tmp_path, "gpuspawner.g1.BBBBBBBBBB", age=0))
    assert left(tmp_path) == ["gpuspawner.g1.BBBBBBBBBB"]
