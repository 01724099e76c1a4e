"""Views of a node, merged over time."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.fleet.differences import differences
from jupyterhub_gpuspawner.extensions.fleet.health import health
from jupyterhub_gpuspawner.extensions.fleet.node_record import (
    NodeRecord,
    Sightings,
    View,
    forgotten,
    merged,
    record_from,
)
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology
from tests.extensions.fleet.nodes import ADDRESSES, DAY, only, record, topology, view, with_gpu, with_link

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
    "a GPU is lost": with_gpu(WHOLE, 0, fault="GPU is lost"),
    "a GPU is another model": with_gpu(WHOLE, 0, name="Buy a new GPU"),
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


IDLE: dict[str, tuple[float, bool, int | None]] = {
    "one view in a hundred": (0.01, False, 16),
    "one in twenty": (0.05, False, 16),
    "one in five": (0.2, False, 16),
    "one in twenty, and each job sees its own GPU alone": (0.05, True, 16),
    "one in twenty, of GPUs that do not say how many lanes they have": (0.05, False, None),
}


@pytest.mark.parametrize("seeds", [(52,), pytest.param((1, 2, 3, 5, 8), marks=pytest.mark.nightly)], ids=str)
@pytest.mark.parametrize(("idle", "confined", "lanes"), IDLE.values(), ids=IDLE)
def test_lanes_that_idle_gpus_lower_are_no_alarm_and_lost_ones_are_found(
    idle: float, confined: bool, lanes: int | None, seeds: tuple[int, ...]
) -> None:
    """Four nodes from their first reports on, 60 of each and more by five people, with each seed.

    In the second half, GPU 2 of g1 has lost half its lanes.
    """
    alarms: list[tuple[int, set[str]]] = []
    found: list[tuple[int, set[str]]] = []
    reports = 960 if confined else 240
    for seed in seeds:
        chance = random.Random(seed)
        records: dict[str, NodeRecord | None] = dict.fromkeys(("g1", "g2", "g3", "g4"))
        for number in range(reports):
            name = f"g{number % 4 + 1}"
            job_topology = topology(name)
            for position in range(4):
                lost = name == "g1" and position == 2 and 2 * number >= reports
                width = 4 if chance.random() < idle else 8 if lost else 16
                job_topology = with_gpu(job_topology, position, pcie_width=width, pcie_max_width=lanes)
            if confined:
                job_topology = only(job_topology, chance.randrange(4))
            seen = replace(view(name, job_topology, at=number * DAY), user=f"user{chance.randrange(5)}")
            records[name] = merged(records[name], seen)
            told = {str(fact) for facts in differences([*filter(None, records.values())]).values() for fact in facts}
            (alarms if 2 * number < reports else found).append((seed, told))

    siblings = {(seed, fact) for seed, told in found for fact in told}
    assert [(seed, told) for seed, told in alarms if told] == []
    assert siblings == {(seed, "0000:85:00.0: PCIe lanes 8; 3 siblings have 16") for seed in seeds}


def test_a_lasting_fault_is_found_where_each_job_sees_its_own_gpu_alone() -> None:
    """The jobs of the other GPUs do not settle the doubt: the third job of the GPU that is lost confirms it."""
    node_record, ill, faults = record_after(5), with_gpu(WHOLE, 0, fault="GPU is lost"), []
    for number in range(12):
        node_record = merged(node_record, view("g1", only(ill, number % 4), at=(10 + number) * DAY))
        if number % 4 == 0:
            faults.append(next(gpu.fault for gpu in node_record.topology.gpus if gpu.pci == ADDRESSES[0]))

    assert faults == ["", "", "GPU is lost"]


def of(people: str, job_topology: NodeTopology, *, each: int = 1) -> list[tuple[str, NodeTopology]]:
    """Reports of these people, one after the other, each with so many jobs."""
    return [(user, job_topology) for _ in range(each) for user in people]


LIE = with_gpu(WHOLE, 0, fault="GPU is lost", numa_node=1, name="A better GPU", pcie_width=1)
SLOW = replace(
    WHOLE, gpus=tuple(replace(gpu, memory_mib=None) for gpu in WHOLE.gpus), links=(), driver="", source="sysfs"
)
ATTACKS: dict[str, tuple[list[tuple[str, NodeTopology]], str]] = {
    "twenty jobs of one person, after twenty of another": (of("a", WHOLE, each=20) + of("x", LIE, each=20), "well"),
    "one of ten honest people begins to lie": (of("abcdefghij", WHOLE) + of("j", LIE, each=20), "well"),
    "twenty jobs of one person, after those of ten": (of("abcdefghij", WHOLE) + of("x", LIE, each=20), "well"),
    "twenty jobs of two people, after those of ten": (of("abcdefghij", WHOLE) + of("xy", LIE, each=10), "well"),
    "two people, after two others": (of("ab", WHOLE, each=5) + of("xy", LIE, each=5), "well"),
    "one person, with somebody else's jobs between": ((of("x", LIE) + of("a", WHOLE)) * 10, "perhaps"),
    "the same, with those of several people": ((of("x", LIE) + of("abc", WHOLE)) * 5, "well"),
    "the first job of a node, and no other": (of("x", LIE), "perhaps"),
    "twenty jobs of one person on a node that is new": (of("x", LIE, each=20), "perhaps"),
    "the first job of a node, and honest ones after it": (of("x", LIE) + of("abc", WHOLE), "well"),
    "one person who reports GPU 0, while others see only the others": (
        of("x", only(LIE, 0), each=5) + of("abc", only(WHOLE, 1, 2, 3), each=5),
        "perhaps",
    ),
    "a driver that is slower than the deadline, for everybody": (of("abc", SLOW, each=5), "well"),
    "the same on a node that is known": (of("abc", WHOLE) + of("abc", SLOW, each=5), "well"),
    "three people, after many: it is so": (of("abcdefghij", WHOLE) + of("cde", LIE), "ill"),
    "both people of a small site, after earlier reports": (
        of("ab", WHOLE, each=9) + of("ab", LIE, each=2),
        "ill",
    ),
    "two people, on a node that is new": (of("ab", LIE), "ill"),
    "a repair, which three people report": (of("abcdef", LIE) + of("abc", WHOLE), "well"),
    "a slow driver does not mend what is broken": (of("abc", LIE) + of("abc", SLOW, each=5), "ill"),
}


@pytest.mark.parametrize(("reports", "state"), ATTACKS.values(), ids=ATTACKS)
def test_no_person_alone_decides_what_is_known_of_a_node(reports: list[tuple[str, NodeTopology]], state: str) -> None:
    """Neither by many jobs nor by being the first; what several people report is found, and so is a repair."""
    node_record = None
    for number, (user, job_topology) in enumerate(reports):
        node_record = merged(node_record, replace(view("g1", job_topology, at=number * DAY), user=user))
        node_record = record_from(json.loads(json.dumps(node_record.to_json())))
    assert node_record is not None
    siblings = [record("g2"), record("g3")]
    node = next(node for node in health([node_record, *siblings], []).nodes if node.node == "g1")

    assert ("ill" if node.ill else "perhaps" if node.differences else "well") == state
    assert [
        str(fact) for fact in node.differences if not fact.sure and "by one person's jobs alone" not in str(fact)
    ] == []


def test_a_person_does_not_make_a_node_ill_by_what_they_report_of_its_siblings() -> None:
    """Three nodes on which nobody else has been, against one that several people know."""
    honest = None
    for user in "abc":
        honest = merged(honest, replace(view("g1", WHOLE), user=user))
    assert honest is not None
    forged = [merged(None, replace(view(name, LIE), user="x")) for name in ("g2", "g3", "g4")]

    assert [node.node for node in health([honest, *forged], []).nodes if node.ill] == []


def test_a_gpu_that_a_confined_job_has_is_not_missing() -> None:
    """One job's report without it is a doubt, which the next job that has the GPU settles."""
    lost = replace(only(WHOLE, 0, 1, 3), devices=ADDRESSES[:2] + ADDRESSES[3:])
    doubted = merged(record_after(5), view("g1", lost, at=10 * DAY))

    assert doubted.doubt is not None
    assert merged(doubted, view("g1", only(WHOLE, 2), at=11 * DAY)).doubt is None


def test_a_record_of_an_earlier_version_is_read() -> None:
    """It does not say how many agreed: one did."""
    document = record("g1").to_json()
    del document["agreeing"], document["doubt"], document["people"], document["sightings"]

    unknown = tuple(Sightings() for _ in WHOLE.gpus)
    assert record_from(document) == replace(record("g1"), sightings=unknown)
