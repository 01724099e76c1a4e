"""``gpuspawner migrate``: what it prints, refusals and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.commands import Call

OLD = """
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.ConfigurableHTTPProxy.auth_token = "secret"
c.SlurmSpawner.req_partition = "gpu"
c.SlurmSpawner.req_gres = "gpu:2"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A configuration with a secret."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(OLD)
    return path


SETTINGS = """\
import os

# In place of all statements that set c.SlurmSpawner,
# and of c.JupyterHub.spawner_class:
c.JupyterHub.spawner_class = "gpu-profiles"
# The folder of profiles.yaml, beside this file. It is read again when it changes.
c.GPUProfilesSpawner.profiles_dir = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")
c.GPUSlurmSpawner.exec_prefix = "sudo -E -u {username}"
"""
PROFILES = """\
# Written by gpuspawner migrate. The reference "Profile fields" lists all.

- display_name: Notebook server
  slug: server
  default: true
  slurm:
    partition: gpu
    gpus: 2
"""


def test_settings_profiles_and_differences_are_printed(gpuspawner: Call, old: Path, tmp_path: Path) -> None:
    """Nothing of the configuration that is not a spawner's, such as a secret; and nothing is written."""
    whole = gpuspawner("migrate", old)
    parts = {name: gpuspawner("migrate", old, "--only", name).stdout for name in ("settings", "profiles")}

    assert parts == {"settings": SETTINGS, "profiles": PROFILES}
    assert whole.stdout.startswith(
        f"# jupyterhub_config.py\n\n{SETTINGS}\n# profiles.yaml\n\n{PROFILES}\n# Differences\n\n## Changed\n"
    )
    assert "secret" not in whole.stdout
    assert (old.read_text(), list(tmp_path.iterdir())) == (OLD, [old])


def test_the_list_is_there_for_programs(gpuspawner: Call, old: Path) -> None:
    """Each difference is a value with its kind, beside the two texts."""
    document = json.loads(gpuspawner("migrate", old, "--json").stdout)

    assert (document["version"], document["settings"], document["profiles"]) == (1, SETTINGS, PROFILES)
    assert {
        "code": "moved",
        "kind": "moved",
        "where": "c.SlurmSpawner.req_gres",
        "was": "gpu:2",
        "now": "profile server: slurm.gpus",
        "why": "it means the same",
        "todo": "",
        "profiles": [],
    } in document["differences"]


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
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("c.JupyterHub.spawner_class = 'jupyterhub_moss.MOSlurmSpawner'", "moss needs a table of partitions."),
    ],
)
def test_what_cannot_be_migrated_is_refused(gpuspawner: Call, tmp_path: Path, text: str, message: str) -> None:
    """With a sentence and status 1."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(text)
    refused = gpuspawner("migrate", path)

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert message in refused.stderr


FIXED = """
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.batch_script = "#!/bin/bash\\n#SBATCH --partition=gpu --gres=gpu:{ngpus}\\n{cmd}\\n"
c.ProfilesSpawner.profiles = [("A", "a", "batchspawner.SlurmSpawner", dict(req_partition="batch", req_ngpus="1"))]
"""
UNKNOWN_VARIABLE = """
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.req_ngpus = "1"
c.SlurmSpawner.batch_script = "#!/bin/bash\\n#SBATCH --gres=gpu:{{ngpus}}\\nsingularity run {{image}} {{cmd}}\\n"
"""


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        pytest.param(
            FIXED, ("dropped", "c.ProfilesSpawner.profiles[0]: partition", "batch", ""), id="a value without effect"
        ),
        pytest.param(
            UNKNOWN_VARIABLE, ("decide", "c.SlurmSpawner.batch_script", "{image}", "left out"), id="an unknown variable"
        ),
    ],
)
def test_what_a_template_fixes_or_lacks_is_told(
    gpuspawner: Call, tmp_path: Path, text: str, difference: tuple[str, str, str, str]
) -> None:
    """The result loads, with the job that was submitted before."""
    old = tmp_path / "jupyterhub_config.py"
    old.write_text(text)
    document = json.loads(gpuspawner("migrate", old, "--json").stdout)
    slug = "a" if text == FIXED else "server"
    new = tmp_path / "new.py"
    new.write_text(document["settings"] + "c.GPUSlurmSpawner.req_homedir = '/home/{username}'\n")
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "profiles.yaml").write_text(document["profiles"])
    shown = gpuspawner("show", slug, "--user", "ada", "--config", new)

    assert difference in [(row["kind"], row["where"], row["was"], row["now"]) for row in document["differences"]]
    assert "#SBATCH --gres=gpu:1\n" in shown.stdout


def test_settings_in_another_file_are_read(gpuspawner: Call, old: Path, tmp_path: Path) -> None:
    """The configuration is executed with all that it loads."""
    (tmp_path / "slurm.py").write_text("c.SlurmSpawner.req_qos = 'interactive'\n")
    old.write_text(f"load_subconfig('slurm.py')\n{OLD}")

    assert "    qos: interactive\n" in gpuspawner("migrate", old, "--only", "profiles").stdout


def test_there_has_to_be_a_file(gpuspawner: Call, tmp_path: Path) -> None:
    """The error names it."""
    refused = gpuspawner("migrate", tmp_path / "missing.py")

    assert (refused.exit_code, refused.stderr) == (
        1,
        f"gpuspawner: there is no file {tmp_path / 'missing.py'}.\n",
    )
