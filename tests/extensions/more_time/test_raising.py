"""Raising the time limit of a job: what is run, and what its answers mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.more_time.raising import may_raise, operator_prefix, raise_limit
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation

PREFIX = ("env", "-u", "NOTHING")
"""A prefix that changes nothing."""


def client(folder: Path, lines: str) -> SlurmClient:
    """A client whose scontrol, and whose script, do this."""
    for name in ("scontrol", "extend"):
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)
    return SlurmClient(Installation(bin_dir=str(folder), wrapper_dir=str(folder)))


async def test_without_a_prefix_scontrol_adds_to_the_limit(tmp_path: Path) -> None:
    """As the hub's own account; a sum, so that a limit that an admin has raised meanwhile is not lowered."""
    assert await raise_limit(client(tmp_path, f'echo "$*" > {tmp_path}/seen'), "4711", 90)
    assert (tmp_path / "seen").read_text() == "update JobId=4711 TimeLimit=+90\n"


async def test_the_script_gets_its_input_on_stdin_and_no_argument(tmp_path: Path) -> None:
    """As the rule of sudo demands."""
    lines = f'{{ echo "$# arguments"; cat; }} > {tmp_path}/seen'

    assert await raise_limit(client(tmp_path, lines), "4711", 60, prefix=PREFIX)
    assert (tmp_path / "seen").read_text() == "0 arguments\n4711 60\n"


async def test_a_hub_whose_questions_go_to_a_login_node_may_raise_no_limit_itself() -> None:
    """The script `query` only reads; no command is run to find that out."""
    by_ssh = Installation(wrapper_dir="/no/such/folder", query_prefix=("ssh", "login"))

    assert await may_raise(SlurmClient(by_ssh)) is False


ENDED = {
    "a job that has ended": "echo Job has already finished for job 4711 >&2; exit 1",
    "a job that Slurm has forgotten": (
        "echo scontrol: error: Could not load state information for job 4711: Invalid job id specified >&2; exit 1"
    ),
    "the script, of a job that Slurm has forgotten": (
        "echo slurm_load_jobs error: Invalid job id specified >&2; echo extend: scontrol show failed >&2; exit 1"
    ),
}


@pytest.mark.parametrize("lines", ENDED.values(), ids=ENDED.keys())
@pytest.mark.parametrize("prefix", [(), PREFIX], ids=["own", "script"])
async def test_a_job_that_is_over_is_told_from_a_failure(tmp_path: Path, lines: str, prefix: tuple[str, ...]) -> None:
    """It is not an error: the server has ended meanwhile."""
    assert await raise_limit(client(tmp_path, lines), "4711", 90, prefix=prefix) is False


FAILED: dict[str, tuple[str, type[GPUSpawnerError], str]] = {
    "an account that is no operator": (
        "echo Access/permission denied for job 4711 >&2; exit 1",
        ConfigError,
        "extend_prefix: The time limit of job 4711 was not raised: Access/permission denied for job 4711. The command "
        "must run as a Slurm operator.",
    ),
    "an account that is nobody": (
        "echo Invalid user id for job 4711 >&2; exit 1",
        ConfigError,
        "extend_prefix: The time limit of job 4711 was not raised: Invalid user id for job 4711. The command must run "
        "as a Slurm operator.",
    ),
    "another hub's job": (
        "echo extend: this is not a running job of this hub >&2; exit 1",
        ConfigError,
        "extend_prefix: The time limit of job 4711 was not raised: extend: this is not a running job of this hub. HUB "
        "in the script must be this hub's hub_name, and the job must have the comment that the hub gave it.",
    ),
    "sudo refuses": (
        "echo sudo: a password is required >&2; exit 1",
        ConfigError,
        "extend_prefix: extend was not run: sudo asks for a password (sudo: a password is required). Allow the hub's "
        "account to run Slurm's commands without one (NOPASSWD in sudoers, for a group with the user in it).",
    ),
    "slurmctld is down": (
        "echo slurm_update error: Unable to contact slurm controller '(connect failure)' >&2; exit 1",
        SlurmUnavailable,
        "extend failed: slurmctld cannot be reached. Check `scontrol ping`.",
    ),
    "words that nobody knows": (
        "echo out of cheese >&2; exit 1",
        ConfigError,
        "extend_prefix: The time limit of job 4711 was not raised: out of cheese. See slurmctld's log.",
    ),
}


@pytest.mark.parametrize(("lines", "error", "message"), FAILED.values(), ids=FAILED.keys())
async def test_a_failure_names_the_setting(
    tmp_path: Path, lines: str, error: type[GPUSpawnerError], message: str
) -> None:
    """With what Slurm or sudo said, and what an admin can do."""
    with pytest.raises(error) as failed:
        await raise_limit(client(tmp_path, lines), "4711", 90, prefix=PREFIX)

    assert str(failed.value) == message


async def test_a_missing_script_is_named_with_its_setting(tmp_path: Path) -> None:
    """Where the prefix itself does not exist."""
    with pytest.raises(ConfigError, match=r"^extend_prefix: The command '/no/sudo' does not exist"):
        await raise_limit(client(tmp_path, ""), "4711", 90, prefix=("/no/sudo",))


BAD = {
    "sudo -n -u {username}": "has a field, but the account is the same for all servers",
    "sudo -u 'slurm": "is not a valid command",
}


@pytest.mark.parametrize(("text", "message"), BAD.items())
def test_a_bad_prefix_is_refused(text: str, message: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match=f"^extend_prefix: .*{message}"):
        operator_prefix(text)


def test_a_prefix_becomes_words() -> None:
    """Split as a shell would; empty means none."""
    assert (operator_prefix("sudo -n -u slurm"), operator_prefix(" ")) == (("sudo", "-n", "-u", "slurm"), ())
