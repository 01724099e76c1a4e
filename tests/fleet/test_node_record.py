"""Views of a node, merged over time."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.fleet.differences import differences
from jupyterhub_gpuspawner.fleet.node_record import NodeRecord, View, forgotten, merged, record_from
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology
from tests.fleet.nodes import ADDRESSES, DAY, only, record, topology, view, with_gpu, with_link

WHOLE = topology()


@pytest.mark.parametrize(
    ("job_view", "whole"),
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
def test_when_a_view_is_whole(job_view: View, whole: bool) -> None:
    """A job that sees only its own GPUs says nothing of the others."""
    assert job_view.whole is whole


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
    node_record = merged(record("g1"), view("g1", only(WHOLE, 0, 1, 3), at=2 * DAY, granted=1))

    assert [node_record.topology.gpus[position].pci for position in node_record.gone] == [ADDRESSES[2]]
    assert node_record.seen == (2 * DAY, 2 * DAY, DAY, 2 * DAY)


def test_a_gpu_that_has_left_the_bus_is_gone_even_for_a_confined_job() -> None:
    """The kernel lists the devices of all jobs."""
    job_topology = replace(only(WHOLE, 0), devices=ADDRESSES[:3])
    node_record = merged(record("g1"), view("g1", job_topology, at=2 * DAY))

    assert [node_record.topology.gpus[position].pci for position in node_record.gone] == [ADDRESSES[3]]


def test_a_gpu_that_another_job_has_is_not_gone() -> None:
    """A confined job does not see it."""
    node_record = merged(record("g1"), view("g1", only(WHOLE, 0), at=2 * DAY))

    assert (node_record.gone, len(node_record.present), node_record.complete) == ((), 4, True)


def test_a_gpu_that_came_back_is_not_gone() -> None:
    """After a repair, or a reset."""
    lost = merged(record("g1"), view("g1", only(WHOLE, 0, 1, 3), at=2 * DAY, granted=1))
    assert merged(lost, view("g1", WHOLE, at=3 * DAY)).gone == ()


def test_mig_devices_replace_their_gpu_and_each_other() -> None:
    """A GPU that is partitioned is not gone, and devices of an old partitioning are not kept."""
    parts = tuple(Gpu(3, uuid=f"MIG-{n}", pci=ADDRESSES[3], mig="1g.5gb") for n in range(2))
    sliced = replace(only(WHOLE, 0, 1, 2), gpus=(*WHOLE.gpus[:3], *parts), links=())
    node_record = merged(record("g1"), view("g1", sliced, at=2 * DAY))

    assert ([gpu.uuid for gpu in node_record.topology.gpus[3:]], node_record.gone) == (["MIG-0", "MIG-1"], ())
    assert merged(node_record, view("g1", WHOLE, at=3 * DAY)).topology.gpus == WHOLE.gpus


def test_what_a_view_does_not_know_stays() -> None:
    """A job without NVML knows no driver, and one in a container perhaps no packages."""
    poor = replace(WHOLE, driver="", packages=(), siblings=(), links=())
    node_record = merged(record("g1"), view("g1", poor, at=2 * DAY, gres=""))

    assert replace(node_record.topology, problems=()) == replace(WHOLE, hostname="")
    assert node_record.gres == "gpu:v100:4(S:0-1)"


def test_a_driver_that_does_not_answer_takes_nothing_away_that_is_known() -> None:
    """Of whole GPUs and of MIG devices; what it reports is their fault alone."""
    before = topology()
    mig = [replace(before.gpus[0], uuid=f"MIG-{n}", mig="1g.10gb") for n in range(2)]
    sliced = replace(
        before, gpus=(*mig, before.gpus[3]), links=(("X", "PIX", "SYS"), ("PIX", "X", "SYS"), ("SYS",) * 2 + ("X",))
    )
    kernel = tuple(Gpu(n, pci=address, fault="no driver") for n, address in enumerate(ADDRESSES))
    silent = replace(before, gpus=kernel, links=(), driver="", source="sysfs")

    whole = merged(record("g1", before), view("g1", silent, granted=2)).topology
    of_slices = merged(record("g1", sliced), view("g1", silent, granted=2)).topology

    assert whole == replace(
        record("g1", before).topology,
        gpus=tuple(replace(gpu, fault="no driver") for gpu in before.gpus),
        source="sysfs",
    )
    assert [(gpu.uuid, gpu.fault) for gpu in of_slices.gpus] == [
        ("MIG-0", "no driver"),
        ("MIG-1", "no driver"),
        ("", "no driver"),
        ("", "no driver"),
        (before.gpus[3].uuid, "no driver"),
    ]
    assert of_slices.link(0, 1) == "PIX"


def test_gone_gpus_are_forgotten_in_the_end() -> None:
    """Those last seen before the time; present ones stay, however long ago a job had them."""
    lost = merged(record("g1"), view("g1", only(WHOLE, 0, 1, 3), at=5 * DAY, granted=1))

    assert forgotten(lost, DAY) == lost
    assert [gpu.pci for gpu in forgotten(lost, 2 * DAY).topology.gpus] == [ADDRESSES[0], ADDRESSES[1], ADDRESSES[3]]


def test_a_record_is_stored_and_read() -> None:
    """Without loss; anything else is refused."""
    node_record = record("g1")
    assert record_from(json.loads(json.dumps(node_record.to_json()))) == node_record
    changes: tuple[dict[str, object], ...] = ({"version": 2}, {"seen": [1.0]}, {"topology": {}}, {"seen": None})
    for change in changes:
        with pytest.raises((ValueError, TypeError)):
            record_from({**node_record.to_json(), **change})


def test_a_record_does_not_grow_without_end() -> None:
    """Each partitioning of a GPU makes MIG devices with new UUIDs, and confined jobs never see that others are gone."""
    node_record = None
    for day in range(200):
        device = Gpu(0, uuid=f"MIG-{day}", pci=ADDRESSES[0], name="A100 MIG 1g.5gb", mig="1g.5gb")
        job_topology = replace(only(WHOLE), gpus=(device,), links=(("X",),))
        node_record = merged(node_record, view("g1", job_topology, at=DAY * day))

    assert node_record is not None
    assert record_from(node_record.to_json()) == node_record
    assert {gpu.uuid for gpu in node_record.topology.gpus} == {f"MIG-{day}" for day in range(72, 200)}


def record_after(jobs: int) -> NodeRecord:
    """The record of g1 after this many reports of the same."""
    node_record = record("g1")
    for day in range(2, jobs + 1):
        node_record = merged(node_record, view("g1", WHOLE, at=day * DAY))
    return node_record


FORGED: dict[str, NodeTopology] = {
    "three GPUs have left the bus": replace(only(WHOLE, 0), devices=ADDRESSES[:1]),
    "a job that is not confined sees one GPU": replace(only(WHOLE, 0), devices=()),
    "the CPUs of the sockets are swapped": replace(WHOLE, packages=((4, 5, 6, 7), (0, 1, 2, 3)), numa_nodes=()),
    "a GPU is on the other NUMA node": with_gpu(WHOLE, 0, numa_node=1),
    "a GPU has fewer lanes while it is idle": with_gpu(WHOLE, 0, pcie_width=8),
    "a link is slower": with_link(WHOLE, 0, 1, "SYS"),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_one_jobs_view_does_not_overrule_several_others(forged: NodeTopology) -> None:
    """It is noted as a doubt, which the next report that agrees with the others ends."""
    before, forged_view = record_after(5), replace(view("g1", forged, at=9 * DAY), gres="gpu:v100:1")
    doubted = merged(before, forged_view)

    assert (doubted.topology, doubted.gone, doubted.agreeing) == (before.topology, (), 5)
    assert (doubted.doubt is not None and doubted.doubt.agreeing, doubted.seen_at) == (1, 9 * DAY)
    assert record_from(json.loads(json.dumps(doubted.to_json()))) == doubted
    after = merged(doubted, view("g1", WHOLE, at=10 * DAY))
    assert (after.doubt, after.agreeing, after.topology) == (None, 6, before.topology)


@pytest.mark.parametrize(("jobs", "needed"), [(1, 1), (2, 2), (5, 3)])
def test_several_views_in_a_row_overrule_any_number_of_others(jobs: int, needed: int) -> None:
    """As many as there were, and three at most: a GPU that has failed is told of after some jobs."""
    node_record, lost = record_after(jobs), replace(only(WHOLE, 0, 1, 3), devices=ADDRESSES[:2] + ADDRESSES[3:])
    missing = []
    for day in range(3):
        node_record = merged(node_record, view("g1", lost, at=(10 + day) * DAY))
        missing.append(len(node_record.gone))

    assert missing == [0] * (needed - 1) + [1] * (4 - needed)


def test_lanes_that_idle_gpus_lower_now_and_then_are_no_alarm() -> None:
    """One reading in a hundred, in 200 reports of a node with three siblings."""
    chance = random.Random(52)
    siblings = [record(name, topology(name)) for name in ("g2", "g3", "g4")]
    node_record, alarms = record_after(2), 0
    for number in range(200):
        idle = [position for position in range(4) if chance.random() < 0.01]
        job_topology = WHOLE
        for position in idle:
            job_topology = with_gpu(job_topology, position, pcie_width=8)
        node_record = merged(node_record, view("g1", job_topology, at=(10 + number) * DAY))
        alarms += bool(differences([node_record, *siblings])["g1"])

    assert alarms == 0


def test_a_lasting_fault_is_found_where_each_job_sees_its_own_gpu_alone() -> None:
    """The jobs of the other GPUs do not settle the doubt: the third job of the GPU that lost its lanes confirms it."""
    node_record, ill, widths = record_after(5), with_gpu(WHOLE, 0, pcie_width=8), []
    for number in range(12):
        node_record = merged(node_record, view("g1", only(ill, number % 4), at=(10 + number) * DAY))
        if number % 4 == 0:
            widths.append(next(gpu.pcie_width for gpu in node_record.topology.gpus if gpu.pci == ADDRESSES[0]))

    assert widths == [WHOLE.gpus[0].pcie_width, WHOLE.gpus[0].pcie_width, 8]


def test_a_gpu_that_a_confined_job_has_is_not_missing() -> None:
    """One job's report without it is a doubt, which the next job that has the GPU settles."""
    lost = replace(only(WHOLE, 0, 1, 3), devices=ADDRESSES[:2] + ADDRESSES[3:])
    doubted = merged(record_after(5), view("g1", lost, at=10 * DAY))

    assert doubted.doubt is not None
    assert merged(doubted, view("g1", only(WHOLE, 2), at=11 * DAY)).doubt is None


def test_a_record_of_an_earlier_version_is_read() -> None:
    """It does not say how many agreed: one did."""
    document = record("g1").to_json()
    del document["agreeing"], document["doubt"]

    assert record_from(document) == record("g1")
