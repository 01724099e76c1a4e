"""``gpuspawner check`` reports what would fail later."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import Result

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.cli.runner import cli_runner

GOOD = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.db_url = "sqlite:////no/such/folder/hub.sqlite"
c.GPUProfilesSpawner.profiles = [
    {"display_name": "GPU", "slurm": {"partition": "gpu", "gpus": 1}, "allow": {"groups": ["course"]}},
    {"display_name": "Over", "allow": {"until": "2020-01-01"}},
    {"display_name": "Here", "kind": "local"},
]
c.JupyterHub.load_groups = {"course": ["ada"]}
"""
DAYS = """
c.GPUProfilesSpawner.profiles += [
    {"display_name": "Course", "slurm": {"reservation": {"2020-01-01": "day-1"}}},
]
"""
ONE_ACCOUNT = "c.GPUSlurmSpawner.exec_prefix = ''\nc.GPUSlurmSpawner.req_homedir = '/tmp'\n"
NO_SLURM = "c.GPUSlurmSpawner.slurm_bin_dir = '/no/such/folder'\n"


def check(folder: Path, lines: str, environment: dict[str, str] | None = None, *words: str) -> Result:
    """Run the command with a configuration file."""
    config = folder / "jupyterhub_config.py"
    config.write_text(lines)
    return cli_runner().invoke(main, ["check", "--config", str(config), *words], env=environment)


@pytest.mark.slurm
def test_a_good_site(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """One line for each profile, one for Slurm, and exit code 0."""
    version = slurm_cluster.run("sinfo", "--version").removeprefix("slurm-wlm ").removeprefix("slurm ")
    checked = check(
        tmp_path, f"{GOOD}c.GPUSlurmSpawner.slurm_bin_dir = {slurm_cluster.bin_dir!r}\n", slurm_cluster.environment
    )

    assert (checked.exit_code, checked.stderr) == (0, "")
    assert checked.stdout.splitlines() == [
        "ok    profile gpu: GPU (slurm)",
        "ok    profile over: Over (slurm), not offered now: it was available until 1 Jan 2020",
        "ok    profile here: Here (local)",
        f"ok    Slurm: {version}, 5 nodes, partitions batch, gpu",
    ]


def test_a_database_that_others_can_read_is_a_warning(tmp_path: Path, public_folder: Path) -> None:
    """JupyterHub itself creates it with the umask of its process, so nothing fails."""
    database = public_folder / "hub.sqlite"
    database.touch()
    database.chmod(0o644)
    checked = check(tmp_path, f"{GOOD}c.JupyterHub.db_url = 'sqlite:///{database}'\n{NO_SLURM}")
    (told,) = [line for line in checked.stdout.splitlines() if " database: " in line]

    assert told == (
        "warn  database: the hub's database can be read by others (mode 0644): "
        f"restrict it to its owner with chmod 600 {database} [database-exposed]"
    )


def test_a_memory_of_megabytes_that_was_meant_in_gigabytes(tmp_path: Path) -> None:
    """A warning that says what the value is, and what was probably meant."""
    small = 'c.GPUProfilesSpawner.profiles += [{"display_name": "Small", "slurm": {"memory": 24}}]\n'
    checked = check(tmp_path, GOOD + small + NO_SLURM)

    assert (
        "warn  profile small: slurm.memory: 24 MiB is less than a notebook server needs; did you mean 24G? "
        "Give at least 512M. [value-doubtful]"
    ) in checked.stdout.splitlines()


@pytest.mark.slurm
def test_slurmctld_is_down(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Exit code 3, since the configuration is correct; the message says what to check."""
    lines = f"{GOOD}c.GPUSlurmSpawner.slurm_bin_dir = {slurm_cluster.bin_dir!r}\n"
    slurm_cluster.stop_controller()
    try:
        checked = check(tmp_path, lines, slurm_cluster.environment)
    finally:
        slurm_cluster.start_controller()

    assert checked.exit_code == 3
    assert checked.stdout.splitlines()[-1] == (
        "WRONG Slurm: scontrol failed: slurmctld cannot be reached. Check `scontrol ping`. [slurm-silent]"
    )


def test_there_is_no_slurm(tmp_path: Path) -> None:
    """Exit code 3, and the setting for the folder of Slurm's commands."""
    checked = check(tmp_path, GOOD + NO_SLURM)

    assert checked.exit_code == 3
    assert checked.stdout.splitlines()[-1] == (
        "WRONG Slurm: Slurm's command '/no/such/folder/sinfo' does not exist or cannot be executed. "
        "Set slurm_bin_dir to the folder with Slurm's commands. [slurm-silent]"
    )


WRONG = {
    "no reservation for today": (DAYS, "WRONG profile course: "),
    "a template that cannot be filled in": (
        "c.SlurmSpawner.batch_script = '{cmd} {nothing}'\n",
        "WRONG profile gpu: batch_script: there is no value called 'nothing'. ",
    ),
}


@pytest.mark.parametrize(("lines", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_profile_whose_job_cannot_be_written_today(tmp_path: Path, lines: str, sentence: str) -> None:
    """Exit code 1, and the other profiles are still reported."""
    checked = check(tmp_path, GOOD + NO_SLURM + lines)

    assert checked.exit_code == 1
    assert [line for line in checked.stdout.splitlines() if line.startswith(sentence)] != []
    assert "ok    profile here: Here (local)" in checked.stdout


REFUSED = {
    "a field": (
        "c.GPUProfilesSpawner.profiles[0]['slurm']['memory'] = 'lots'",
        "gpuspawner: c.GPUProfilesSpawner.profiles[0].slurm.memory: 'lots' is not a valid amount of memory: ",
    ),
    "a folder": (
        "c.GPUProfilesSpawner.profiles_dir = '/no/such/folder'",
        "gpuspawner: c.GPUProfilesSpawner.profiles_dir: there is no folder '/no/such/folder'. ",
    ),
    "a setting of another type": (
        "c.GPUSlurmSpawner.slurm_timeout = 'long'",
        "gpuspawner: c.GPUSlurmSpawner.slurm_timeout: The 'slurm_timeout' trait of a "
        "GPUProfilesSpawner instance expected a float",
    ),
    "a site's default": (
        "c.SlurmSpawner.req_memory = 'lots'",
        "gpuspawner: c.SlurmSpawner.req_memory: 'lots' is not a valid amount of memory: ",
    ),
    "a prefix without scripts": (
        "c.GPUSlurmSpawner.extend_prefix = 'sudo -n -u slurm'",
        "gpuspawner: c.GPUSlurmSpawner.extend_prefix: The script `extend` is in wrapper_dir, which is not set.",
    ),
    "a prefix with a field": (
        "c.GPUSlurmSpawner.extend_prefix = 'sudo -n -u {username}'",
        "gpuspawner: extend_prefix: 'sudo -n -u {username}' has a field, but the account is the same for all servers.",
    ),
    "no profile": ("c.GPUProfilesSpawner.profiles = []", "gpuspawner: There is no profile to offer. "),
}


@pytest.mark.parametrize(("lines", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_configuration_with_which_the_hub_would_not_start(tmp_path: Path, lines: str, sentence: str) -> None:
    """The message with which the hub would exit; exit code 1, and Slurm is not queried."""
    checked = check(tmp_path, f"{GOOD}{NO_SLURM}{lines}\n")

    assert (checked.exit_code, checked.stdout) == (1, "")
    assert checked.stderr.startswith(sentence)


def test_a_hub_without_profiles(tmp_path: Path) -> None:
    """`gpu-slurm` without profiles is checked, too."""
    lines = f"c.JupyterHub.spawner_class = 'gpu-slurm'\n{NO_SLURM}"

    assert check(tmp_path, lines).exit_code == 3
    assert check(tmp_path, f"{lines}c.GPUSlurmSpawner.req_runtime = 'soon'\n").stderr.startswith(
        "gpuspawner: c.GPUSlurmSpawner.req_runtime: 'soon' is not a valid time: "
    )


EXTENDED = 'c.GPUProfilesSpawner.profiles += [{"display_name": "Long", "extend": {"by": "1h"}}]\n'
SCRIPTS = {
    "the script": (
        "echo 'extend: the input is not a job id and a number of minutes' >&2; exit 1",
        0,
        "ok    extend: time limits are raised by `env A=1`",
    ),
    "another script": (
        "exit 0",
        1,
        "WRONG extend: extend_prefix: The script `extend` does not run: no message. Install config/wrappers/extend in "
        "wrapper_dir, and run it as an account that is not root. [extend-fails]",
    ),
    "sudo that refuses": (
        "echo 'sudo: a password is required' >&2; exit 1",
        1,
        "WRONG extend: extend_prefix: extend was not run: sudo asks for a password (sudo: a password is required). "
        "Allow the hub's account to run Slurm's commands without one (NOPASSWD in sudoers). [extend-fails]",
    ),
}


@pytest.mark.slurm
@pytest.mark.parametrize(("script", "code", "line"), SCRIPTS.values(), ids=SCRIPTS.keys())
def test_whether_servers_can_be_extended(
    tmp_path: Path, slurm_cluster: PrivateSlurm, script: str, code: int, line: str
) -> None:
    """Where a profile has `extend`, the script that raises time limits is tried without a job."""
    (tmp_path / "extend").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "extend").chmod(0o755)
    settings = {"slurm_bin_dir": slurm_cluster.bin_dir, "extend_prefix": "env A=1", "wrapper_dir": str(tmp_path)}
    settings["exec_prefix"] = ""  # the other scripts are not needed
    lines = "".join(f"c.GPUSlurmSpawner.{name} = {value!r}\n" for name, value in settings.items())
    checked = check(tmp_path, GOOD + EXTENDED + lines, slurm_cluster.environment)

    told = [each for each in checked.stdout.splitlines() if " extend: " in each]
    assert (checked.exit_code, told) == (code, [line])


@pytest.mark.slurm
def test_the_hubs_own_account_may_extend_servers(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Without `extend_prefix` that needs an operator, SlurmUser or root, as which this test runs."""
    lines = f"{GOOD}{EXTENDED}c.GPUSlurmSpawner.slurm_bin_dir = {slurm_cluster.bin_dir!r}\n"
    checked = check(tmp_path, lines, slurm_cluster.environment)

    assert checked.stdout.splitlines()[-1] == "ok    extend: time limits are raised by root itself"


@pytest.mark.slurm
def test_slurm_is_asked_as_a_user(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Each profile that the user may use is tried without being submitted, and the seats of one are counted."""
    lines = f"{GOOD}c.GPUSlurmSpawner.slurm_bin_dir = {slurm_cluster.bin_dir!r}\n{ONE_ACCOUNT}"
    asked = ("--user", "ada", "--people", "2", "--profile", "gpu", "--json")
    deadline = time.monotonic() + 120
    while slurm_cluster.run("sinfo", "-h", "-p", "gpu", "-t", "unknown", "-o", "%N") and time.monotonic() < deadline:
        time.sleep(0.5)  # a slurmctld that another test has restarted does not know its nodes at once
    checked = check(tmp_path, lines, slurm_cluster.environment, *asked)
    document = json.loads(checked.stdout)

    assert (checked.exit_code, document["version"]) == (0, 1)
    assert [
        (each["severity"], each["code"]) for each in document["findings"] if each["where"].startswith("profile gpu")
    ] == [
        ("ok", "profile"),
        ("ok", "trial"),
        ("ok", "seats"),
    ]
    assert slurm_cluster.run("squeue", "-h", "-t", "PD,CF,R") == ""


def test_a_program_reads_of_a_configuration_with_which_the_hub_would_not_start(tmp_path: Path) -> None:
    """The document has one finding, with the place and what would be right."""
    checked = check(tmp_path, f"{GOOD}c.GPUProfilesSpawner.profiles_dir = '/no/such/folder'", None, "--json")

    assert (checked.exit_code, json.loads(checked.stdout)) == (
        1,
        {
            "version": 1,
            "findings": [
                {
                    "severity": "error",
                    "code": "configuration",
                    "where": "c.GPUProfilesSpawner.profiles_dir",
                    "text": "there is no folder '/no/such/folder'.",
                    "fix": "Create it, and put YAML files with profiles into it.",
                }
            ],
        },
    )


USAGE = {
    "a group of nobody": (("--group", "course"), "--group needs --user."),
    "a profile for nothing": (("--profile", "gpu"), "--profile needs --user, --people or --submit."),
    "a profile that does not exist": (("--user", "ada", "--profile", "gup"), "there is no profile 'gup'."),
}


@pytest.mark.parametrize(("words", "told"), USAGE.values(), ids=USAGE.keys())
def test_options_that_ask_for_nothing(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    """They are refused, and nothing is checked."""
    checked = check(tmp_path, f"{GOOD}{NO_SLURM}", None, *words)

    assert checked.exit_code != 0
    assert (checked.stdout, told in checked.stderr) == ("", True)
