"""Which partition a profile uses, and what slurm.conf's limits make of its values."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.init.ask import Asker, Cluster
from jupyterhub_gpuspawner.extensions.init.plan import Plan, plan
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition, SlurmConfig
from tests.snapshots import node

DAY, HOUR = 86400, 3600
GPU = node("g1", "gpu:a100:4", cpus=32, memory_mib=262144, states=frozenset({"IDLE"}))
CPU = node("c1", cpus=16, memory_mib=65536, states=frozenset({"IDLE"}))
REQUEST = {"partition": "gpu", "gpus": 1, "gpu_type": "a100", "cpus": 8, "memory": "64G", "time": "8:00:00"}


def planned(
    *partitions: Partition, nodes: tuple[NodeState, ...] = (GPU, CPU), config: dict[str, Any] | None = None, **how: Any
) -> Plan:
    """The plan for a cluster."""
    snapshot = ClusterSnapshot(nodes, partitions, config=SlurmConfig(**(config or {})))
    return plan(Cluster("24.11", snapshot, Asker(frozenset({"staff"}), "phys", "hub1")), **how)


def gpu(name: str = "gpu", **fields: Any) -> Partition:
    """A partition of the node with GPUs."""
    return Partition(name, nodes=("g1",), **{"max_time": DAY, **fields})


VALUES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "an equal part": ({}, {}, {}),
    "DefCpuPerGPU of the partition": ({"default_cpus_per_gpu": 6}, {"default_cpus_per_gpu": 4}, {"cpus": 6}),
    "DefCpuPerGPU of the cluster": ({}, {"default_cpus_per_gpu": 4}, {"cpus": 4}),
    "DefCpuPerGPU of more than there are": ({"default_cpus_per_gpu": 16}, {}, {}),
    "DefMemPerGPU": ({"default_memory_per_gpu_mib": 32000}, {}, {"memory": "31G"}),
    "MaxCPUsPerNode": ({"max_cpus_per_node": 16}, {}, {"cpus": 4}),
    "MaxMemPerNode": ({"max_memory_per_node_mib": 20000}, {}, {"memory": "19G"}),
    "MaxMemPerCPU": ({}, {"max_memory_per_cpu_mib": 4096}, {"memory": "32G"}),
    "MaxMemPerCPU of the partition": (
        {"max_memory_per_cpu_mib": 2048},
        {"max_memory_per_cpu_mib": 4096},
        {"memory": "16G"},
    ),
    "DefaultTime": ({"default_time": 2 * HOUR}, {}, {"time": "2:00:00"}),
    "a DefaultTime for tests": ({"default_time": 600}, {}, {}),
    "a short MaxTime": ({"max_time": 1800}, {}, {"time": "0:30:00"}),
    "no MaxTime": ({"max_time": None}, {}, {}),
    "whole nodes": ({"exclusive": True}, {}, {"gpus": 4, "cpus": 32, "memory": "256G"}),
    "select/linear": ({}, {"cpu_unit": "node"}, {"gpus": 4, "cpus": 32, "memory": "256G"}),
}


@pytest.mark.parametrize(("partition", "config", "changed"), VALUES.values(), ids=VALUES.keys())
def test_limits_and_defaults_of_slurm_conf_are_kept(
    partition: dict[str, Any], config: dict[str, Any], changed: dict[str, Any]
) -> None:
    """Beside an equal part of the node; each value has its reason."""
    profile = planned(gpu(**partition), config=config).profiles[0]

    assert profile.request == {**REQUEST, **changed}
    assert {"partition", "gpu_type", "cpus", "memory", "time"} == {*profile.why}


@pytest.mark.parametrize(
    ("gres", "name"),
    [
        ("gpu:a100:4", "A whole node with 4 NVIDIA A100"),
        ("gpu:h100_1g.10gb:7", "A whole node with 7 slices of an H100: 1g.10gb"),
        ("gpu:2", "A whole node with 2 GPUs"),
        ("gpu:t4:1", "One NVIDIA T4 (16 GB)"),
        ("", "A whole node without a GPU, 32 cores"),
    ],
)
def test_a_whole_node_is_called_one(gres: str, name: str) -> None:
    """Where each job gets whole nodes."""
    nodes = (node("g1", gres, cpus=32, memory_mib=262144),)

    assert planned(gpu(exclusive=True), nodes=nodes).profiles[0].display_name == name


CLOSED = {
    "nobody: DRAIN": {"state": "DRAIN"},
    "hidden": {"hidden": True},
    "root alone": {"parameters": {"RootOnly": "YES"}},
    "reservations": {"needs_reservation": True},
    "groups: chem": {"allow_groups": ("chem",)},
    "accounts: chem, bio and 1 more": {"allow_accounts": ("chem", "bio", "geo")},
    "QOS: long": {"allow_qos": ("long",)},
    "not QOS normal": {"deny_qos": ("normal",)},
    "jobs of 4 nodes": {"min_nodes": 4},
    "jobs from: login[1-2]": {"parameters": {"AllocNodes": "login[1-2]"}},
    "nodes not shown": {"nodes": ("g7",)},
    "no nodes": {"nodes": ()},
}


@pytest.mark.parametrize(("reason", "fields"), CLOSED.items(), ids=CLOSED.keys())
def test_a_partition_that_people_cannot_use_is_left_out(reason: str, fields: dict[str, Any]) -> None:
    """With the reason; another one that has the same GPUs is used."""
    made = planned(Partition("best", **{"nodes": ("g1",), "default": True, **fields}), gpu())

    assert made.closed == {"best": reason}
    assert {profile.partition for profile in made.profiles} == {"gpu"}


def test_a_partition_that_is_named_gets_the_account_and_the_qos_that_it_needs() -> None:
    """The first that it allows, beside which the others are named; none for a person who has one by default."""
    limited = gpu(allow_accounts=("ai", "phys"), allow_qos=("long",))
    profile = planned(limited, wanted=("gpu",)).profiles[0]
    own = planned(limited, wanted=("gpu",), for_oneself=True).profiles[0]

    first = {"partition": "gpu", "account": "ai", "qos": "long"}
    assert profile.request == {**first, **REQUEST}
    assert (profile.why["account"], profile.why["qos"]) == (
        "The partition admits only jobs with it (AllowAccounts). Others that it admits: phys.",
        "The partition admits only jobs with it (AllowQos).",
    )
    assert own.request == {"partition": "gpu", "qos": "long", **REQUEST}


def test_a_partition_for_jobs_from_the_hubs_machine_is_open() -> None:
    """Whichever others are named beside it."""
    assert planned(gpu(parameters={"AllocNodes": "login1,hub[1-2]"})).closed == {}


def test_nodes_that_slurm_hides_are_missed_aloud() -> None:
    """What is there is not known, and how to have it shown is."""
    made = planned(Partition("cloud", nodes=("g7",)), gpu())

    assert made.notes == (
        "Slurm does not show the nodes of partition cloud while they are switched off. Add cloud to PrivateData in "
        "slurm.conf, or start one of them, and run the command again.",
    )


def test_a_partition_of_ones_own_group_or_account_is_open_to_oneself() -> None:
    """To a hub for one person; a hub for everybody leaves it out."""
    partitions = (gpu("mine", allow_groups=("staff", "chem")), gpu("ours", allow_accounts=("phys",)))

    assert planned(*partitions).closed == {"mine": "groups: staff, chem", "ours": "accounts: phys"}
    assert planned(*partitions, for_oneself=True).closed == {}
    denied = gpu("denied", deny_accounts=("phys",))
    assert planned(denied, for_oneself=True).closed == {"denied": "not account phys"}


PREFERRED: dict[str, tuple[Partition, Partition, dict[str, Any]]] = {
    "the default one": (gpu("better", default=True), gpu("other"), {}),
    "one in which a working day is allowed": (gpu("better"), gpu("other", default=True, max_time=1800), {}),
    "one that shares nodes": (gpu("better"), gpu("other", default=True, exclusive=True), {}),
    "one that is not preempted": (
        gpu("better", priority_tier=10),
        gpu("other", default=True, preemptable=True),
        {"preemption": "partition"},
    ),
    "one with more nodes": (Partition("better", nodes=("g1", "g2"), max_time=DAY), gpu("other"), {}),
}


@pytest.mark.parametrize(("better", "other", "config"), PREFERRED.values(), ids=PREFERRED.keys())
def test_of_several_partitions_the_best_is_used(better: Partition, other: Partition, config: dict[str, Any]) -> None:
    """In whichever order Slurm prints them; the other one is named beside it."""
    for partitions in ((better, other), (other, better)):
        profile = planned(*partitions, nodes=(GPU, GPU._replace(name="g2")), config=config).profiles[0]

        assert profile.partition == "better"
        assert "Other partitions with it: other (" in profile.why["partition"]


def test_nodes_that_differ_get_a_request_that_fits_each() -> None:
    """The smallest share of those that have the kind."""
    nodes = (GPU, node("g2", "gpu:a100:2", cpus=8, memory_mib=131072))
    profile = planned(Partition("gpu", nodes=("g1", "g2"), max_time=DAY), nodes=nodes).profiles[0]

    assert profile.request == {**REQUEST, "cpus": 4}
    assert profile.why["cpus"] == "The smallest of its nodes, g2, has 8 CPUs and 2 GPUs: an equal part for each."
    assert profile.why["memory"] == "A node has 256 GiB and 4 GPUs: an equal part for each."


def test_a_server_without_a_gpu_is_beside_gpus_only_where_no_other_node_is_open() -> None:
    """And the file says so."""
    beside = planned(gpu()).profiles[-1]
    apart = planned(gpu(default=True), Partition("batch", nodes=("c1",), max_time=DAY)).profiles[-1]

    assert (beside.partition, apart.partition) == ("gpu", "batch")
    assert beside.why["partition"] == (
        "Open to everybody. No open partition has nodes without GPUs, so such a server takes cores beside them."
    )
    assert apart.why["partition"] == "Open to everybody; 1 of its nodes has no GPU."


def test_the_profiles_of_a_kind_that_is_closed_are_missed_aloud() -> None:
    """With where it is, and how to have one nevertheless."""
    made = planned(gpu(allow_accounts=("ai",)), Partition("batch", nodes=("c1",), max_time=DAY))

    assert [profile.slug for profile in made.profiles] == ["cpu"]
    assert made.notes == (
        "There is no profile for gpu:a100, which is only in gpu (accounts: ai). --partition NAME makes profiles for a "
        "partition, whoever may use it.",
    )


def test_kinds_of_the_same_model_have_names_of_their_own() -> None:
    """Two sizes of a model, and two of which neither says it."""
    types = ("a100", "A100", "nvidia_a100-sxm4-40gb", "a100_80gb")
    nodes = tuple(node(f"g{at}", f"gpu:{kind}:1") for at, kind in enumerate(types))
    profiles = planned(Partition("gpu", nodes=tuple(each.name for each in nodes), max_time=DAY), nodes=nodes).profiles

    assert sorted(profile.slug for profile in profiles) == ["a100", "a100-2", "a100-40gb", "a100-80gb", "cpu"]
