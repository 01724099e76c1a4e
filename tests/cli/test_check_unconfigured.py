"""``gpuspawner check`` where nothing, or nothing of this package, is configured yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from jupyterhub_gpuspawner.check.run import FIRST_LINES
from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extension import installed
from tests.cli.runner import cli_runner

PROGRAMS = Path(sys.executable).parent
KNOWN = [command.unconfigured for one in installed() for command in one.commands.values() if command.unconfigured]
WRITE = (
    f"{' '.join([*KNOWN, 'Or write' if KNOWN else 'Write'])} these lines into it, with a partition of yours that has "
    "GPUs, and run `gpuspawner check` again. `gpuspawner files DIR --profiles` writes a longer configuration, with "
    f"example profiles for c.GPUProfilesSpawner.profiles_dir.\n\n{FIRST_LINES}"
)
NO_PROFILE = {
    "severity": "error",
    "code": "configuration",
    "where": "",
    "text": "There is no profile to offer.",
    "fix": "Set c.GPUProfilesSpawner.profiles, or put files with profiles into c.GPUProfilesSpawner.profiles_dir; a "
    "hub without profiles sets c.JupyterHub.spawner_class = 'gpu-slurm'; "
    "`gpuspawner files DIR --profiles` writes examples.",
    "cluster": "",
}


@contextmanager
def chdir(folder: Path) -> Iterator[None]:
    """Be in this folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def check(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Result:
    """``gpuspawner check`` in a folder."""
    with chdir(folder):
        return cli_runner().invoke(main, ["check", *arguments], env=environment)


def findings(folder: Path) -> list[dict[str, str]]:
    """What ``gpuspawner check --json`` says of a folder's configuration, with which no hub of this package starts."""
    checked = check(folder, "--json")
    assert (checked.exit_code, checked.stderr) == (1, "")
    document = json.loads(checked.stdout)
    assert document.keys() == {"version", "findings"}
    return list(document["findings"])


def test_an_empty_folder_is_told_what_to_write(tmp_path: Path) -> None:
    """The lines of a configuration follow the sentence; the document for programs has them, too."""
    text = "there is no such file. If the hub has its configuration elsewhere, name the file with --config."
    checked = check(tmp_path)

    assert (checked.exit_code, checked.stdout) == (1, "")
    assert checked.stderr == f"gpuspawner: jupyterhub_config.py: {text} {WRITE}"
    assert findings(tmp_path) == [
        {
            "severity": "error",
            "code": "configuration-missing",
            "where": "jupyterhub_config.py",
            "text": text,
            "fix": WRITE,
            "cluster": "",
        }
    ]


@pytest.mark.slurm
def test_the_lines_that_are_told_are_a_configuration(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """Written into the file that is missing, they leave nothing to report on a cluster with a partition `gpu`."""
    missing = findings(tmp_path)[0]
    Path(tmp_path, missing["where"]).write_text(missing["fix"].partition("\n\n")[2])
    environment = {**slurm_cluster.environment, "PATH": f"{slurm_cluster.bin_dir}:{os.environ['PATH']}"}
    checked = check(tmp_path, environment=environment)

    assert (checked.exit_code, checked.stderr) == (0, "")
    assert checked.stdout.splitlines()[:-1] == [
        "ok    profile two-cores: Two cores (slurm)",
        "ok    profile one-gpu: One GPU (slurm)",
    ]
    assert checked.stdout.splitlines()[-1].startswith("ok    Slurm: ")


def test_jupyterhubs_own_default_configuration_lacks_a_spawner_and_profiles(tmp_path: Path) -> None:
    """The file that `jupyterhub --generate-config` writes sets nothing."""
    generate = [str(PROGRAMS / "jupyterhub"), "--generate-config"]
    subprocess.run(generate, cwd=tmp_path, check=True, capture_output=True)

    assert findings(tmp_path) == [
        {
            "severity": "error",
            "code": "configuration-missing",
            "where": "jupyterhub_config.py",
            "text": "it sets no spawner_class and no profiles: the hub starts every server on its own machine.",
            "fix": WRITE,
            "cluster": "",
        }
    ]


OLDER = (
    "Set it to 'gpu-profiles', with which most settings of batchspawner and wrapspawner keep working, or run "
    "`gpuspawner migrate` for a configuration of this package."
)
OTHERS = {
    "an entry point of JupyterHub": (
        "simple",
        "'simple' is not a spawner of this package.",
        "Set it to 'gpu-profiles'.",
    ),
    "a class": (
        "jupyterhub.spawner.LocalProcessSpawner",
        "'jupyterhub.spawner.LocalProcessSpawner' is not a spawner of this package.",
        "Set it to 'gpu-profiles'.",
    ),
    "a class that is not installed": ("other.Spawner", "No module named 'other'.", "Set it to 'gpu-profiles'."),
    "batchspawner": (
        "batchspawner.SlurmSpawner",
        "'batchspawner.SlurmSpawner' is not a spawner of this package.",
        OLDER,
    ),
}


@pytest.mark.parametrize(("name", "text", "fix"), OTHERS.values(), ids=OTHERS.keys())
def test_a_hub_with_another_spawner_lacks_ours_and_profiles(tmp_path: Path, name: str, text: str, fix: str) -> None:
    """Both are said at once, each where it is set."""
    (tmp_path / "jupyterhub_config.py").write_text(f"c.JupyterHub.spawner_class = {name!r}\n")

    assert findings(tmp_path) == [
        {
            "severity": "error",
            "code": "configuration",
            "where": "c.JupyterHub.spawner_class",
            "text": text,
            "fix": fix,
            "cluster": "",
        },
        NO_PROFILE,
    ]


def test_other_faults_of_a_configuration_without_spawner_are_said_too(tmp_path: Path) -> None:
    """The lines to write come last."""
    (tmp_path / "jupyterhub_config.py").write_text("c.JupyterHub.load_groups = ['course']\n")

    assert [(finding["code"], finding["where"]) for finding in findings(tmp_path)] == [
        ("configuration", "c.JupyterHub.load_groups"),
        ("configuration-missing", "jupyterhub_config.py"),
    ]


def test_a_misspelt_section_is_said_in_place_of_the_lines(tmp_path: Path) -> None:
    """Whoever wrote profiles needs no example."""
    lines = "c.GPUProfileSpawner.profiles = [{'display_name': 'GPU'}]\n"
    (tmp_path / "jupyterhub_config.py").write_text(lines)

    assert [(finding["code"], finding["where"]) for finding in findings(tmp_path)] == [
        ("spawner-class-missing", "c.JupyterHub.spawner_class"),
        ("class-unknown", "c.GPUProfileSpawner"),
        ("configuration", ""),
    ]
