"""``gpuspawner init`` in front of the recorded cluster of three versions of Slurm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.slurm.scontrol import parse_config, parse_nodes, parse_partitions
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.check.sites import context_in, findings_in
from tests.cli.runner import cli_runner
from tests.extensions.init.answers import recorded_commands
from tests.slurm.recorded import VERSIONS, recorded

if TYPE_CHECKING:
    from pathlib import Path

PROFILES = {
    "1-k80.yaml": ("One NVIDIA K80 (12 GB)", {"gpus": 1, "gpu_type": "k80", "cpus": 6, "memory": "15G"}),
    "2-v100.yaml": ("One NVIDIA V100", {"gpus": 1, "gpu_type": "v100", "cpus": 5, "memory": "62G"}),
    "3-gpu.yaml": ("One GPU", {"gpus": 1, "cpus": 4, "memory": "15G"}),
    "4-a100.yaml": ("One NVIDIA A100", {"gpus": 1, "gpu_type": "a100", "cpus": 10, "memory": "83G"}),
    "5-t4.yaml": ("One NVIDIA T4 (16 GB)", {"gpus": 1, "gpu_type": "t4", "cpus": 8, "memory": "31G"}),
    "6-a100-1g-10gb.yaml": (
        "A slice of an A100: 1g.10gb",
        {"gpus": 1, "gpu_type": "1g.10gb", "cpus": 2, "memory": "20G"},
    ),
    "7-t4-shared.yaml": (
        "A quarter of a T4 (16 GB), shared",
        {"shards": 1, "gpu_type": "t4", "cpus": 2, "memory": "8000M"},
    ),
    "8-cpu.yaml": ("No GPU, 4 cores", {"cpus": 4, "memory": "2G"}),
}


def snapshot(version: str) -> ClusterSnapshot:
    """The recorded cluster."""
    return ClusterSnapshot(
        nodes=parse_nodes(recorded(version, "scontrol", "node_a_o").stdout),
        partitions=parse_partitions(recorded(version, "scontrol", "partition_a_o").stdout),
        config=parse_config(recorded(version, "scontrol", "config").stdout),
        taken_at=1_800_000_000.0,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_profiles_fit_the_cluster(tmp_path: Path, version: str) -> None:
    """One for each kind, with its share of the nodes that have it; ``check`` finds nothing in them."""
    bin_dir = recorded_commands(tmp_path / "bin", version)

    done = cli_runner().invoke(main, ["init", str(tmp_path / "hub"), "--slurm-bin-dir", str(bin_dir)])

    assert (done.exit_code, done.stderr) == (0, "")
    files = sorted((tmp_path / "hub" / "profiles").iterdir())
    written = {file.name: yaml.safe_load(file.read_text()) for file in files}
    cpu = {"8-cpu.yaml": "batch"}
    assert {name: (profile["display_name"], profile["slurm"]) for name, profile in written.items()} == {
        name: (title, {"partition": cpu.get(name, "gpu"), **request, "time": 3600})
        for name, (title, request) in PROFILES.items()
    }
    assert [profile["slug"] for profile in written.values() if profile.get("default")] == ["k80"]
    found = findings_in(context_in(tmp_path / "hub" / "jupyterhub_config.py", snapshot=snapshot(version)))
    assert [finding for finding in found if finding.severity is not Severity.OK] == []
    assert [finding.code for finding in found] == ["profile"] * 8 + ["slurm"]


def test_what_is_shown_fits_a_terminal_and_names_what_is_closed(tmp_path: Path) -> None:
    """Everything that Slurm said, in lines of at most 100 characters."""
    bin_dir = recorded_commands(tmp_path / "bin", "24.11")
    done = cli_runner().invoke(main, ["init", str(tmp_path / "hub"), "--slurm-bin-dir", str(bin_dir)])
    lines = done.stdout.replace(str(tmp_path), "").splitlines()

    table = lines[5 : lines.index("", 5)]

    assert max(map(len, lines)) <= 100
    assert lines[:2] == [
        "Slurm 24.11.5, cluster rec: 19 nodes, 15 partitions.",
        "slurmdbd answers; your default account is proj.",
    ]
    assert {line.split()[0]: re.split("  +", line)[-1] for line in table if line[:1].strip()} == {
        "PARTITION": "OPEN TO",
        **dict.fromkeys(
            ["batch", "gpu", "debug", "long", "slow", "bad", "lowreq", "lowcan", "hi", "cloud"], "everybody"
        ),
        "inactive": "nobody: INACTIVE",
        "downp": "nobody: DOWN",
        "drainp": "nobody: DRAIN",
        "noroot": "groups: alice",
        "hid": "hidden",
    }
    assert "           1      32, 250 GiB   4 x 1g.10gb     2, 20.5 GiB" in lines
    assert "                                2 x a100        10, 83 GiB" in lines


def test_the_files_are_printed_and_none_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``-``; what is shown then goes to standard error, so that the output is the files alone."""
    monkeypatch.chdir(tmp_path)
    bin_dir = recorded_commands(tmp_path / "bin", "26.05")
    arguments = ["--slurm-bin-dir", str(bin_dir)]
    printed = cli_runner().invoke(main, ["init", "-", *arguments])
    cli_runner().invoke(main, ["init", "hub", *arguments])
    files = ["jupyterhub_config.py", *(f"profiles/{name}" for name in PROFILES)]

    assert printed.exit_code == 0
    assert printed.stdout == "".join(f"\n# ===== {name}\n\n{(tmp_path / 'hub' / name).read_text()}" for name in files)
    assert printed.stderr.startswith("Slurm 26.05")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "hub"]


def test_a_partition_that_is_named_is_taken_whoever_may_use_it(tmp_path: Path) -> None:
    """``noroot`` is open to a group alone, and has limits of CPUs and memory."""
    bin_dir = recorded_commands(tmp_path / "bin", "22.05")
    arguments = ["--slurm-bin-dir", str(bin_dir), "--partition", "noroot"]
    done = cli_runner().invoke(main, ["init", str(tmp_path / "hub"), *arguments])
    (file,) = (tmp_path / "hub" / "profiles").iterdir()

    assert done.exit_code == 0
    assert yaml.safe_load(file.read_text())["slurm"] == {
        "partition": "noroot",
        "cpus": 4,
        "memory": "2G",
        "time": 8 * 3600,
    }
    assert "Not open to everybody; 1 of its nodes has no GPU." in file.read_text()


def test_a_person_gets_a_hub_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run by an account that is not root: nobody else may sign in, and jobs run as it."""
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    bin_dir = recorded_commands(tmp_path / "bin", "26.05")
    done = cli_runner().invoke(main, ["init", str(tmp_path / "hub"), "--slurm-bin-dir", str(bin_dir)])
    config = (tmp_path / "hub" / "jupyterhub_config.py").read_text()

    assert done.exit_code == 0, done.stderr
    assert 'c.Authenticator.allowed_users = {"nobody"}\n' in config
    assert 'c.GPUSlurmSpawner.exec_prefix = ""\n' in config
    assert "jupyterhub_config.py --user nobody --submit\n" in done.stdout
    assert (tmp_path / "hub").stat().st_mode & 0o777 == 0o700
