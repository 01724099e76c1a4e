"""Views of a node, merged over time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.fleet.node_record import View, forgotten, merged, record_from
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology
from tests.fleet.nodes import ADDRESSES, DAY, only, record, topology, view

WHOLE = topology()


@pytest.mark.parametrize(
    ("seen", "whole"),
    [
        (view("g1", WHOLE), True),
        (view("g1", only(WHOLE, 0, 1)), False),
        (view("g1", only(WHOLE, 0, 1, 2), granted=2), True),
        (view("g1", replace(only(WHOLE, 0, 1), devices=())), False),
        (view("g1", replace(WHOLE, devices=())), True),
        (view("g1", replace(WHOLE, devices=()), gres="gpu:v100:8"), False),
        (view("g1", replace(only(WHOLE, 0), devices=(), source="file"), gres=""), True),
        (view("g1", NodeTopology()), False),
    ],
    ids=[
        "it has all devices of the PCI bus",
        "confined to two",
        "three are seen and two held, so it is not confined",
        "confined, without the PCI bus",
        "as many as Slurm has",
        "fewer than Slurm has",
        "a topology file",
        "no GPU",
    ],
)
def test_when_a_view_is_whole(seen: View, whole: bool) -> None:
    """A job that sees only its own GPUs says nothing of the others."""
    assert seen.whole is whole


def test_partial_views_add_up() -> None:
    """Each pair of GPUs that one job had together is known; other links are not, until a job has those GPUs."""
    one = merged(None, view("g1", only(WHOLE, 2, 3), at=DAY))
    two = merged(one, view("g1", only(WHOLE, 0, 3), at=2 * DAY))

    assert [gpu.pci for gpu in two.topology.gpus] == [ADDRESSES[0], ADDRESSES[2], ADDRESSES[3]]
    assert two.topology.links == (("X", "?", "SYS"), ("?", "X", "NV2"), ("SYS", "NV2", "X"))
    assert (two.seen, two.seen_at, two.whole_at, two.complete, two.gone) == (
        (2 * DAY, DAY, 2 * DAY),
        2 * DAY,
        None,
        False,
        (),
    )

    three = merged(two, view("g1", WHOLE, at=3 * DAY))
    assert (three.topology.links, three.whole_at, three.complete) == (WHOLE.links, 3 * DAY, True)


def test_a_gpu_missing_in_a_later_whole_view_is_gone() -> None:
    """A job that is not confined and sees three of the four devices: the driver has lost one."""
    known = merged(record("g1"), view("g1", only(WHOLE, 0, 1, 3), at=2 * DAY, granted=1))

    assert [known.topology.gpus[position].pci for position in known.gone] == [ADDRESSES[2]]
    assert known.seen == (2 * DAY, 2 * DAY, DAY, 2 * DAY)


def test_a_gpu_that_has_left_the_bus_is_gone_even_for_a_confined_job() -> None:
    """The kernel lists the devices of all jobs."""
    seen = replace(only(WHOLE, 0), devices=ADDRESSES[:3])
    known = merged(record("g1"), view("g1", seen, at=2 * DAY))

    assert [known.topology.gpus[position].pci for position in known.gone] == [ADDRESSES[3]]


def test_a_gpu_that_another_job_has_is_not_gone() -> None:
    """A confined job does not see it."""
    known = merged(record("g1"), view("g1", only(WHOLE, 0), at=2 * DAY))

    assert (known.gone, len(known.present), known.complete) == ((), 4, True)


def test_a_gpu_that_came_back_is_not_gone() -> None:
    """After a repair, or a reset."""
    lost = merged(record("g1"), view("g1", only(WHOLE, 0, 1, 3), at=2 * DAY, granted=1))
    assert merged(lost, view("g1", WHOLE, at=3 * DAY)).gone == ()


def test_mig_devices_replace_their_gpu_and_each_other() -> None:
    """A GPU that is partitioned is not gone, and devices of an old partitioning are not kept."""
    parts = tuple(Gpu(3, uuid=f"MIG-{n}", pci=ADDRESSES[3], mig="1g.5gb") for n in range(2))
    sliced = replace(only(WHOLE, 0, 1, 2), gpus=(*WHOLE.gpus[:3], *parts), links=())
    known = merged(record("g1"), view("g1", sliced, at=2 * DAY))

    assert ([gpu.uuid for gpu in known.topology.gpus[3:]], known.gone) == (["MIG-0", "MIG-1"], ())
    assert merged(known, view("g1", WHOLE, at=3 * DAY)).topology.gpus == WHOLE.gpus


def test_what_a_view_does_not_know_stays() -> None:
    """A job without NVML knows no driver, and one in a container perhaps no packages."""
    poor = replace(WHOLE, driver="", packages=(), siblings=(), links=())
    known = merged(record("g1"), view("g1", poor, at=2 * DAY, gres=""))

    assert replace(known.topology, problems=()) == replace(WHOLE, hostname="")
    assert known.gres == "gpu:v100:4(S:0-1)"


def test_gone_gpus_are_forgotten_in_the_end() -> None:
    """Those last seen before the time; present ones stay, however long ago a job had them."""
    lost = merged(record("g1"), view("g1", only(WHOLE, 0, 1, 3), at=5 * DAY, granted=1))

    assert forgotten(lost, DAY) == lost
    assert [gpu.pci for gpu in forgotten(lost, 2 * DAY).topology.gpus] == [ADDRESSES[0], ADDRESSES[1], ADDRESSES[3]]


def test_a_record_is_stored_and_read() -> None:
    """Without loss; anything else is refused."""
    known = record("g1")
    assert record_from(json.loads(json.dumps(known.to_json()))) == known
    changes: tuple[dict[str, object], ...] = ({"version": 2}, {"seen": [1.0]}, {"topology": {}}, {"seen": None})
    for change in changes:
        with pytest.raises((ValueError, TypeError)):
            record_from({**known.to_json(), **change})


def test_a_record_does_not_grow_without_end() -> None:
    """Each partitioning of a GPU makes MIG devices with new UUIDs, and confined jobs never see that others are gone."""
    found = None
    for day in range(200):
        device = Gpu(0, uuid=f"MIG-{day}", pci=ADDRESSES[0], name="A100 MIG 1g.5gb", mig="1g.5gb")
        seen = replace(only(WHOLE), gpus=(device,), links=(("X",),))
        found = merged(found, view("g1", seen, at=DAY * day))

    assert found is not None
    assert record_from(found.to_json()) == found
    assert {gpu.uuid for gpu in found.topology.gpus} == {f"MIG-{day}" for day in range(72, 200)}
