"""Mistakes in a configuration that the checks of more time find, with their places and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.more_time import checks
from tests.check.mistakes import Mistake, one
from tests.check.test_hub_mistakes import BASE, SCRIPTS, alarms, commands, site
from tests.check.test_mistakes import assert_found
from tests.cli.runner import run
from tests.cli.test_check import CONFIGURATION, NO_SLURM, assert_asked_once, slurm_of

__all__ = ["site"]  # the fixture

MISTAKES = {
    "servers that cannot be extended": Mistake(
        one('"partition": "gpu", "time": "1-0"', '"extend": {"by": "1h"}'),
        "warn  profile g: extend: no server can be extended: its time limit is already MaxTime of partition gpu. Set "
        "a shorter slurm.time, or take extend out of the profile. [extend-too-long]",
        "starts now, 87 of 96 cores free",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_found_before_a_user_reads_of_it(tmp_path: Path, mistake: Mistake) -> None:
    """As those that the core's checks find."""
    assert_found(tmp_path, mistake)


EXTENDED = """
c.GPUProfilesSpawner.profiles[0]["extend"] = {"by": "1h"}
c.GPUSlurmSpawner.extend_prefix = "sudo -n -u slurm"
"""
HUBS = {
    "the default of both": ("", "socket.gethostname()", []),
    "a name of its own": ("c.GPUSlurmSpawner.hub_name = 'jupyter'", "'jupyter'", []),
    "a name that is computed": ("c.GPUSlurmSpawner.hub_name = 'jupyter'", "open('/etc/hub').read()", []),
    "a script as it is shipped": (
        "c.GPUSlurmSpawner.hub_name = 'jupyter'",
        "socket.gethostname()",
        [("head", "jupyter")],
    ),
    "another port": ("c.JupyterHub.hub_port = 8082", "socket.gethostname()", [("head", "head-8082")]),
    "another port, with the old name": (
        "c.JupyterHub.hub_bind_url = 'http://:8082'",
        "'head'",
        [("head", "head-8082")],
    ),
}


@pytest.mark.parametrize(("lines", "of_script", "names"), HUBS.values(), ids=HUBS.keys())
async def test_a_script_that_extends_the_servers_of_another_hub_is_said_to(
    site: Path, monkeypatch: pytest.MonkeyPatch, lines: str, of_script: str, names: list[tuple[str, str]]
) -> None:
    """It runs, and would refuse each server of this hub; both names are told, and what to write."""
    monkeypatch.setattr("socket.gethostname", lambda: "head")
    commands(site, sudo="echo 'extend: the input is not a job id and a number of minutes' >&2; exit 1")
    script = site / "libexec" / "extend"
    script.write_text(script.read_text().replace("HUB = socket.gethostname()", f"HUB = {of_script}"))

    assert await alarms(site, BASE + SCRIPTS + EXTENDED + lines, checks=(checks.check_extending,)) == [
        f"warn  extend: FOLDER/libexec/extend extends the servers of a hub named {of!r}, and this one is named "
        f"{name!r}, so no server can be extended. Write HUB = {name!r} in the script. [extend-fails]"
        for of, name in names
    ]


async def test_a_script_that_is_not_installed_is_missed(site: Path) -> None:
    """As the scripts of the core are."""
    commands(site)
    (site / "libexec" / "extend").unlink()

    assert await alarms(site, BASE + SCRIPTS + EXTENDED, checks=(checks.check_script,)) == [
        "WRONG c.GPUSlurmSpawner.wrapper_dir: there is no script FOLDER/libexec/extend. As root, run "
        "`gpuspawner files /etc/jupyterhub --wrappers --wrapper-dir FOLDER/libexec`. [wrapper-missing]"
    ]


REFUSED = {
    "a prefix without scripts": (
        "c.GPUSlurmSpawner.extend_prefix = 'sudo -n -u slurm'",
        "gpuspawner: c.GPUSlurmSpawner.extend_prefix: The script `extend` is in wrapper_dir, which is not set.",
    ),
    "a prefix with a field": (
        "c.GPUSlurmSpawner.extend_prefix = 'sudo -n -u {username}'",
        "gpuspawner: extend_prefix: 'sudo -n -u {username}' has a field, but the account is the same for all servers.",
    ),
}


@pytest.mark.parametrize(("lines", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_prefix_with_which_the_hub_would_not_start(tmp_path: Path, lines: str, sentence: str) -> None:
    """The message with which the hub would exit; Slurm is not queried."""
    checked = run(tmp_path, f"{CONFIGURATION}{NO_SLURM}{lines}\n", "check")

    assert (checked.exit_code, checked.stdout, sentence in checked.stderr) == (1, "", True)


LONG = 'c.GPUProfilesSpawner.profiles += [{"display_name": "Long", "extend": {"by": "1h"}}]\n'
TRIED = {
    "the script": (
        "echo 'extend: the input is not a job id and a number of minutes' >&2; exit 1",
        0,
        "ok    extend: time limits are raised by `env A=1`",
    ),
    "another script": (
        "exit 0",
        1,
        "WRONG extend: extend_prefix: The script `extend` does not run: no message. `gpuspawner files DIR --wrappers` "
        "writes it; wrapper_dir is DIR/wrappers. Run it as an account that is not root. [extend-fails]",
    ),
    "sudo that refuses": (
        "echo 'sudo: a password is required' >&2; exit 1",
        1,
        "WRONG extend: extend_prefix: extend was not run: sudo asks for a password (sudo: a password is required). "
        "Allow the hub's account to run Slurm's commands without one "
        "(NOPASSWD in sudoers, for a group with the user in it). [extend-fails]",
    ),
}


def test_a_silent_slurm_is_not_asked_for_more_time(tmp_path: Path) -> None:
    """One round of questions and one why none is answered."""
    assert_asked_once(tmp_path, 'c.GPUProfilesSpawner.profiles[0]["extend"] = {"by": "1h"}\n')


@pytest.mark.slurm
@pytest.mark.parametrize(("script", "code", "line"), TRIED.values(), ids=TRIED.keys())
def test_whether_servers_can_be_extended(
    tmp_path: Path, slurm_cluster: PrivateSlurm, script: str, code: int, line: str
) -> None:
    """Where a profile has `extend`, the script that raises time limits is tried without a job."""
    (tmp_path / "extend").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "extend").chmod(0o755)
    settings: dict[str, object] = {"slurm_bin_dir": slurm_cluster.bin_dir, "wrapper_dir": str(tmp_path)}
    # the other scripts are not needed
    settings |= {"extend_prefix": "env A=1", "exec_prefix": "", "dangerously_run_servers_as_root": True}
    lines = "".join(f"c.GPUSlurmSpawner.{name} = {value!r}\n" for name, value in settings.items())
    checked = run(tmp_path, CONFIGURATION + LONG + lines, "check", environment=slurm_cluster.environment)

    findings = [row for row in checked.stdout.splitlines() if " extend: " in row]
    assert (checked.exit_code, findings) == (code, [line])


@pytest.mark.slurm
def test_the_hubs_own_account_may_extend_servers(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Without `extend_prefix` that needs an operator, SlurmUser or root, as which this test runs."""
    lines = CONFIGURATION + LONG + slurm_of(slurm_cluster)
    checked = run(tmp_path, lines, "check", environment=slurm_cluster.environment)

    assert checked.stdout.splitlines()[-1] == "ok    extend: time limits are raised by root itself"
