"""What the check says about the way to a login node."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.slurm import ssh_findings
from tests.cli.runner import run
from tests.cli.test_check import CONFIGURATION

OURS = {
    "batchmode": "yes",
    "stricthostkeychecking": "true",
    "controlpath": "/run/jupyterhub/ssh-60bd",
    "connecttimeout": "5",
}
WRONG = {
    "nothing is set": (
        {"batchmode": "no", "stricthostkeychecking": "ask", "connecttimeout": "none"},
        ["ssh-asks", "ssh-no-sharing", "ssh-waits"],
    ),
    "any key": ({**OURS, "stricthostkeychecking": "false"}, ["ssh-any-host-key"]),
    "any new key": ({**OURS, "stricthostkeychecking": "accept-new"}, ["ssh-any-host-key"]),
    "no sharing": ({**OURS, "controlpath": "none"}, ["ssh-no-sharing"]),
    "a long wait": ({**OURS, "connecttimeout": "10"}, ["ssh-waits"]),
    "ours": (OURS, []),
    "not known": ({}, []),
}


@pytest.mark.parametrize(("ssh_options", "names"), WRONG.values(), ids=WRONG)
def test_of_sshs_configuration(ssh_options: dict[str, str], names: list[str]) -> None:
    """As ``ssh -G`` prints it; the hub's time-out is ten seconds."""
    assert [finding.code for finding in ssh_findings(ssh_options, timeout=10.0)] == names


SSH = """#!/bin/sh
if [ "$1" = -G ]; then
    printf 'batchmode no\\nstricthostkeychecking true\\ncontrolpath /x\\nconnecttimeout 5\\n'
    exit
fi
echo '{stderr}' >&2; exit 255
"""
UNREACHED = {
    "no way": (
        "ssh: connect to host login port 22: Connection refused",
        "the login node cannot be reached by ssh (ssh: connect to host login port 22: Connection refused). Run ssh by "
        "hand as the hub's account.",
    ),
    "an unknown key": (
        "Host key verification failed.",
        "the login node's host key is unknown, or not the one that was recorded (Host key verification failed.). Check "
        "the key (ssh-keygen -lf on the login node), and put it into UserKnownHostsFile.",
    ),
    "no password": (
        "jupyterhub@login: Permission denied (publickey,password).",
        "the login node does not accept the hub's key (jupyterhub@login: Permission denied (publickey,password).). "
        "Check IdentityFile, its owner and mode, and authorized_keys on the login node.",
    ),
}


@pytest.mark.parametrize(("stderr", "explanation"), UNREACHED.values(), ids=UNREACHED)
def test_a_login_node_that_cannot_be_reached(tmp_path: Path, stderr: str, explanation: str) -> None:
    """Exit code 3, as without Slurm; one line says why, and what would be right."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(stderr=stderr))
    ssh.chmod(0o755)
    checked = run(
        tmp_path,
        f"{CONFIGURATION}c.GPUSlurmSpawner.query_prefix = '{ssh} login'\n"
        f"c.GPUSlurmSpawner.exec_prefix = '{ssh} login sudo -n -u {{username}}'\n"
        "c.GPUSlurmSpawner.wrapper_dir = '/etc/jupyterhub/wrappers'\n",
        "check",
    )

    assert checked.exit_code == 3
    assert [line for line in checked.stdout.splitlines() if not line.startswith("ok ")] == [
        "warn  query_prefix: ssh may ask for a password or about a host key, and nobody would see the question. Set "
        "BatchMode yes. [ssh-asks]",
        f"WRONG Slurm: sinfo has no answer: {explanation} [slurm-silent]",
    ]


def test_ssh_without_the_scripts_loses_the_jobs_environment(tmp_path: Path) -> None:
    """The hub starts, but no server would."""
    checked = run(
        tmp_path, f"{CONFIGURATION}c.GPUSlurmSpawner.exec_prefix = 'ssh login sudo -E -u {{username}}'\n", "check"
    )

    assert (
        "WRONG exec_prefix: ssh does not pass on the environment, so jobs would have no token and none of JupyterHub's "
        "variables. Install the scripts that `gpuspawner files DIR --wrappers` writes on the login node, and set "
        "wrapper_dir. [ssh-loses-environment]"
    ) in checked.stdout.splitlines()
