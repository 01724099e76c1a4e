"""The image of a hub in front of a real Slurm: its steps are scripts, and its configuration is in order.

tests/hub/test_hub_without_slurm.py runs a hub with this configuration on a machine without Slurm.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
import yaml

from jupyterhub_gpuspawner.site.config_files import HubInstallation, files_of
from jupyterhub_gpuspawner.site.configuration import load_site

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "hub"


@pytest.mark.parametrize("folder", [FOLDER, FOLDER.parent], ids=["a hub alone", "the demo"])
def test_each_step_is_a_script_of_the_repository(folder: Path) -> None:
    """The images and their containers run only executable scripts from scripts/."""
    steps = re.findall(r"^RUN (.*)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"].values()
    commands = [*map(shlex.split, steps), *(service["command"] for service in services)]

    assert [command[0] for command in commands if not os.access(ROOT / command[0], os.X_OK)] == []
    assert {command[0] for command in commands} >= {"scripts/setup", "scripts/accounts", "scripts/serve-hub"}


def test_the_container_gets_no_key_that_would_act_as_everybody() -> None:
    """Neither munge's key nor Slurm's, by either way."""
    for name in ("compose.yaml", "compose.munge.yaml"):
        volumes = yaml.safe_load((FOLDER / name).read_text())["services"]["hub"]["volumes"]
        assert [volume for volume in volumes if re.search(r"\.key|/etc/munge|jwt", volume)] == []


SSH = "ssh -F {ssh_config} login"
WAYS = {
    "ssh": (SSH, f"{SSH} sudo -n -u {{{{username}}}}"),
    "munge": ("", "sudo -n -u {{username}}"),
}


@pytest.mark.parametrize(("way", "prefixes"), WAYS.items(), ids=WAYS)
def test_the_configuration_loads(
    way: str, prefixes: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub would start with it, with ssh_config where `gpuspawner files` writes it; the site's file is the last."""
    here = HubInstallation(tmp_path, wrapper_dir=tmp_path / "wrappers", bin_dir=Path("/opt/jupyterhub/bin"))
    (ssh_config,) = (file.path for file in files_of(["ssh"], here) if file.path.name == "ssh_config")
    (tmp_path / "profiles").mkdir()
    (tmp_path / "courses").mkdir()
    (tmp_path / "site.py").write_text("c.GPUSlurmSpawner.req_partition = 'mine'\n")
    for name, value in {"HUB_ETC": str(tmp_path), "HUB_ADDRESS": "10.0.0.10", "HUB_WAY": way}.items():
        monkeypatch.setenv(name, value)
    site = load_site(FOLDER / "jupyterhub_config.py")
    slurm = site.config.GPUSlurmSpawner
    site.spawner("nobody").check()

    assert (slurm.get("query_prefix", ""), slurm.exec_prefix) == tuple(
        prefix.format(ssh_config=ssh_config) for prefix in prefixes
    )
    assert (slurm.req_partition, slurm.hub_name, site.config.JupyterHub.hub_ip) == ("mine", "jupyter", "10.0.0.10")
    assert site.config.GPUProfilesSpawner.profiles_dir == str(tmp_path / "profiles")
