"""The configuration for each kind of machine, as the hub reads it."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.init.devices import Kind
from jupyterhub_gpuspawner.extensions.init.plan import PlannedProfile
from jupyterhub_gpuspawner.extensions.init.report import next_text
from jupyterhub_gpuspawner.extensions.init.write import Machine, config_text, files_of, profile_text, write
from jupyterhub_gpuspawner.site.configuration import read_config

ROOT = Machine(as_root=True, user="root", hub_ip="10.0.0.10")
ALL = {"JupyterHub.spawner_class": "gpu-profiles", "JupyterHub.cleanup_servers": False}
ALL |= {"JupyterHub.bind_url": "http://127.0.0.1:8000", "Spawner.cmd": ["jupyterhub-singleuser"]}
NODES = {"JupyterHub.hub_ip": "10.0.0.10", "GPUSlurmSpawner.port_range": "20000-20999"}
OF_ROOT = {"Authenticator.allow_all": True, "GPUSlurmSpawner.exec_prefix": "runuser -u {username} --"}
MACHINES: dict[str, tuple[Machine, dict[str, Any]]] = {
    "of root": (ROOT, {**ALL, **NODES, **OF_ROOT}),
    "of a person": (
        replace(ROOT, as_root=False, user="ada"),
        {**ALL, **NODES, "Authenticator.allowed_users": {"ada"}, "GPUSlurmSpawner.exec_prefix": ""},
    ),
    "a workstation": (
        replace(ROOT, is_node=True, hub_ip="", singleuser="/opt/hub/bin/jupyterhub-singleuser"),
        {**ALL, **OF_ROOT, "Spawner.cmd": ["/opt/hub/bin/jupyterhub-singleuser"]},
    ),
    "with an address that is not known": (
        replace(ROOT, hub_ip=""),
        {**ALL, **NODES, **OF_ROOT, "JupyterHub.hub_ip": "0.0.0.0"},
    ),
    "with a Slurm of its own place, in a federation": (
        replace(ROOT, slurm_bin_dir="/opt/slurm/bin", slurm_conf='/etc/"x"', req_cluster="cedar", is_federated=True),
        {
            **ALL,
            **NODES,
            **OF_ROOT,
            "GPUSlurmSpawner.slurm_bin_dir": "/opt/slurm/bin",
            "GPUSlurmSpawner.slurm_conf": '/etc/"x"',
            "GPUSlurmSpawner.req_cluster": "cedar",
        },
    ),
    "with a login node": (
        replace(ROOT, login_node="ssh -i '/a b' login"),
        {
            **ALL,
            **NODES,
            "Authenticator.allow_all": True,
            "GPUSlurmSpawner.exec_prefix": "ssh -i '/a b' login sudo -n -u {username}",
            "GPUSlurmSpawner.query_prefix": "ssh -i '/a b' login",
            "GPUSlurmSpawner.wrapper_dir": "/etc/jupyterhub/wrappers",
        },
    ),
}


@pytest.mark.parametrize(("machine", "settings"), MACHINES.values(), ids=MACHINES.keys())
def test_a_configuration_is_what_the_hub_reads(tmp_path: Path, machine: Machine, settings: dict[str, Any]) -> None:
    """Each setting and no other; the text has lines of at most 100 characters, but for those with a value."""
    file = tmp_path / "jupyterhub_config.py"
    file.write_text(config_text(machine, version="24.11.5", cluster_name="cedar"))
    config = read_config(file)
    found = {f"{section}.{name}": value for section, values in config.items() for name, value in values.items()}

    assert found == {**settings, "GPUProfilesSpawner.profiles_dir": str(tmp_path / "profiles")}
    lines = file.read_text().splitlines()
    assert [line for line in lines if len(line) > 100 and not line.startswith(('"""', "c."))] == []
    assert "\n\n\n" not in file.read_text()


def test_what_has_to_be_done_first_is_said_first(tmp_path: Path) -> None:
    """What only an admin knows, and what is not installed."""
    machine = replace(ROOT, hub_ip="", has_proxy=False)

    assert next_text(tmp_path, machine).splitlines() == [
        "Next:",
        f"  set hub_ip in {tmp_path}/jupyterhub_config.py, which could not be found out: the line marked SITE",
        "  npm install -g configurable-http-proxy, which JupyterHub needs and which was not found",
        f"  gpuspawner check -f {tmp_path}/jupyterhub_config.py --user YOU --submit",
        f"  cd {tmp_path} && jupyterhub",
        "  open http://127.0.0.1:8000 on this machine, or by ssh -L 8000:127.0.0.1:8000 from yours",
    ]


def test_names_that_yaml_would_read_otherwise_are_kept() -> None:
    """A partition called ``no``, a type that looks like a number, and a text with a colon."""
    request: dict[str, str | int] = {
        "partition": "no",
        "gpus": 1,
        "gpu_type": "3090",
        "memory": "8G",
        "time": "8:00:00",
    }
    profile = PlannedProfile(Kind("gpu", "3090"), "3090", "One: #1", "- x", "no", request, 0, {"partition": "Why."})

    read = yaml.safe_load(profile_text(profile, default=True))

    assert read == {
        "display_name": "One: #1",
        "slug": "3090",
        "description": "- x",
        "default": True,
        "slurm": {**request, "time": 8 * 3600},
    }


def test_files_of_ten_profiles_are_in_their_order() -> None:
    """On the form they are in the order of their names."""
    profile = PlannedProfile(Kind(), "cpu", "CPU", "", "batch", {"partition": "batch", "time": "1:00:00"}, 0, {})
    names = files_of([replace(profile, slug=f"p{at}") for at in range(10)], ROOT, version="24.11", cluster_name="")

    assert [*names][1:] == sorted([*names][1:]) == [f"profiles/{at + 1:02}-p{at}.yaml" for at in range(10)]


@pytest.mark.parametrize(
    ("fault", "raised", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            ConfigError,
            "/b: No space left on device. Nothing was written",
        ),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
    ],
    ids=["the disk is full", "it is interrupted"],
)
def test_half_a_hub_is_none(
    fault: BaseException, raised: type[BaseException], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is gone, so the command can be given again; what was there is not touched."""
    (tmp_path / "notes").write_text("mine")
    opened = Path.open

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, text: str) -> None:
            self.file.write(text[:1])
            raise fault

    def full(path: Path, *arguments: Any, **options: Any) -> Any:
        file = opened(path, *arguments, **options)
        return Full(file) if path.name == "b" else file

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(raised) as caught:
        write(tmp_path, {"a": "1", "profiles/b": "2"})
    monkeypatch.undo()
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    write(tmp_path, {"a": "1", "profiles/b": "2"})

    assert said in str(caught.value)
    assert left == ["notes"]
    assert (tmp_path / "profiles" / "b").read_text() == "2"
