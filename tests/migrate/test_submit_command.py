"""What ``batch_submit_cmd`` says is in the result: who runs sbatch, where it is, and the job's options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.migrate.result import Migration
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site, load_site
from jupyterhub_gpuspawner.slurm.sbatch_options import options_in
from tests.migrate.conftest import migrated_text

HEAD = 'c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"\nc.SlurmSpawner.req_nprocs = "2"\n'
SUDO = "sudo -E -u {username}"
OPTIONS = {"account": "proj", "partition": "gpu", "gres": "gpu:1", "mail-type": "END"}
COMMAND = f"{SUDO} /opt/slurm/bin/sbatch --parsable --gres=gpu:1 --account=proj -p gpu --mail-type=END"
KEPT = "#!/bin/bash\n#SBATCH --partition=cpu\nsource /opt/{partition}\nexport A={nprocs}\n{cmd} --debug\n"
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "F01": ({"exec_prefix": "", "batch_submit_cmd": COMMAND}, SUDO, "/opt/slurm/bin"),
    "over the site's own requests": (
        {"exec_prefix": "", "batch_submit_cmd": COMMAND, "req_partition": "cpu", "req_gres": "gpu:4"},
        SUDO,
        "/opt/slurm/bin",
    ),
    "over a template's": (
        {"exec_prefix": "", "batch_submit_cmd": COMMAND, "batch_script": "#!/bin/sh\n#SBATCH -p cpu\n{cmd}\n"},
        SUDO,
        "/opt/slurm/bin",
    ),
    "over those of a template that is kept": (
        {"exec_prefix": "", "batch_submit_cmd": COMMAND, "batch_script": KEPT},
        SUDO,
        "/opt/slurm/bin",
    ),
    "with batchspawner's prefix": (
        {"batch_submit_cmd": "sbatch --parsable --gres=gpu:1 -A proj -p gpu --mail-type=END"},
        "sudo -n -E -u {username}",
        "",
    ),
    "in su": (
        {"exec_prefix": "su {username} -c", "batch_submit_cmd": "'sbatch --gres=gpu:1 -A proj -p gpu --mail-type=END'"},
        "runuser -u {username} --",
        "",
    ),
}


def result(tmp_path: Path, settings: dict[str, Any]) -> tuple[Migration, Site]:
    """The migration, and the hub that its text makes."""
    lines = [f"c.SlurmSpawner.{name} = {value!r}" for name, value in settings.items()]
    return migrated_text(HEAD + "\n".join(lines), tmp_path), load_site(tmp_path / "jupyterhub_config.py")


@pytest.mark.parametrize(("settings", "prefix", "bin_dir"), CASES.values(), ids=CASES.keys())
def test_prefix_folder_and_options_are_in_the_result(
    tmp_path: Path, settings: dict[str, Any], prefix: str, bin_dir: str
) -> None:
    """And the job asks for what batchspawner's command line did; each has a row."""
    migration, site = result(tmp_path, settings)
    spawner = site.spawner("ada")
    assert isinstance(spawner, GPUProfilesSpawner)
    spawner.check()
    spawner.check_accounts()
    spawner.prepare(spawner.resolve({"profile": "server"}))
    options = dict(options_in(spawner.batch_job(SOMEBODY).script))

    assert (spawner.exec_prefix, spawner.slurm_bin_dir) == (prefix, bin_dir)
    assert {name: options.get(name) for name in OPTIONS} == OPTIONS
    assert spawner.request is not None
    assert spawner.request.resources.gpus == 1
    rows = {row.code: row for row in migration.differences if row.where == "c.SlurmSpawner.batch_submit_cmd"}
    assert rows["submit_command_taken"].was == settings["batch_submit_cmd"]
    assert "slurm.gpus" not in [row.where for row in migration.differences]
    assert {row.where for row in migration.differences}.isdisjoint(f"--{name}" for name in OPTIONS)


def test_a_prefix_for_a_shell_is_not_said_to_be_the_same(tmp_path: Path) -> None:
    """Its row has both."""
    prefix = "runuser -l {username} -c"
    migration, site = result(tmp_path, {"exec_prefix": prefix})
    rows = [(row.code, row.was, row.now) for row in migration.differences if row.where == "c.SlurmSpawner.exec_prefix"]

    assert rows == [("prefix_with_shell", prefix, "runuser -u {username} --")]
    assert site.spawner("ada").exec_prefix == "runuser -u {username} --"


DECIDE = {
    "no other account": ({"exec_prefix": ""}, "c.SlurmSpawner.exec_prefix", "the servers of all users belong to"),
    "a pipeline": (
        {"batch_submit_cmd": "sbatch --parsable | cut -d. -f1"},
        "c.SlurmSpawner.batch_submit_cmd",
        "no shell runs it here, and it cannot be taken over: '|' is the shell's",
    ),
    "a shell's command line": (
        {"exec_prefix": "su - {username} -c", "batch_submit_cmd": "'cd && sbatch'"},
        "c.SlurmSpawner.batch_submit_cmd",
        "no shell runs it here, and it cannot be taken over: '&&' is the shell's",
    ),
    "a program": (
        {"batch_submit_cmd": "/opt/site/submit"},
        "c.SlurmSpawner.batch_submit_cmd",
        "no shell runs it here, and it cannot be taken over: it does not run sbatch",
    ),
}


@pytest.mark.parametrize(("settings", "where", "why"), DECIDE.values(), ids=DECIDE.keys())
def test_what_the_admin_decides(tmp_path: Path, settings: dict[str, Any], where: str, why: str) -> None:
    """A row says why, and the setting is not in the result."""
    migration, _ = result(tmp_path, settings)
    (row,) = [row for row in migration.differences if row.where == where]
    assert (row.kind.value, row.why[: len(why)], bool(row.todo)) == ("decide", why, True)
    assert "batch_submit_cmd" not in migration.settings
    assert "-c" not in migration.settings.get("exec_prefix", "").split()
