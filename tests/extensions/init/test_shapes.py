"""Kinds of clusters, each read by a real slurmctld: the profiles fit, and ``check`` finds nothing wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jupyterhub_gpuspawner.cli.main import main
from tests.cli.runner import cli_runner
from tests.extensions.init.answers import command
from tests.extensions.init.shapes import DGX_A100, SHAPES, ControllerAlone, Shape

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slurm

HOUR = 3600
PROFILES: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "dgx-a100": {
        "One NVIDIA A100 (40 GB)": (
            "1-a100.yaml",
            {"partition": "batch", "gpus": 1, "gpu_type": "a100-sxm4-40gb", "cpus": 32, "memory": "125G", "time": 4},
        ),
        "No GPU, 8 CPUs (4 cores)": ("2-cpu.yaml", {"partition": "batch", "cpus": 8, "memory": "31G", "time": 4}),
    },
    "mixed-features": {
        "One NVIDIA V100": (
            "1-v100.yaml",
            {"partition": "all", "gpus": 1, "constraint": "v100", "cpus": 8, "memory": "93G", "time": 8},
        ),
        "One NVIDIA A100 (80 GB)": (
            "2-a100.yaml",
            {"partition": "all", "gpus": 1, "constraint": "a100_80gb", "cpus": 32, "memory": "251G", "time": 8},
        ),
        "No GPU, 4 cores": ("3-cpu.yaml", {"partition": "all", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "mig-h100": {
        "One NVIDIA H100 (80 GB)": (
            "1-h100.yaml",
            {
                "partition": "gpu",
                "gpus": 1,
                "gpu_type": "nvidia_h100_80gb_hbm3",
                "cpus": 12,
                "memory": "251G",
                "time": 8,
            },
        ),
        "A slice of an H100: 3g.40gb": (
            "2-h100-3g-40gb.yaml",
            {
                "partition": "gpu",
                "gpus": 1,
                "gpu_type": "nvidia_h100_80gb_hbm3_3g.40gb",
                "cpus": 6,
                "memory": "125G",
                "time": 8,
            },
        ),
        "A slice of an H100: 1g.10gb": (
            "3-h100-1g-10gb.yaml",
            {
                "partition": "gpu",
                "gpus": 1,
                "gpu_type": "nvidia_h100_80gb_hbm3_1g.10gb",
                "cpus": 1,
                "memory": "35G",
                "time": 8,
            },
        ),
        "No GPU, 4 cores": ("4-cpu.yaml", {"partition": "gpu", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "shards": {
        "One NVIDIA T4 (16 GB)": (
            "1-t4.yaml",
            {"partition": "teaching", "gpus": 1, "gpu_type": "t4", "cpus": 16, "memory": "23G", "time": 2},
        ),
        "A quarter of a T4 (16 GB), shared": (
            "2-t4-shared.yaml",
            {"partition": "teaching", "shards": 1, "gpu_type": "t4", "cpus": 4, "memory": "23G", "time": 2},
        ),
        "No GPU, 4 cores": ("3-cpu.yaml", {"partition": "batch", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "cpu-only": {
        "No GPU, 4 cores": ("1-cpu.yaml", {"partition": "long", "cpus": 4, "memory": "10G", "time": 8}),
    },
    "cloud": {
        "One NVIDIA A10G": (
            "1-a10g.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "a10g", "cpus": 8, "memory": "29G", "time": 8},
        ),
        "No GPU, 4 cores": ("2-cpu.yaml", {"partition": "cpu", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "national-centre": {
        "One NVIDIA A100 (40 GB)": (
            "1-a100.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "a100", "cpus": 10, "memory": "107G", "time": 1},
        ),
        "One NVIDIA H100": (
            "2-h100.yaml",
            {"partition": "gpu_h100", "gpus": 1, "gpu_type": "h100", "cpus": 24, "memory": "183G", "time": 1},
        ),
        "No GPU, 4 cores": ("3-cpu.yaml", {"partition": "standard", "cpus": 4, "memory": "7600M", "time": 1}),
    },
    "workstation": {
        "One GPU": ("1-gpu.yaml", {"partition": "debug", "gpus": 1, "cpus": 24, "memory": "61G", "time": 8}),
        "No GPU, 8 CPUs (4 cores)": ("2-cpu.yaml", {"partition": "debug", "cpus": 8, "memory": "8000M", "time": 8}),
    },
    "odd-types": {
        "One NVIDIA A100 (80 GB)": (
            "1-a100.yaml",
            {
                "partition": "gpu-main.1",
                "gpus": 1,
                "gpu_type": "nvidia_a100-pcie-80gb",
                "cpus": 16,
                "memory": "125G",
                "time": 8,
            },
        ),
        "One NVIDIA RTX A6000": (
            "2-rtx-a6000.yaml",
            {
                "partition": "gpu-main.1",
                "gpus": 1,
                "gpu_type": "nvidia_rtx_a6000",
                "cpus": 3,
                "memory": "24G",
                "time": 8,
            },
        ),
        "One NVIDIA A100 SXM4.40GB": (
            "3-a100-sxm4-40gb.yaml",
            {
                "partition": "gpu-main.1",
                "gpus": 1,
                "gpu_type": "A100_SXM4.40GB",
                "cpus": 16,
                "memory": "125G",
                "time": 8,
            },
        ),
        "One NVIDIA V100 (32 GB)": (
            "4-v100.yaml",
            {
                "partition": "gpu-main.1",
                "gpus": 1,
                "gpu_type": "tesla_v100-sxm2-32gb",
                "cpus": 3,
                "memory": "24G",
                "time": 8,
            },
        ),
        "One NVIDIA GH200": (
            "5-gh200.yaml",
            {"partition": "gpu-main.1", "gpus": 1, "gpu_type": "gh200", "cpus": 72, "memory": "468G", "time": 8},
        ),
        "No GPU, 4 cores": ("6-cpu.yaml", {"partition": "gpu-main.1", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "mig-beside": {
        "One NVIDIA H100": (
            "1-h100.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "h100", "cpus": 16, "memory": "125G", "time": 8},
        ),
        "One NVIDIA A100": (
            "2-a100.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "a100", "cpus": 16, "memory": "125G", "time": 8},
        ),
        "A slice of an A100: 1g.5gb": (
            "3-a100-1g-5gb.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "1g.5gb", "cpus": 2, "memory": "19G", "time": 8},
        ),
        "A slice of an H100: 1g.12gb": (
            "4-h100-1g-12gb.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "h100_1g.12gb", "cpus": 2, "memory": "17G", "time": 8},
        ),
        "A slice of an A100: 3g.20gb": (
            "5-a100-3g-20gb.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "3g.20gb", "cpus": 6, "memory": "58G", "time": 8},
        ),
        "No GPU, 8 CPUs (4 cores)": ("6-cpu.yaml", {"partition": "gpu", "cpus": 8, "memory": "8000M", "time": 8}),
    },
    "amd-nps4": {
        "One AMD MI250X": (
            "1-mi250x.yaml",
            {"partition": "amd", "gpus": 1, "gpu_type": "mi250x", "cpus": 32, "memory": "125G", "time": 8},
        ),
        "One AMD MI300A": (
            "2-mi300a.yaml",
            {"partition": "amd", "gpus": 1, "gpu_type": "mi300a", "cpus": 24, "memory": "125G", "time": 8},
        ),
        "One AMD MI210 (64 GB)": (
            "3-mi210.yaml",
            {"partition": "amd", "gpus": 1, "gpu_type": "amd_instinct_mi210", "cpus": 48, "memory": "561G", "time": 8},
        ),
        "No GPU, 4 cores": ("4-cpu.yaml", {"partition": "amd", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "no-memory": {
        "One NVIDIA A100": ("1-a100.yaml", {"partition": "gpu", "gpus": 1, "gpu_type": "a100", "cpus": 8, "time": 8}),
        "One NVIDIA V100": (
            "2-v100.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "v100", "cpus": 16, "memory": "31G", "time": 8},
        ),
        "No GPU, 4 cores": ("3-cpu.yaml", {"partition": "cpu", "cpus": 4, "time": 8}),
    },
    "exclusive": {
        "A whole node with 4 NVIDIA A100": (
            "1-a100.yaml",
            {"partition": "gpu", "gpus": 4, "gpu_type": "a100", "cpus": 32, "memory": "488G", "time": 8},
        ),
        "A whole node without a GPU, 128 cores": (
            "2-cpu.yaml",
            {"partition": "cpu", "cpus": 128, "memory": "244G", "time": 8},
        ),
    },
    "access": {
        "One NVIDIA A100": (
            "1-a100.yaml",
            {"partition": "deny", "gpus": 1, "gpu_type": "a100", "cpus": 8, "memory": "122G", "time": 8},
        ),
        "No GPU, 4 cores": ("2-cpu.yaml", {"partition": "deny", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "no-default": {
        "No GPU, 4 cores": ("1-cpu.yaml", {"partition": "thin", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "other-gres": {
        "One NVIDIA A100": (
            "1-a100.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "a100", "cpus": 7, "memory": "122G", "time": 8},
        ),
        "One NVIDIA V100": (
            "2-v100.yaml",
            {"partition": "gpu", "gpus": 1, "gpu_type": "v100", "cpus": 16, "memory": "488G", "time": 8},
        ),
        "No GPU, 4 cores": ("3-cpu.yaml", {"partition": "cpu", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "overlap": {
        "One NVIDIA A100": (
            "1-a100.yaml",
            {"partition": "gpu-high", "gpus": 1, "gpu_type": "a100", "cpus": 8, "memory": "122G", "time": 8},
        ),
        "One NVIDIA RTX3090 (24 GB)": (
            "2-rtx3090.yaml",
            {"partition": "desk", "gpus": 1, "gpu_type": "rtx3090", "cpus": 8, "memory": "19G", "time": 8},
        ),
        "No GPU, 4 cores": ("3-cpu.yaml", {"partition": "gpu-high", "cpus": 4, "memory": "4000M", "time": 8}),
    },
    "four-hundred-kinds": {
        "One NVIDIA L40S (48 GB)": (
            "1-l40s.yaml",
            {"partition": "all", "gpus": 1, "gpu_type": "l40s", "cpus": 3, "memory": "8G", "time": 8},
        ),
        "One NVIDIA T4 (16 GB)": (
            "2-t4.yaml",
            {"partition": "all", "gpus": 1, "gpu_type": "t4", "cpus": 4, "memory": "9G", "time": 8},
        ),
        "One NVIDIA V100": (
            "3-v100.yaml",
            {"partition": "all", "gpus": 1, "gpu_type": "v100", "cpus": 4, "memory": "11G", "time": 8},
        ),
        "One NVIDIA A100": (
            "4-a100.yaml",
            {"partition": "all", "gpus": 1, "gpu_type": "a100", "cpus": 4, "memory": "13G", "time": 8},
        ),
        "No GPU, 4 cores": ("5-cpu.yaml", {"partition": "all", "cpus": 4, "memory": "4000M", "time": 8}),
    },
}
"""By shape and by name: the file, and what is requested, with the time in hours."""


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.usefixtures("needs_slurm")
def test_profiles_fit_each_kind_of_cluster(tmp_path: Path, site_folder: Path, shape: Shape) -> None:
    """The whole requests; ``check`` then asks the same Slurm, and has nothing to say but that no node has a slurmd."""
    hub = tmp_path / "hub"
    with ControllerAlone(shape, site_folder / "slurm") as slurm:
        done = cli_runner().invoke(main, ["init", str(hub)], env=slurm.environment)
        words = ["check", "--json", "--config", str(hub / "jupyterhub_config.py")]
        checked = cli_runner().invoke(main, words, env=slurm.environment)
    profiles = {file.name: yaml.safe_load(file.read_text()) for file in sorted((hub / "profiles").iterdir())}

    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) < 60
    assert max(map(len, done.stdout.replace(str(hub), "").splitlines())) <= 100
    assert {
        profile["display_name"]: (name, {**profile["slurm"], "time": profile["slurm"]["time"] / HOUR})
        for name, profile in profiles.items()
    } == PROFILES[shape.name]
    kept_apart = "Jobs can use only the GPUs that Slurm gives them (ConstrainDevices=yes)." in done.stdout
    assert kept_apart == shape.constrains_devices
    findings = json.loads(checked.stdout)["findings"]
    assert {finding["code"] for finding in findings if finding["severity"] != "ok"} <= {"nodes-out"}
    assert checked.exit_code == 0


@pytest.mark.usefixtures("needs_slurm")
def test_an_account_that_may_run_sinfo_alone_is_answered(tmp_path: Path, site_folder: Path) -> None:
    """The same profiles but for what scontrol alone knows, which is said."""
    with ControllerAlone(DGX_A100, site_folder / "slurm") as slurm:
        sinfo = tmp_path / "bin"
        sinfo.mkdir()
        command(sinfo, "sinfo", f'#!/bin/sh\nexec {slurm.bin_dir}/sinfo "$@"\n')
        done = cli_runner().invoke(
            main, ["init", "-", "--slurm-bin-dir", str(sinfo)], env={**slurm.environment, "PATH": "/nowhere"}
        )

    assert done.exit_code == 0, done.stderr
    assert "This account cannot run scontrol" in " ".join(done.stderr.split())
    assert (
        "batch *      4      256, 1006.5 GiB  8 x a100-sxm4-40gb  32, 125.5 GiB  2 days       everybody" in done.stderr
    )
    assert "  gpu_type: a100-sxm4-40gb\n" in done.stdout
