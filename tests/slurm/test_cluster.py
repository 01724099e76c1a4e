"""Nodes, partitions and reservations from three versions of Slurm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.scontrol import parse_nodes, parse_partitions, parse_reservations
from jupyterhub_gpuspawner.slurm.snapshot import NodeState, Partition, Reservation, Unread
from jupyterhub_gpuspawner.units import Gres
from tests.slurm.recorded import VERSIONS, recorded


def nodes(version: str, name: str = "node_a_o") -> dict[str, NodeState]:
    """The nodes of a recorded answer."""
    return {node.name: node for node in parse_nodes(recorded(version, "scontrol", name).stdout)}


def test_k80_node_with_three_of_four_gpus_in_use() -> None:
    """Every field of the two-socket K80 node is read."""
    assert nodes("24.11")["g1"] == NodeState(
        name="g1",
        address="127.0.0.1",
        states=frozenset({"MIXED", "PLANNED"}),
        cpus=24,
        cpus_allocated=5,
        memory_mib=64000,
        memory_allocated_mib=9000,
        gres=(Gres("gpu", "k80", 4, sockets=(0, 1)),),
        gres_used=(Gres("gpu", "k80", 3, (0, 1, 2)),),
        features=("k80", "ib"),
        partitions=("gpu", "debug"),
        socket_cores=12,
    )


@pytest.mark.parametrize(("cpus", "per_core"), [(128, 2), (64, 1)])
def test_a_core_has_as_many_cpus_as_slurm_gives_out(cpus: int, per_core: int) -> None:
    """With CPUs= the number of cores, their hardware threads are not given out, whatever ThreadsPerCore is."""
    (node,) = parse_nodes(f"NodeName=n1 CPUTot={cpus} Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 State=IDLE")

    assert node.cpus_per_core == per_core


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_of_each_version(version: str) -> None:
    """All versions agree on sizes, GPUs, states, and the reasons of nodes that are out of service."""
    found = nodes(version)
    clouds = [] if version == "22.05" else ["cl1", "cl2"]  # 22.05 hides nodes that are powered off
    assert sorted(found) == sorted(
        [
            *["c1", "c2", "c3", "c4", "c5", "d1", "g1", "g2", "h1", "k1", "k2", "m1", "s1", "u1", "x1", "x2", "y1"],
            *clouds,
        ],
    )
    assert {name: [str(one) for one in node.gres] for name, node in found.items() if node.gres} == {
        "d1": ["gpu:v100:8"],
        "g1": ["gpu:k80:4"],
        "g2": ["gpu:k80:4"],
        "m1": ["gpu:1g.10gb:4", "gpu:a100:2"],
        "s1": ["gpu:t4:2", "shard:t4:8"],
        "u1": ["gpu:2"],
    }
    assert (found["h1"].cpus, found["h1"].features) == (16, ("ht",))
    assert found["x1"].reason.startswith("hardware: PSU")
    assert {"DOWN", "NOT_RESPONDING"} <= found["x1"].states
    assert {"IDLE", "MAINTENANCE", "RESERVED"} <= found["c4"].states
    assert [found[name].address for name in clouds] == clouds


@pytest.mark.parametrize("version", VERSIONS)
def test_gpus_in_use_need_the_details(version: str) -> None:
    """Without ``-d`` scontrol does not show GresUsed."""
    assert all(not node.gres_used for node in nodes(version, "node_o").values())
    assert any(node.gres_used for node in nodes(version).values())


@pytest.mark.parametrize("version", VERSIONS)
def test_hub_question_reads_the_small_cluster(version: str) -> None:
    """The hub's own query is read, with times as seconds."""
    found = parse_nodes(recorded(version, "hub", "node").stdout)
    assert [(node.name, node.cpus, node.memory_mib, [str(g) for g in node.gres]) for node in found] == [
        ("g1", 24, 64000, ["gpu:k80:4"]),
        ("g2", 24, 64000, ["gpu:k80:4"]),
    ]
    gpu = Partition(name="gpu", default=True, nodes=("g1", "g2"), max_time=86400, max_nodes=None)
    assert parse_partitions(recorded(version, "hub", "partition").stdout) == (gpu,)
    assert parse_reservations(recorded(version, "hub", "reservation").stdout) == ()


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("IDLE", {"IDLE"}),
        ("MIXED+CLOUD+POWERED_DOWN", {"MIXED", "CLOUD", "POWERED_DOWN"}),
        ("DOWN*", {"DOWN", "NOT_RESPONDING"}),
        ("IDLE~+DRAIN", {"IDLE", "POWERED_DOWN", "DRAIN"}),
        ("mixed-", {"MIXED", "PLANNED"}),
        ("IDLE*$", {"IDLE", "NOT_RESPONDING", "MAINTENANCE"}),
    ],
)
def test_state_suffixes_are_words(text: str, states: set[str]) -> None:
    """``*``, ``~`` and the other suffixes of sinfo(1) stand for flags that scontrol spells out."""
    assert parse_nodes(f"NodeName=n1 CPUTot=4 State={text}")[0].states == states


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_of_each_version(version: str) -> None:
    """Limits, groups, accounts, and hidden and closed partitions are the same in three versions."""
    found = {one.name: one for one in parse_partitions(recorded(version, "scontrol", "partition_a_o").stdout)}
    assert found["batch"] == Partition(
        name="batch",
        default=True,
        nodes=("c1", "c2", "c3", "c4", "c5", "h1", "x1", "x2", "y1"),
        max_time=86400,
        default_time=3600,
    )
    assert found["noroot"] == Partition(
        name="noroot",
        nodes=("c1",),
        min_nodes=1,
        max_nodes=1,
        max_cpus_per_node=8,
        max_memory_per_node_mib=32000,
        allow_groups=("alice",),
        preemptable=True,
    )
    assert found["hid"] == Partition(
        name="hid", hidden=True, nodes=("c2",), allow_accounts=("proj",), qos="tiny", preemptable=True
    )
    tiers = {name: (found[name].priority_tier, found[name].preemptable) for name in ("hi", "gpu", "lowcan", "lowreq")}
    assert tiers == {"hi": (100, False), "gpu": (1, False), "lowcan": (1, True), "lowreq": (1, True)}
    assert {one.name: one.state for one in found.values() if one.state != "UP"} == {
        "inactive": "INACTIVE",
        "downp": "DOWN",
        "drainp": "DRAIN",
    }
    assert (found["long"].max_time, found["debug"].max_time) == (None, 1800)


@pytest.mark.usefixtures("utc")
def test_reservations_tell_who_when_and_where() -> None:
    """One reservation is active, one is in the future, and one is for maintenance of all nodes."""
    found = {one.name: one for one in parse_reservations(recorded("22.05", "scontrol", "reservation_o").stdout)}
    assert found["res_active"] == Reservation(
        name="res_active",
        start=1795256088.0,
        end=1795256088.0 + 12 * 3600,
        nodes=("c5",),
        flags=frozenset({"SPEC_NODES"}),
        users=("bob",),
    )
    assert [found[name].active(1795256100.0) for name in ("res_active", "res_maint", "res_future")] == [
        True,
        True,
        False,
    ]
    assert not found["res_active"].active(1795256088.0 + 12 * 3600)
    assert found["res_maint_future"].flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES", "ALL_NODES"}
    assert len(found["res_maint_future"].nodes) == 19


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("utc")
def test_reservations_of_each_version(version: str) -> None:
    """Names, nodes and users are the same in all versions."""
    found = parse_reservations(recorded(version, "scontrol", "reservation_o").stdout)
    assert [(one.name, one.users, len(one.nodes)) for one in found] == [
        ("res_active", ("bob",), 1),
        ("res_future", ("alice",), 1),
        ("res_maint", ("root",), 1),
        ("res_maint_future", ("root",), 19),
    ]


@pytest.mark.parametrize("name", ["node_state_fail", "node_state_future"])
@pytest.mark.parametrize("version", VERSIONS)
def test_node_that_is_set_aside_is_not_usable(version: str, name: str) -> None:
    """Failing and future nodes are not usable."""
    assert [node.usable for node in parse_nodes(recorded(version, "scontrol", name).stdout)] == [False]


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_about_something_unknown_is_refused(version: str) -> None:
    """'Node nosuch not found' is not a list of nodes."""
    for reader, name in (
        (parse_nodes, "node_unknown"),
        (parse_partitions, "partition_unknown"),
        (parse_reservations, "reservation_unknown"),
    ):
        with pytest.raises(SlurmOutputError, match="does not start with"):
            reader(recorded(version, "scontrol", name).stdout)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NodeName=n1 State=IDLE", "did not report State and CPUTot of node n1"),
        ("NodeName=n1 CPUTot=many State=IDLE", "'many' for CPUTot"),
        ("NodeName=n1 CPUTot=4 State=IDLE Gres=gpu:a:b:c", "'gpu:a:b:c' for Gres"),
    ],
)
def test_odd_node_names_the_field(text: str, message: str) -> None:
    """The error names the missing or malformed field."""
    with pytest.raises(SlurmOutputError, match=message):
        parse_nodes(text)


def test_admin_comment_with_a_newline_stays_with_its_node() -> None:
    """A line break in a node's comment does not end its record."""
    found = parse_nodes("NodeName=n1 CPUTot=4 State=IDLE Comment=two\nlines\nNodeName=n2 CPUTot=4 State=DOWN\n")
    assert [(node.name, node.usable) for node in found] == [("n1", True), ("n2", False)]


class Named(Protocol):
    """A node, partition or reservation."""

    @property
    def name(self) -> str:
        """Its name in Slurm."""


def told_of(
    parse: Callable[[str, Callable[[Unread], None]], Sequence[Named]], text: str
) -> tuple[list[str], list[Unread]]:
    """The names that a parser found, and what it could not read."""
    unread: list[Unread] = []
    return [each.name for each in parse(text, unread.append)], unread


NODE = "NodeName={} State=IDLE CPUTot=4 RealMemory=100 Gres=gpu:k80:1 Reason={} Comment=x\n"


def test_a_node_of_which_a_field_is_not_understood_is_left_out_and_named() -> None:
    """A node with an unreadable field is not counted on; the other nodes are read."""
    odd = NODE.format("n2", "none").replace("gpu:k80:1", "gpu:a:b:c")
    assert told_of(parse_nodes, NODE.format("n1", "none") + odd + NODE.format("n3", "none")) == (
        ["n1", "n3"],
        [Unread("node", "n2", "Gres")],
    )


@pytest.mark.parametrize(
    "words", ["a b", "x=y Gres=gpu:h100:8 State=DOWN", "two\nlines", "one\nNodeName=n1 State=DOWN CPUTot=0", '"(', "|"]
)
def test_an_admins_reason_changes_nothing_of_its_node_or_another(words: str) -> None:
    """The reason may contain blanks, fields, newlines and whole records."""
    found = {node.name: node for node in parse_nodes(NODE.format("n1", "none") + NODE.format("n2", words))}
    plain = {node.name: node for node in parse_nodes(NODE.format("n1", "none") + NODE.format("n2", "none"))}
    assert found["n1"] == plain["n1"]
    assert found["n2"]._replace(reason="") == plain["n2"]._replace(reason="")


def test_a_partition_stays_with_what_is_understood_of_it() -> None:
    """The partition is kept, and lists those of its limits that are unknown."""
    text = "PartitionName=a MaxTime=soon MinNodes=x Nodes=n1 State=UP\nPartitionName=b Nodes=n2 State=UP\n"
    unread: list[Unread] = []
    assert parse_partitions(text, unread.append) == (
        Partition("a", nodes=("n1",), unread=("MaxTime", "MinNodes")),
        Partition("b", nodes=("n2",)),
    )
    assert unread == [
        Unread("partition", "a", "MaxTime", kept=True),
        Unread("partition", "a", "MinNodes", kept=True),
    ]


@pytest.mark.parametrize(
    ("words", "partition"),
    [
        ("DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED", Partition("a")),
        (
            "DefMemPerCPU=1000 MaxMemPerCPU=2000",
            Partition("a", default_memory_per_cpu_mib=1000, max_memory_per_cpu_mib=2000),
        ),
        (
            "DefMemPerNode=500 MaxMemPerNode=900",
            Partition("a", default_memory_per_node_mib=500, max_memory_per_node_mib=900),
        ),
        ("DefMemPerCPU=9223372036854775807", Partition("a", unread=("DefMemPerCPU",))),
    ],
)
def test_memory_of_a_partition(words: str, partition: Partition) -> None:
    """UNLIMITED means no limit; the number that 22.05 prints for a partition's own UNLIMITED is left as unknown."""
    assert parse_partitions(f"PartitionName=a {words} State=UP\n") == (partition,)


@pytest.mark.parametrize(("name", "nodes"), [("a b", "n1"), ("a|b", "n1"), ("x", "n[1"), ("x", "n1 n2")])
def test_odd_reservations_hide_no_other(name: str, nodes: str) -> None:
    """A name may contain a blank; a malformed node list leaves out only its reservation, even if it is the only one."""
    odd = f"ReservationName={name} StartTime=1 EndTime=2 Nodes={nodes} Flags= Comment=a=b\n"
    good = "ReservationName=good StartTime=1 EndTime=2 Nodes=n1 Flags=\n"
    read = [name] if nodes == "n1" else []
    unread = [] if read else [Unread("reservation", name, "Nodes")]
    assert told_of(parse_reservations, odd + good) == ([*read, "good"], unread)
    assert told_of(parse_reservations, odd) == (read, unread)


@settings(deadline=None)
@given(
    st.sampled_from(["Reason", "Comment", "OS", "Extra", "Gres", "GresUsed", "RealMemory", "State"]),
    st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: "NodeName=" not in text),
)
def test_any_text_in_one_node_leaves_the_others_as_they_were(field: str, text: str) -> None:
    """Whatever text is in one of a node's fields, both neighbours are read as before."""
    first, last = NODE.format("n1", "none"), NODE.format("n3", "none")
    odd = f"NodeName=n2 {field}={text} State=IDLE CPUTot=4\n"
    found = {node.name: node for node in parse_nodes(first + odd + last)}
    assert (found["n1"], found["n3"]) == (*parse_nodes(first), *parse_nodes(last))
