"""``gpuspawner migrate``: files, permissions, refusals and exit statuses."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call

OLD = """
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.ConfigurableHTTPProxy.auth_token = "secret"
c.SlurmSpawner.req_partition = "gpu"
c.SlurmSpawner.req_gres = "gpu:2"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
"""
MAIN = "from jupyterhub_gpuspawner.cli.main import main; main()"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A configuration with a secret."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(OLD)
    path.chmod(0o640)
    return path


def test_what_is_written_is_printed(gpuspawner: Call, old: Path, tmp_path: Path) -> None:
    """The new configuration is as private as the old one, which is not changed."""
    folder = tmp_path / "new"
    done = gpuspawner("migrate", old, "--output", folder)

    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [
            f"written   {folder}/jupyterhub_config.py",
            f"written   {folder}/differences.md",
            f"written   {folder}/profiles/profiles.yaml",
            "      8   changed",
            "      3   the same under another name",
            f"Next: gpuspawner check --config {folder}/jupyterhub_config.py",
        ],
    )
    assert (folder / "jupyterhub_config.py").stat().st_mode & 0o777 == 0o640
    assert old.read_text() == OLD


def test_nothing_is_written_over_without_force(gpuspawner: Call, old: Path, tmp_path: Path) -> None:
    """Not even one of three files; and never the configuration itself."""
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "differences.md").write_text("mine")
    refused = gpuspawner("migrate", old, "-o", folder)

    assert (refused.exit_code, refused.stderr) == (
        1,
        f"gpuspawner: {folder}/differences.md: there is such a file already. --force writes over it.\n",
    )
    assert [path.name for path in folder.iterdir()] == ["differences.md"]
    assert gpuspawner("migrate", old, "-o", folder, "--force").exit_code == 0
    assert gpuspawner("migrate", old, "-o", tmp_path, "--force").exit_code == 1
    assert old.read_text() == OLD


def test_the_list_is_there_for_programs(gpuspawner: Call, old: Path, tmp_path: Path) -> None:
    """Each difference is a value with its kind."""
    listed = json.loads(gpuspawner("migrate", old, "-o", tmp_path / "new", "--json").stdout)

    assert {
        "kind": "moved",
        "where": "c.SlurmSpawner.req_gres",
        "was": "gpu:2",
        "now": "profile server: slurm.gpus",
        "why": "it means the same",
        "todo": "",
        "profiles": [],
    } in listed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "c.JupyterHub.spawner_class = 'kubespawner.KubeSpawner'",
            "'KubeSpawner' is not a spawner that can be migrated.",
        ),
        ("c.JupyterHub.port = 8000", "'LocalProcessSpawner' is not a spawner that can be migrated."),
        ("c.JupyterHub.spawner_class = 'gpu-profiles'", "this hub has a spawner of this package already."),
        ("c.JupyterHub.port = ", "SyntaxError: invalid syntax"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (
            "c.JupyterHub.spawner_class = 'wrapspawner.ProfilesSpawner'\nc.ProfilesSpawner.profiles = [(1, 2, 3)]",
            "c.ProfilesSpawner.profiles[0]: a tuple of 3 is not a profile",
        ),
        ("c.JupyterHub.spawner_class = 'jupyterhub_moss.MOSlurmSpawner'", "moss needs a table of partitions."),
    ],
)
def test_what_cannot_be_migrated_is_refused(gpuspawner: Call, tmp_path: Path, text: str, message: str) -> None:
    """With a sentence and status 1; nothing is written."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(text)
    refused = gpuspawner("migrate", path, "-o", tmp_path / "new")

    assert refused.exit_code == 1
    assert message in refused.stderr
    assert not (tmp_path / "new").exists()


FIXED = """
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.batch_script = "#!/bin/bash\\n#SBATCH --partition=gpu --gres=gpu:{ngpus}\\n{cmd}\\n"
c.ProfilesSpawner.profiles = [("A", "a", "batchspawner.SlurmSpawner", dict(req_partition="batch", req_ngpus="1"))]
"""
KEPT = """
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.req_ngpus = "1"
c.SlurmSpawner.batch_script = "#!/bin/bash\\n#SBATCH --gres=gpu:{{ngpus}}\\nsingularity run {{image}} {{cmd}}\\n"
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            FIXED, ("dropped", "c.ProfilesSpawner.profiles[0]: partition", "batch", ""), id="a value without effect"
        ),
        pytest.param(KEPT, ("decide", "c.SlurmSpawner.batch_script", "{image}", "left out"), id="an unknown variable"),
    ],
)
def test_what_a_template_fixes_or_lacks_is_told(
    gpuspawner: Call, tmp_path: Path, text: str, told: tuple[str, str, str, str]
) -> None:
    """The result loads, with the job that was submitted before."""
    old = tmp_path / "jupyterhub_config.py"
    old.write_text(text)
    done = gpuspawner("migrate", old, "-o", tmp_path / "new", "--json")
    slug = "a" if text == FIXED else "server"
    with (tmp_path / "new" / "jupyterhub_config.py").open("a") as file:
        file.write("c.GPUSlurmSpawner.req_homedir = '/home/{username}'\n")
    shown = gpuspawner("show", slug, "--user", "ada", "--config", tmp_path / "new" / "jupyterhub_config.py")

    assert told in [(each["kind"], each["where"], each["was"], each["now"]) for each in json.loads(done.stdout)]
    assert "#SBATCH --gres=gpu:1\n" in shown.stdout


def test_settings_in_another_file_are_told(gpuspawner: Call, old: Path, tmp_path: Path) -> None:
    """Only the named file is edited."""
    (tmp_path / "slurm.py").write_text("c.SlurmSpawner.req_qos = 'interactive'\n")
    old.write_text(f"load_subconfig('slurm.py')\n{OLD}")
    done = gpuspawner("migrate", old, "-o", tmp_path / "new")

    assert [line for line in done.stdout.splitlines() if line.startswith("decide")] == [
        "decide    c.SlurmSpawner.req_qos: it is set in another file, which is not changed, and would still be read. "
        "Remove it there."
    ]


def test_there_has_to_be_a_file(gpuspawner: Call, tmp_path: Path) -> None:
    """The error names it."""
    refused = gpuspawner("migrate", tmp_path / "missing.py")

    assert (refused.exit_code, "missing.py: FileNotFoundError" in refused.stderr) == (1, True)


def test_what_is_written_is_utf_8_wherever_it_is_written(old: Path, tmp_path: Path) -> None:
    """In the C locale, too; Python reads a configuration as UTF-8."""
    old.write_text(f"{OLD}c.SlurmSpawner.req_nodelist = 'große-gpu'\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", MAIN, "migrate", old, "-o", tmp_path / "new"],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert "große-gpu" in (tmp_path / "new" / "differences.md").read_text("utf-8")


def test_what_cannot_be_written_leaves_the_file_of_before(gpuspawner: Call, old: Path, tmp_path: Path) -> None:
    """As on a disk that is full when the second of three files is written."""
    folder = tmp_path / "new"
    gpuspawner("migrate", old, "-o", folder)
    before = (folder / "jupyterhub_config.py").read_text()
    old.write_text(f"{OLD}c.JupyterHub.port = 9000\nc.JupyterHub.x = '{'x' * 100_000}'\n")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
    try:
        refused = gpuspawner("migrate", old, "-o", folder, "--force")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)

    assert (refused.exit_code, "File too large" in refused.stderr) == (1, True)
    assert (folder / "jupyterhub_config.py").read_text() == before
    assert sorted(path.name for path in folder.iterdir()) == ["differences.md", "jupyterhub_config.py", "profiles"]
