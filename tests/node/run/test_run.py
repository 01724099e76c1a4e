"""gpuspawner-run where it cannot start a step: one sentence, and no step."""

from __future__ import annotations

import socket

import pytest

from jupyterhub_gpuspawner.node.run import variables
from jupyterhub_gpuspawner.node.run.srun import Options
from jupyterhub_gpuspawner.node.run.step import NO_STEP, run


def test_where_all_ports_are_taken_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As any other thing that the step needs and does not have."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(variables, "PORTS", (port, port))
        environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "g1", "SLURMD_NODENAME": "g1", "PATH": ""}
        status = run(Options(("train",)), environ, archive=b"", plan="{}")
    assert status == NO_STEP
    assert capfd.readouterr().err == f"gpuspawner-run: no port from {port} to {port} is free on this node\n"
