"""The texts of a report that may stand on the administrators' pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.fleet.reported import plausible
from jupyterhub_gpuspawner.placement.topology import FAULTS, load
from tests.extensions.fleet.nodes import topology, with_gpu

MACHINES = Path(__file__).parents[2] / "data" / "machines"
WHOLE = topology("g1")
SPAM = "Buy a new GPU at http://evil.example"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", ""),
        *((fault, fault) for fault in FAULTS),
        ("NVML is not available: Driver/library version mismatch", "NVML is not available"),
        (f"NVML is not available: {SPAM}", "NVML is not available"),
        (SPAM, "The driver reports a fault of it."),
        ("GPU is lost. " + SPAM, "The driver reports a fault of it."),
    ],
)
def test_a_fault_is_told_in_our_words(fault: str, words: str) -> None:
    """Never in those of the report."""
    assert plausible(with_gpu(WHOLE, 0, fault=fault)) == with_gpu(WHOLE, 0, fault=words)


@pytest.mark.parametrize("field", ["pci", "uuid", "name", "mig"])
def test_a_gpus_names_look_like_such(field: str) -> None:
    """Otherwise they are left out; so are a device, NICs and a driver of other names."""
    assert plausible(with_gpu(WHOLE, 0, **{field: SPAM})) == with_gpu(WHOLE, 0, **{field: ""})


def test_other_names_look_like_such_too() -> None:
    """Those of devices, of NICs and of the driver."""
    forged = replace(
        WHOLE,
        devices=(*WHOLE.devices, SPAM),
        driver=SPAM,
        nics=("mlx5_0", SPAM),
        nic_links=(("SYS",) * 4,) * 2,
        nic_numa=(0, 1),
    )

    assert plausible(forged) == replace(WHOLE, driver="")


@pytest.mark.parametrize("file", sorted(MACHINES.glob("*.json")), ids=lambda file: file.stem)
def test_the_names_of_machines_are_kept(file: Path) -> None:
    """Of those that other tests use."""
    machine = load(str(file))
    assert plausible(machine) == machine


@pytest.mark.parametrize(
    "name",
    [
        *("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA H100 80GB HBM3", "Tesla K80", "NVIDIA GeForce RTX 2080 Ti"),
        *(
            "Quadro RTX 6000",
            "NVIDIA GH200 480GB",
            "NVIDIA A40-48Q",
            "NVIDIA A100-SXM4-80GB MIG 1g.10gb+me",
            "DGX Display",
        ),
    ],
)
def test_the_names_of_models_are_kept(name: str) -> None:
    """As NVML says them, with the profile of a MIG device."""
    assert plausible(with_gpu(WHOLE, 0, name=name)) == with_gpu(WHOLE, 0, name=name)
