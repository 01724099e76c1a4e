"""Launches on nodes some of whose files below ``/sys`` are missing, empty, unreadable or nonsense, or vanish."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.amd.node import kfd
from jupyterhub_gpuspawner.extensions.amd.node.launch import OtherGpus
from jupyterhub_gpuspawner.node import hardware
from jupyterhub_gpuspawner.placement.choice import choose, choose_cpus
from jupyterhub_gpuspawner.placement.topology import NodeTopology, from_document, to_document
from tests.extensions.amd.machines import DATA, MACHINES, write, write_kfd, write_machine


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda file: file.write_text(""),
    "unreadable": _directory,
    "a link to itself": _loop,
    "no text": lambda file: file.write_bytes(b"\xff\xfe\0\n" * 40),
    "words": lambda file: file.write_text("simd_count many\nsize_in_bytes lots\nnode_to far away\n0x 12-\n"),
    "digits of another script": lambda file: file.write_text("simd_count ²\nunique_id ²\n²\n"),
    "too large a number": lambda file: file.write_text(_changed(file, "9" * 30)),
    "a page of digits": lambda file: file.write_text(_changed(file, "9" * 4000)),
    "a negative number": lambda file: file.write_text(_changed(file, "-1")),
}


def _changed(file: Path, number: str) -> str:
    """The text with another number in each line."""
    lines = (line.rpartition(" ") for line in file.read_text().splitlines())
    return "".join(f"{name}{blank}{number}\n" for name, blank, _ in lines)


def write_node(root: Path, name: str) -> None:
    """A documented machine, or a recorded tree with two processors."""
    if name in MACHINES:
        return write_machine(root, MACHINES[name])
    write_kfd(root, json.loads((DATA / f"kfd-{name}.json").read_text())["nodes"])
    write(root, "sys/devices/system/cpu/online", "0-127")
    for node in (0, 1):
        write(root, f"sys/devices/system/node/node{node}/cpulist", f"{64 * node}-{64 * node + 63}")
    return None


MANY = 20
"""Files of one kind that are damaged together; there may be one of each of hundreds of CPUs."""


def kind_of(file: Path) -> str:
    """``nodes/*/io_links/*/properties``: the path without numbers."""
    words = (part for part in file.parts if part not in ("sys", "class", "kfd", "devices"))
    return "/".join("*" if part[:1].isdigit() or part.rstrip("0123456789") != part else part for part in words)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("name", ["4 MI300A", "mi210-2x4", "vega-1"])
def test_what_is_still_known_is_used(name: str, damage: Callable[[Path], object], tmp_path: Path) -> None:
    """Each kind of file in turn, of one GPU and of all: nothing raises, and the other GPUs are as before."""
    write_node(tmp_path / "whole", name)
    before = topology_of(tmp_path / "whole")
    files = sorted(file for file in (tmp_path / "whole").rglob("*") if file.is_file())
    kinds: dict[str, list[Path]] = {}
    for file in files:
        kinds.setdefault(kind_of(file.relative_to(tmp_path / "whole")), []).append(file)

    for kind, alike in kinds.items():
        for damaged in (alike[-1:], alike[:MANY]):
            texts = [file.read_bytes() for file in damaged]
            for file in damaged:
                damage(file)
            after = topology_of(tmp_path / "whole")
            for file, text in zip(damaged, texts, strict=True):
                if file.is_dir() and not file.is_symlink():
                    file.rmdir()
                file.unlink(missing_ok=True)
                file.write_bytes(text)
            assert {gpu.index for gpu in after.gpus} == set(range(len(after.gpus))), kind
            assert len(after.gpus) <= len(before.gpus), kind
            if len(damaged) == 1 and "kfd" in str(damaged[0]):
                same = [gpu for gpu in before.gpus if gpu.pci in {other.pci for other in after.gpus}]
                assert len(same) >= len(before.gpus) - 1, kind
            granted = tuple(range(len(after.gpus)))
            assert set(choose(after, granted=granted, count=len(granted)).gpus) == set(granted), kind
            assert len(choose_cpus(after, granted=tuple(range(16)), count=4, gpus=granted[:1])) == 4, kind


def topology_of(root: Path) -> NodeTopology:
    """What a launcher knows, after its way to the hub."""
    topology = OtherGpus({}).read(hardware.read(str(root)), str(root))
    return from_document(to_document(topology))


@pytest.mark.parametrize("moment", range(1, 60, 10))
def test_a_gpu_that_vanishes_while_it_is_read(moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many files; what is read of it then is not known, and the others are as before."""
    write_machine(tmp_path, MACHINES["Frontier"])
    before, count = topology_of(tmp_path), 0
    original = hardware.text_of

    def text_of(*parts: str) -> str:
        nonlocal count
        count += 1
        if count == moment * 20:
            shutil.rmtree(tmp_path / "sys/class/kfd/kfd/topology/nodes/6", ignore_errors=True)
            (tmp_path / "sys/bus/pci/devices/0000:c9:00.0").unlink(missing_ok=True)
        return original(*parts)

    for module in (hardware, kfd):
        monkeypatch.setattr(module, "text_of", text_of)
    after = topology_of(tmp_path)

    others = [gpu.pci for gpu in before.gpus if gpu.pci != "0000:c9:00.0"]
    assert [gpu.pci for gpu in after.gpus if gpu.pci in others] == others
