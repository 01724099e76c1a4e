"""``gpuspawner check`` reports what would fail later."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.cli.runner import run
from tests.waiting import wait_until

CONFIGURATION = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.db_url = "sqlite:////no/such/folder/hub.sqlite"
c.GPUProfilesSpawner.profiles = [
    {"display_name": "GPU", "slurm": {"partition": "gpu", "gpus": 1}, "allow": {"groups": ["course"]}},
    {"display_name": "Over", "allow": {"until": "2020-01-01"}},
    {"display_name": "Here", "kind": "local"},
]
c.JupyterHub.load_groups = {"course": ["ada"]}
c.Authenticator.allow_all = True
"""
ONE_ACCOUNT = """
c.GPUSlurmSpawner.exec_prefix = ''
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
c.GPUSlurmSpawner.req_homedir = '/tmp'
"""
NO_SLURM = "c.GPUSlurmSpawner.slurm_bin_dir = '/no/such/folder'\n"


def slurm_of(cluster: PrivateSlurm) -> str:
    """The setting for the commands of a private Slurm."""
    return f"c.GPUSlurmSpawner.slurm_bin_dir = {cluster.bin_dir!r}\n"


@pytest.mark.slurm
def test_a_good_site(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """One line for each profile, one for Slurm, and exit code 0."""
    version = slurm_cluster.run("sinfo", "--version").removeprefix("slurm-wlm ").removeprefix("slurm ")
    checked = run(tmp_path, CONFIGURATION + slurm_of(slurm_cluster), "check", environment=slurm_cluster.environment)

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
    checked = run(tmp_path, f"{CONFIGURATION}c.JupyterHub.db_url = 'sqlite:///{database}'\n{NO_SLURM}", "check")
    (finding,) = [line for line in checked.stdout.splitlines() if " database: " in line]

    assert finding == (
        "warn  database: the hub's database can be read by others (mode 0644): "
        f"restrict it to its owner with chmod 600 {database} [database-exposed]"
    )


@pytest.mark.slurm
def test_slurmctld_is_down(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Exit code 3, since the configuration is correct; the message says what to check."""
    slurm_cluster.stop_controller()
    try:
        checked = run(tmp_path, CONFIGURATION + slurm_of(slurm_cluster), "check", environment=slurm_cluster.environment)
    finally:
        slurm_cluster.start_controller()

    assert checked.exit_code == 3
    # scontrol of Slurm 26.05 tries to reach slurmctld for ten seconds, as long as the check waits for its message
    assert re.fullmatch(
        r"WRONG Slurm: scontrol (failed: slurmctld cannot be reached|did not respond within 10 s(: .*)?)\. "
        r"Check `scontrol ping`.* \[slurm-silent\]",
        checked.stdout.splitlines()[-1],
    )


SILENT = """
c.GPUSlurmSpawner.slurm_timeout = 1
c.GPUSlurmSpawner.exec_prefix = "env SOMEBODY={username}"
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
"""


def test_a_silent_slurm_is_asked_once(tmp_path: Path) -> None:
    """One round of questions and one why none is answered: neither as the user nor for other checks again."""
    assert_asked_once(tmp_path)


def assert_asked_once(tmp_path: Path, more: str = "") -> None:
    """With more lines of configuration."""
    log, folder = tmp_path / "asked", tmp_path / "bin"
    folder.mkdir()
    for name in ("sinfo", "scontrol", "squeue", "sbatch", "scancel", "sacctmgr"):
        (folder / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >>{log}\n[ "$1" != --version ] || exec echo slurm 24.05.1\nexec sleep 60\n'
        )
        (folder / name).chmod(0o755)
    lines = f"{CONFIGURATION}{SILENT}{more}c.GPUSlurmSpawner.slurm_bin_dir = {str(folder)!r}\n"
    checked = run(tmp_path, lines, "check", "--user", "ada", "--submit")

    assert (checked.exit_code, checked.stderr) == (3, "")
    assert sorted(" ".join(line.split()[:4]) for line in log.read_text().splitlines()) == [
        "scontrol --local show node",
        "scontrol --local show partition",
        "scontrol --local show reservation",
        "scontrol show config",
        "sinfo --version",
        "squeue --local -h -a",
    ]


def test_there_is_no_slurm(tmp_path: Path) -> None:
    """Exit code 3, and the setting for the folder of Slurm's commands."""
    checked = run(tmp_path, CONFIGURATION + NO_SLURM, "check")

    assert checked.exit_code == 3
    assert checked.stdout.splitlines()[-1] == (
        "WRONG Slurm: Slurm's command '/no/such/folder/sinfo' does not exist or cannot be executed. "
        "Set slurm_bin_dir to the folder with Slurm's commands. [slurm-silent]"
    )


REFUSED = {
    "a field": (
        "c.GPUProfilesSpawner.profiles[0]['slurm']['memory'] = 'lots'",
        "gpuspawner: c.GPUProfilesSpawner.profiles[0].slurm.memory: 'lots' is not a valid amount of memory: ",
    ),
    "a folder": (
        "c.GPUProfilesSpawner.profiles_dir = '/no/such/folder'",
        "gpuspawner: c.GPUProfilesSpawner.profiles_dir: there is no folder '/no/such/folder'. ",
    ),
    "a class of a profile": (
        "c.GPUProfilesSpawner.profiles = [('A', 'a', 'no.such.Spawner', {})]",
        "gpuspawner: c.GPUProfilesSpawner.profiles[0].traits: the spawner class 'no.such.Spawner' cannot be imported: ",
    ),
    "a field of the prefix": (
        "c.GPUSlurmSpawner.exec_prefix = 'sudo -u {nobody}'",
        "gpuspawner: exec_prefix: {nobody} is not a known field. Fields are {username}.",
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
    "a name that Python does not know": (
        "c.Spawner.cmd = undefined_name",
        "jupyterhub_config.py: NameError: name 'undefined_name' is not defined",
    ),
    "no profile": ("c.GPUProfilesSpawner.profiles = []", "gpuspawner: There is no profile to offer. "),
}


@pytest.mark.parametrize(("lines", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_configuration_with_which_the_hub_would_not_start(tmp_path: Path, lines: str, sentence: str) -> None:
    """The message with which the hub would exit; exit code 1, and Slurm is not queried."""
    checked = run(tmp_path, f"{CONFIGURATION}{NO_SLURM}{lines}\n", "check")

    assert (checked.exit_code, checked.stdout, sentence in checked.stderr) == (1, "", True)


def test_what_is_misspelt_is_said_before_its_consequence(tmp_path: Path) -> None:
    """A class that does not exist has the profiles; all other faults of the configuration are said at once."""
    lines = (
        "c.JupyterHub.spawner_class = 'gpu-profiles'\n"
        "c.GPUProfileSpawner.profiles = [{'display_name': 'G'}]\n"
        "c.JupyterHub.load_groups = ['course']\n"
    )
    checked = run(tmp_path, lines, "check")

    assert (checked.exit_code, [line.removeprefix("gpuspawner: ")[:30] for line in checked.stderr.splitlines()]) == (
        1,
        [
            "c.GPUProfileSpawner: there is ",
            "There is no profile to offer. ",
            "c.JupyterHub.load_groups: The ",
        ],
    )


def test_all_faulty_profiles_are_said_at_once(tmp_path: Path) -> None:
    """With their fields; a setting of the same hub, too."""
    lines = (
        "c.GPUProfilesSpawner.profiles = [{'display_name': 'G', 'slurm': {'GPUs': 1}}, {'slurm': {'gres': 'gpu'}}]\n"
        "c.JupyterHub.load_groups = ['course']\n"
    )
    document = json.loads(run(tmp_path, f"{CONFIGURATION}{lines}", "check", "--json").stdout)

    assert [(finding["code"], finding["where"]) for finding in document["findings"]] == [
        ("configuration", "c.GPUProfilesSpawner.profiles[0].slurm.GPUs"),
        ("configuration", "c.JupyterHub.load_groups"),
        ("configuration", "c.GPUProfilesSpawner.profiles[1].display_name"),
    ]


def test_an_older_spawner_is_migrated(tmp_path: Path) -> None:
    """The class of batchspawner is known, and the command that converts its configuration is named."""
    checked = run(tmp_path, "c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'\n", "check")

    assert "run `gpuspawner migrate` for a configuration of this package" in checked.stderr


def test_a_hub_without_profiles(tmp_path: Path) -> None:
    """`gpu-slurm` without profiles is checked, too."""
    lines = f"c.JupyterHub.spawner_class = 'gpu-slurm'\nc.Authenticator.allow_all = True\n{NO_SLURM}"

    assert run(tmp_path, lines, "check").exit_code == 3
    assert run(tmp_path, f"{lines}c.GPUSlurmSpawner.req_runtime = 'soon'\n", "check").stderr.startswith(
        "gpuspawner: c.GPUSlurmSpawner.req_runtime: 'soon' is not a valid time: "
    )


@pytest.mark.slurm
def test_slurm_is_asked_as_a_user(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Each profile that the user may use is tried without being submitted, and the seats of one are counted."""
    lines = CONFIGURATION + slurm_of(slurm_cluster) + ONE_ACCOUNT
    options = ("--user", "ada", "--people", "2", "--profile", "gpu", "--json")
    wait_until(
        lambda: not slurm_cluster.run("sinfo", "-h", "-p", "gpu", "-t", "unknown", "-o", "%N"), seconds=120
    )  # a slurmctld that another test has restarted does not know its nodes at once
    checked = run(tmp_path, lines, "check", *options, environment=slurm_cluster.environment)
    document = json.loads(checked.stdout)

    assert (checked.exit_code, document["version"]) == (0, 1)
    assert [
        (finding["severity"], finding["code"])
        for finding in document["findings"]
        if finding["where"].startswith("profile gpu")
    ] == [
        ("ok", "profile"),
        ("ok", "trial"),
        ("ok", "seats"),
    ]
    assert slurm_cluster.run("squeue", "-h", "-t", "PD,CF,R") == ""


def test_a_program_reads_of_a_configuration_with_which_the_hub_would_not_start(tmp_path: Path) -> None:
    """The document has one finding, with the place and what would be right."""
    checked = run(tmp_path, f"{CONFIGURATION}c.GPUProfilesSpawner.profiles_dir = '/no/such/folder'", "check", "--json")

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
                    "fix": "Create it, and put YAML files with profiles into it; "
                    "`gpuspawner files DIR --profiles` writes examples.",
                    "cluster": "",
                }
            ],
        },
    )


USAGE = {
    "a group of nobody": (("--group", "course"), "--group needs --user."),
    "a profile for nothing": (("--profile", "gpu"), "--profile needs --user"),
    "a profile that does not exist": (("--user", "ada", "--profile", "gup"), "there is no profile 'gup'."),
}


@pytest.mark.parametrize(("words", "message"), USAGE.values(), ids=USAGE.keys())
def test_options_that_ask_for_nothing(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """They are refused, and nothing is checked."""
    checked = run(tmp_path, f"{CONFIGURATION}{NO_SLURM}", "check", *words)

    assert checked.exit_code != 0
    assert (checked.stdout, message in checked.stderr) == ("", True)


def test_check_tells_of_each_file_that_may_not_be_read_or_say_what_it_says(tmp_path: Path) -> None:
    """The message has name, line and field, and the setting that would allow it; no link target is revealed."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (tmp_path / "secret").write_text("the-secret-of-the-hub\n")
    (folder / "a.yaml").symlink_to(tmp_path / "secret")
    (folder / "b.yaml").write_text("display_name: B\nenvironment: {setup: id}\n")
    (folder / "c.yaml").write_text("[" * 300_000)
    (folder / "d.yaml").write_text("display_name: D\nslurm: {memory: lots}\n")
    checked = run(tmp_path, f"{CONFIGURATION}{NO_SLURM}c.GPUProfilesSpawner.profiles_dir = {str(folder)!r}", "check")

    assert checked.exit_code == 1
    *faults, memory = [line for line in checked.stdout.splitlines() if "yaml" in line]
    assert faults == [
        "WRONG a.yaml: the file is a symbolic link, which is not followed: use a copy of the file [profile-file]",
        "WRONG b.yaml:2: environment.setup: this field is not allowed in a profile file. "
        '"setup" in c.GPUProfilesSpawner.profiles_dir_allows would allow it. [profile-file]',
        "WRONG c.yaml:1: tables and lists are nested more than 50 deep [profile-file]",
    ]
    assert memory.startswith("WRONG d.yaml:2: slurm.memory: ")
    assert ("ok    profile gpu: GPU (slurm)" in checked.stdout, "the-secret-of" in checked.output) == (True, False)


MISSING = "there is no partition gup (available: batch, gpu). Name a partition that exists. [partition-missing]"
ANYWHERE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.Authenticator.allow_all = True
c.GPUProfilesSpawner.profiles = [{"display_name": "Any", "slurm": {"partition": None, "time": "8:00:00"}}]
"""
ALONE = "c.JupyterHub.spawner_class = 'gpu-slurm'; c.Authenticator.allow_all = True"
PARTITIONS = {
    "a profile that says none": (CONFIGURATION.replace('"partition": "gpu", ', ""), 1, "c.SlurmSpawner.req_partition"),
    "a profile that takes it away": (ANYWHERE, 0, ""),
    "a hub without profiles": (ALONE, 1, "c.SlurmSpawner.req_partition"),
}


@pytest.mark.slurm
@pytest.mark.parametrize(("lines", "code", "subject"), PARTITIONS.values(), ids=PARTITIONS.keys())
def test_the_sites_partition_is_looked_for_where_a_job_would_go_there(
    tmp_path: Path, slurm_cluster: PrivateSlurm, lines: str, code: int, subject: str
) -> None:
    """The partition that a job of the profile would get, wherever it is set."""
    lines = f"{lines}\nc.SlurmSpawner.req_partition = 'gup'\n{slurm_of(slurm_cluster)}"
    checked = run(tmp_path, lines, "check", environment=slurm_cluster.environment)
    wrong = [line for line in checked.stdout.splitlines() if line.startswith("WRONG")]

    assert (checked.exit_code, wrong) == (
        code,
        [f"WRONG {subject}: {MISSING}"] if code else [],
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("json", "'json' is not a spawner of this package."),
        ("json.dumps", "'json.dumps' is not a spawner of this package."),
        ("", "'' cannot be imported: ValueError: Empty module name"),
        (["gpu-profiles"], "['gpu-profiles'] is not a spawner of this package."),
        ("nothing.Of", "No module named 'nothing'."),
    ],
)
def test_a_spawner_class_that_is_none_is_a_finding(value: object, text: str, tmp_path: Path) -> None:
    """JupyterHub takes a class or its name; anything else is told at the setting."""
    done = run(tmp_path, f"c.JupyterHub.spawner_class = {value!r}", "check", "--json")
    finding = json.loads(done.stdout)["findings"][0]

    assert (done.exit_code, finding["code"], finding["where"], finding["text"]) == (
        1,
        "configuration",
        "c.JupyterHub.spawner_class",
        text,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="the tests' account is not root")
@pytest.mark.parametrize("spawner", ["gpu-slurm", "gpu-profiles"])
def test_servers_of_everybody_that_would_be_roots(tmp_path: Path, spawner: str) -> None:
    """The hub does not start with it; the other checks are made, too."""
    lines = f"c.JupyterHub.spawner_class = {spawner!r}\nc.SlurmSpawner.exec_prefix = ''\n"
    checked = run(tmp_path, CONFIGURATION + NO_SLURM + lines, "check")

    assert checked.exit_code == 1
    assert [line for line in checked.stdout.splitlines() if line.endswith("[servers-as-root]")] == [
        "WRONG c.SlurmSpawner.exec_prefix: servers of all users would run as root, as this check does. Set it to what "
        'runs sbatch as the user: "runuser -u {username} --" for a hub that is root, "sudo -n -u {username}" with '
        "wrapper_dir for one that is not. (Tests may set c.GPUSlurmSpawner.dangerously_run_servers_as_root.) Run the "
        "check as the hub's account, if that is another one. [servers-as-root]"
    ]
