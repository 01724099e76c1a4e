"""What ``scontrol show`` says in three versions: nodes, partitions, reservations, settings, one job."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.slurm.reason import NodeReason, node_reason
from jupyterhub_gpuspawner.slurm.scontrol import (
    PARTITION_PARAMETERS,
    parse_allocations,
    parse_config,
    parse_job,
    parse_licenses,
    parse_nodes,
    parse_partitions,
    parse_reservations,
)
from jupyterhub_gpuspawner.slurm.snapshot import NodeState, Partition, Reservation, SlurmConfig
from jupyterhub_gpuspawner.slurm.squeue import parse_squeue
from jupyterhub_gpuspawner.slurm.text import UnparsedField
from jupyterhub_gpuspawner.units import Gres, NodeAllocation
from tests.slurm.recorded import MARK, VERSIONS, recorded, with_owner


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
        hardware=(
            *(("CPUTot", "24"), ("Boards", "1"), ("Sockets", "2"), ("CoresPerSocket", "12"), ("ThreadsPerCore", "1")),
            *(("RealMemory", "64000"), ("TmpDisk", "0"), ("Weight", "1")),
        ),
    )


@pytest.mark.parametrize(("cpus", "per_core"), [(128, 2), (64, 1)])
def test_a_core_has_as_many_cpus_as_slurm_gives_out(cpus: int, per_core: int) -> None:
    """With CPUs= the number of cores, their hardware threads are not given out, whatever ThreadsPerCore is."""
    (node,) = parse_nodes(f"NodeName=n1 CPUTot={cpus} Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 State=IDLE")

    assert node.cpus_per_core == per_core


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_of_each_version(version: str) -> None:
    """All versions agree on sizes, GPUs, states, and the reasons of nodes that are out of service."""
    node_by_name = nodes(version)
    clouds = [] if version == "22.05" else ["cl1", "cl2"]  # 22.05 hides nodes that are powered off
    assert sorted(node_by_name) == sorted(
        [
            *["c1", "c2", "c3", "c4", "c5", "d1", "g1", "g2", "h1", "k1", "k2", "m1", "s1", "u1", "x1", "x2", "y1"],
            *clouds,
        ],
    )
    assert {name: [str(one) for one in node.gres] for name, node in node_by_name.items() if node.gres} == {
        "d1": ["gpu:v100:8"],
        "g1": ["gpu:k80:4"],
        "g2": ["gpu:k80:4"],
        "m1": ["gpu:1g.10gb:4", "gpu:a100:2"],
        "s1": ["gpu:t4:2", "shard:t4:8"],
        "u1": ["gpu:2"],
    }
    assert (node_by_name["h1"].cpus, node_by_name["h1"].features) == (16, ("ht",))
    assert node_by_name["x1"].reason.startswith("hardware: PSU")
    assert {"DOWN", "NOT_RESPONDING"} <= node_by_name["x1"].states
    assert {"IDLE", "MAINTENANCE", "RESERVED"} <= node_by_name["c4"].states
    assert [node_by_name[name].address for name in clouds] == clouds


@pytest.mark.parametrize("version", VERSIONS)
def test_gpus_in_use_need_the_details(version: str) -> None:
    """Without ``-d`` scontrol does not show GresUsed."""
    assert all(not node.gres_used for node in nodes(version, "node_o").values())
    assert any(node.gres_used for node in nodes(version).values())


@pytest.mark.parametrize("version", VERSIONS)
def test_hub_question_reads_the_small_cluster(version: str) -> None:
    """The hub's own query is read, with times as seconds."""
    node_states = parse_nodes(recorded(version, "hub", "node").stdout)
    assert [(node.name, node.cpus, node.memory_mib, [str(g) for g in node.gres]) for node in node_states] == [
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
    partition_by_name = {
        one.name: one for one in parse_partitions(recorded(version, "scontrol", "partition_a_o").stdout)
    }
    assert partition_by_name["batch"] == Partition(
        name="batch",
        default=True,
        nodes=("c1", "c2", "c3", "c4", "c5", "h1", "x1", "x2", "y1"),
        max_time=86400,
        default_time=3600,
    )
    assert partition_by_name["noroot"] == Partition(
        name="noroot",
        nodes=("c1",),
        min_nodes=1,
        max_nodes=1,
        max_cpus_per_node=8,
        max_memory_per_node_mib=32000,
        allow_groups=("alice",),
        preemptable=True,
        one_user=True,
    )
    assert partition_by_name["hid"] == Partition(
        name="hid", hidden=True, nodes=("c2",), allow_accounts=("proj",), preemptable=True
    )
    tiers = {
        name: (partition_by_name[name].priority_tier, partition_by_name[name].preemptable)
        for name in ("hi", "gpu", "lowcan", "lowreq")
    }
    assert tiers == {"hi": (100, False), "gpu": (1, False), "lowcan": (1, True), "lowreq": (1, True)}
    assert {one.name: one.state for one in partition_by_name.values() if one.state != "UP"} == {
        "inactive": "INACTIVE",
        "downp": "DOWN",
        "drainp": "DRAIN",
    }
    assert (partition_by_name["long"].max_time, partition_by_name["debug"].max_time) == (None, 1800)


@pytest.mark.parametrize(
    ("mode", "ends", "pauses"),
    [("OFF", False, False), ("GANG,SUSPEND", False, True), ("CANCEL", True, False), ("REQUEUE", True, False)],
)
def test_what_a_partition_does_to_jobs_that_are_preempted(mode: str, ends: bool, pauses: bool) -> None:
    """As scontrol writes PreemptMode where slurm.conf has SUSPEND,GANG for the cluster."""
    (partition,) = parse_partitions(f"PartitionName=low Nodes=c1 PreemptMode={mode}\n")
    assert (partition.preemptable, partition.suspendable) == (ends, pauses)


@pytest.mark.parametrize(
    ("value", "jobs_per_cpu", "shares_cpus", "exclusive"),
    [
        ("NO", 1, False, False),
        ("YES:4", 4, False, False),
        ("FORCE:1", 1, True, False),
        ("FORCE:4", 4, True, False),
        ("EXCLUSIVE", 1, False, True),
    ],
)
def test_how_jobs_of_a_partition_share_cpus(value: str, jobs_per_cpu: int, shares_cpus: bool, exclusive: bool) -> None:
    """As scontrol writes OverSubscribe."""
    (partition,) = parse_partitions(f"PartitionName=gpu Nodes=c1 OverSubscribe={value}\n")
    assert (partition.jobs_per_cpu, partition.shares_cpus, partition.exclusive) == (
        jobs_per_cpu,
        shares_cpus,
        exclusive,
    )


@pytest.mark.usefixtures("utc")
def test_reservations_tell_who_when_and_where() -> None:
    """One reservation is active, one is in the future, and one is for maintenance of all nodes."""
    reservation_by_name = {
        one.name: one for one in parse_reservations(recorded("22.05", "scontrol", "reservation_o").stdout)
    }
    assert reservation_by_name["res_active"] == Reservation(
        name="res_active",
        start=1795256088.0,
        end=1795256088.0 + 12 * 3600,
        nodes=("c5",),
        core_count=24,
        flags=frozenset({"SPEC_NODES"}),
        users=("bob",),
    )
    assert [reservation_by_name[name].active(1795256100.0) for name in ("res_active", "res_maint", "res_future")] == [
        True,
        True,
        False,
    ]
    assert not reservation_by_name["res_active"].active(1795256088.0 + 12 * 3600)
    assert reservation_by_name["res_maint_future"].flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES", "ALL_NODES"}
    assert len(reservation_by_name["res_maint_future"].nodes) == 19


def test_a_reservation_of_some_cores_is_told_from_one_of_whole_nodes() -> None:
    """As 22.05 prints one of CoreCnt=2: with the cores of each node, between its flags and its TRES."""
    line = (
        "ReservationName=half StartTime=1795256088 EndTime=1795259688 Duration=01:00:00 Nodes=g1 NodeCnt=1 CoreCnt=2 "
        "Features=(null) PartitionName=batch Flags=SPEC_NODES   NodeName=g1 CoreIDs=0-1 TRES=cpu=2 Users=bob "
        "Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a\n"
    )

    assert list(parse_reservations(line)) == [
        Reservation(
            "half",
            start=1795256088.0,
            end=1795259688.0,
            nodes=("g1",),
            partial=True,
            core_count=2,
            cores=(2,),
            flags=frozenset({"SPEC_NODES"}),
            users=("bob",),
        )
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("utc")
def test_reservations_of_each_version(version: str) -> None:
    """Names, nodes and users are the same in all versions."""
    reservations = parse_reservations(recorded(version, "scontrol", "reservation_o").stdout)
    assert [(one.name, one.users, len(one.nodes)) for one in reservations] == [
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
    node_states = parse_nodes("NodeName=n1 CPUTot=4 State=IDLE Comment=two\nlines\nNodeName=n2 CPUTot=4 State=DOWN\n")
    assert [(node.name, node.usable) for node in node_states] == [("n1", True), ("n2", False)]


class Named(Protocol):
    """A node, partition or reservation."""

    @property
    def name(self) -> str:
        """Its name in Slurm."""


def names_and_unread(
    parse: Callable[[str, Callable[[UnparsedField], None]], Sequence[Named]], text: str
) -> tuple[list[str], list[UnparsedField]]:
    """The names that a parser found, and what it could not read."""
    unread: list[UnparsedField] = []
    return [record.name for record in parse(text, unread.append)], unread


NODE = "NodeName={} State=IDLE CPUTot=4 RealMemory=100 Gres=gpu:k80:1 Reason={} Comment=x\n"


def test_a_node_of_which_a_field_is_not_understood_is_left_out_and_named() -> None:
    """A node with an unreadable field is not counted on; the other nodes are read."""
    odd = NODE.format("n2", "none").replace("gpu:k80:1", "gpu:a:b:c")
    assert names_and_unread(parse_nodes, NODE.format("n1", "none") + odd + NODE.format("n3", "none")) == (
        ["n1", "n3"],
        [UnparsedField("node", "n2", "Gres")],
    )


@pytest.mark.parametrize(
    "words", ["a b", "x=y Gres=gpu:h100:8 State=DOWN", "two\nlines", "one\nNodeName=n1 State=DOWN CPUTot=0", '"(', "|"]
)
def test_an_admins_reason_changes_nothing_of_its_node_or_another(words: str) -> None:
    """The reason may contain blanks, fields, newlines and whole records."""
    node_by_name = {node.name: node for node in parse_nodes(NODE.format("n1", "none") + NODE.format("n2", words))}
    plain = {node.name: node for node in parse_nodes(NODE.format("n1", "none") + NODE.format("n2", "none"))}
    assert node_by_name["n1"] == plain["n1"]
    assert node_by_name["n2"]._replace(reason="") == plain["n2"]._replace(reason="")


@pytest.mark.parametrize("name", ["node", "node_lines"])
@pytest.mark.parametrize("version", VERSIONS)
def test_reasons_that_look_like_fields_are_read_whole_with_who_set_them_and_when(version: str, name: str) -> None:
    """With a comment and more behind them, and on several lines."""
    nodes = parse_nodes(recorded(version, "free_text", name).stdout)

    assert [node_reason(node.reason)._replace(at=None) for node in nodes] == [
        NodeReason(""),
        NodeReason("GPU 3 fell off the bus, xid=79 State=IDLE Comment=forged [eve@1732184088] x=1", "root"),
        NodeReason("line one line two ecc.errors=12 State=bad", "root"),
    ]
    assert {node_reason(node.reason).at is None for node in nodes[1:]} == {False}
    assert ["DRAIN" in node.states for node in nodes] == [False, True, True]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reservation_whose_name_looks_like_a_field_is_read(version: str) -> None:
    """And what its comment imitates is not."""
    week, now = parse_reservations(recorded(version, "free_text", "reservation").stdout)

    assert (week.name, week.users, week.nodes, week.flags) == (
        "maint week a=b",
        ("root",),
        ("g1", "g2"),
        frozenset({"MAINT", "SPEC_NODES"}),
    )
    assert (now.name, now.users) == ("now1", ("root",))


ADVICE = (
    "gres/gpu GRES autodetected core affinity 0-15 on node h1 doesn't match socket boundaries. (Socket 0 is cores "
    "0-31). Consider setting Parameters=l3cache_as_socket as part of the Node configuration."
)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (f"{ADVICE} [slurm@2026-06-04T10:00:00]", NodeReason(ADVICE, "slurm", 1780567200.0)),
        ("Xid=79 on GPU3 [root@1795905516]", NodeReason("Xid=79 on GPU3", "root", 1795905516.0)),
        ("e.e=12 State=bad [DOM\\j doe@1795905516]", NodeReason("e.e=12 State=bad", "DOM\\j doe", 1795905516.0)),
        ("off [john@dom.org@1795905516] Comment=[x@1795905517]", NodeReason("off", "john@dom.org", 1795905516.0)),
        ("a [b] [1000@1795905516] Extra={}", NodeReason("a [b]", "1000", 1795905516.0)),
        ("maint [root@1795905516] New/Key:x=1 2", NodeReason("maint", "root", 1795905516.0)),
        ("hardware: PSU=2", NodeReason("hardware: PSU=2")),
        ("hardware: PSU Comment=a [b]", NodeReason("hardware: PSU")),
        ("[root@1795905516]", NodeReason("", "root", 1795905516.0)),
        ("", NodeReason("")),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("utc")
def test_a_reason_ends_at_its_signature_or_at_what_slurm_prints_behind_it(printed: str, reason: NodeReason) -> None:
    """Whatever stands in it, and whoever set it."""
    (node,) = parse_nodes(f"NodeName=n1 CPUTot=4 State=IDLE+DRAIN AveWatts=0  Reason={printed}\n")

    assert node_reason(node.reason) == reason


ODD_NODES: dict[str, tuple[str, dict[str, object]]] = {
    "an address of IPv6": ("NodeAddr=fd00::1 NodeHostName=h", {"address": "fd00::1"}),
    "an address that is another name": ("NodeAddr=g1-ib.cluster", {"address": "g1-ib.cluster"}),
    "numbers that are not known": ("FreeMem=N/A AllocMem=N/A MemSpecLimit=N/A", {}),
    "sockets in a list": ("Gres=gpu:a100:2(S:0,1)", {"gres": (Gres("gpu", "a100", 2, sockets=(0, 1)),)}),
    "a resource that is no device": (
        "Gres=bandwidth:lustre:no_consume:4G",
        {"gres": (Gres("bandwidth", "lustre", 4 << 30),)},
    ),
    "features with signs": ("ActiveFeatures=a&b,c|d AvailableFeatures=a&b", {"features": ("a&b", "c|d")}),
    "partitions of a later version": ("Partitions=gpu New=x", {"partitions": ("gpu",)}),
}


@pytest.mark.parametrize(("printed", "expected"), ODD_NODES.values(), ids=ODD_NODES.keys())
def test_what_is_odd_in_a_node_changes_nothing_else_of_it(printed: str, expected: dict[str, object]) -> None:
    """Whatever Slurm prints for one of its parameters, the node is read, and the others as before."""
    record = "NodeName=n1 State=IDLE CPUTot=4 CPUEfctv=4 {} RealMemory=100\n"
    (odd,), (plain,) = parse_nodes(record.format(printed)), parse_nodes(record.format(""))

    assert odd == plain._replace(**expected)  # type: ignore[arg-type]


ODD_STATES: dict[str, tuple[set[str], bool]] = {
    "IDLE*~": ({"IDLE", "NOT_RESPONDING", "POWERED_DOWN"}, False),
    "IDLE~": ({"IDLE", "POWERED_DOWN"}, True),
    "IDLE#": ({"IDLE", "POWERING_UP"}, True),
    "IDLE%": ({"IDLE", "POWERING_DOWN"}, False),
    "IDLE!": ({"IDLE", "POWER_DOWN"}, False),
    "MIXED-": ({"MIXED", "PLANNED"}, True),
    "ALLOCATED+": ({"ALLOCATED"}, True),
    "ALLOCATED@": ({"ALLOCATED", "REBOOT_REQUESTED"}, True),
    "IDLE^": ({"IDLE", "REBOOT_ISSUED"}, False),
    "DOWN$": ({"DOWN", "MAINTENANCE"}, False),
    "idle+cloud+powered_down": ({"IDLE", "CLOUD", "POWERED_DOWN"}, True),
    "IDLE+CLOUD+POWERING_UP+NOT_RESPONDING": ({"IDLE", "CLOUD", "POWERING_UP", "NOT_RESPONDING"}, True),
    "IDLE+DYNAMIC_NORM": ({"IDLE", "DYNAMIC_NORM"}, True),
    "IDLE+BLOCKED": ({"IDLE", "BLOCKED"}, False),
    "FUTURE": ({"FUTURE"}, False),
    "UNKNOWN": ({"UNKNOWN"}, False),
    "A_NEW_STATE": ({"A_NEW_STATE"}, False),
}


@pytest.mark.parametrize(("printed", "states", "usable"), [(key, *value) for key, value in ODD_STATES.items()])
def test_states_and_whether_jobs_may_start(printed: str, states: set[str], usable: bool) -> None:
    """With the suffixes of older versions, and the words of newer ones."""
    (node,) = parse_nodes(f"NodeName=n1 State={printed} CPUTot=4\n")

    assert (set(node.states), node.usable) == (states, usable)


def test_a_parameter_of_a_later_version_changes_no_other() -> None:
    """Wherever it stands but in a text without a signature."""
    plain = NODE.format("n1", "off [root@1795905516]")
    odd = plain.replace(" State=", " New=1 State=").replace(" Comment=", " Newer=a b Comment=")

    assert parse_nodes(odd) == parse_nodes(plain)
    assert parse_nodes(plain.replace(" Gres=", " New=(null) Gres=")) == parse_nodes(plain)


def test_a_partition_stays_with_what_is_understood_of_it() -> None:
    """The partition is kept, and lists those of its limits that are unknown."""
    text = "PartitionName=a MaxTime=soon MinNodes=x Nodes=n1 State=UP\nPartitionName=b Nodes=n2 State=UP\n"
    unread: list[UnparsedField] = []
    assert parse_partitions(text, unread.append) == (
        Partition("a", nodes=("n1",), unread=("MaxTime", "MinNodes")),
        Partition("b", nodes=("n2",)),
    )
    assert unread == [
        UnparsedField("partition", "a", "MaxTime", partial=True),
        UnparsedField("partition", "a", "MinNodes", partial=True),
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
    other = "ReservationName=good StartTime=1 EndTime=2 Nodes=n1 Flags=\n"
    read = [name] if nodes == "n1" else []
    unread = [] if read else [UnparsedField("reservation", name, "Nodes")]
    assert names_and_unread(parse_reservations, odd + other) == ([*read, "good"], unread)
    assert names_and_unread(parse_reservations, odd) == (read, unread)


@settings(deadline=None)
@given(
    st.sampled_from(["Reason", "Comment", "OS", "Extra", "Gres", "GresUsed", "RealMemory", "State"]),
    st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: "NodeName=" not in text),
)
def test_any_text_in_one_node_leaves_the_others_as_they_were(field: str, text: str) -> None:
    """Whatever text is in one of a node's fields, both neighbours are read as before."""
    first, last = NODE.format("n1", "none"), NODE.format("n3", "none")
    odd = f"NodeName=n2 {field}={text} State=IDLE CPUTot=4\n"
    node_by_name = {node.name: node for node in parse_nodes(first + odd + last)}
    assert (node_by_name["n1"], node_by_name["n3"]) == (*parse_nodes(first), *parse_nodes(last))


def config_text(**values: str) -> str:
    """Shortened output of scontrol show config."""
    lines = {
        "AccountingStorageType": "accounting_storage/none",
        "MCSPlugin": "mcs/none",
        "MCSParameters": "(null)",
        "PrivateData": "none",
        "SlurmUser": "slurm(64030)",
        **values,
    }
    text = "".join(f"{key:<23} = {value}\n" for key, value in lines.items())
    return f"Configuration data as of 2026-11-22T02:10:51\n{text}\nSlurmctld(primary) at head is UP\n"


@pytest.mark.parametrize(
    ("values", "config", "hides"),
    [
        ({}, SlurmConfig(slurm_uid=64030), False),
        ({"PrivateData": "accounts,jobs"}, SlurmConfig(frozenset({"accounts", "jobs"}), 64030), True),
        ({"PrivateData": "accounts,usage"}, SlurmConfig(frozenset({"accounts", "usage"}), 64030), False),
        (
            {"AccountingStorageType": "accounting_storage/slurmdbd", "SlurmUser": "root(0)"},
            SlurmConfig(slurm_uid=0, accounting=True),
            False,
        ),
        ({"MCSPlugin": "mcs/group", "MCSParameters": "privatedata"}, SlurmConfig(frozenset({"jobs"}), 64030), True),
    ],
)
def test_who_sees_whose_jobs(values: dict[str, str], config: SlurmConfig, hides: bool) -> None:
    """PrivateData, SlurmUser and the existence of operators determine whose jobs are shown."""
    slurm_config = parse_config(config_text(**values))
    assert (slurm_config, slurm_config.hides_jobs) == (replace(config, memory_is_allocated=True), hides)


@pytest.mark.parametrize(
    ("plugin", "preemption"),
    [
        ("preempt/none", ""),
        ("(null)", ""),
        ("preempt/partition_prio", "partition"),
        ("preempt/qos", "qos"),
    ],
)
def test_by_what_jobs_preempt_others(plugin: str, preemption: str) -> None:
    """PreemptType is a plugin's name."""
    assert parse_config(config_text(PreemptType=plugin)).preemption == preemption


@pytest.mark.parametrize(("value", "all_partitions"), [("NO", False), ("ANY", False), ("ALL", True)])
def test_whether_a_job_must_be_within_the_limits_of_all_its_partitions(value: str, all_partitions: bool) -> None:
    assert parse_config(config_text(EnforcePartLimits=value)).enforces_limits_of_all is all_partitions


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ({}, "core"),
        ({"SelectTypeParameters": "CR_CPU_MEMORY"}, "cpu"),
        ({"SelectTypeParameters": "CR_SOCKET"}, "socket"),
        ({"SelectType": "select/linear"}, "node"),
    ],
)
def test_what_a_job_gets_whole(values: dict[str, str], unit: str) -> None:
    """SelectType and SelectTypeParameters determine it."""
    assert (
        parse_config(
            config_text(SelectType="select/cons_tres", **values)
            if "SelectType" not in values
            else config_text(**values)
        ).cpu_unit
        == unit
    )


def test_the_defaults_of_jobs_with_gpus() -> None:
    """JobDefaults gives memory in MiB and CPUs for each GPU."""
    config = parse_config(config_text(JobDefaults="DefCpuPerGPU=4,DefMemPerGPU=16000"))

    assert (config.default_cpus_per_gpu, config.default_memory_per_gpu_mib) == (4, 16000)


@pytest.mark.parametrize("text", ["", "Configuration data as of now\n", "SlurmUser = root(0)\n"])
def test_an_answer_that_is_no_configuration_is_refused(text: str) -> None:
    """Without a configuration it is unknown whose jobs are shown."""
    with pytest.raises(SlurmOutputError):
        parse_config(text)


def test_licences_are_counted_whether_in_use_or_not() -> None:
    """A cluster without licences has none."""
    text = "LicenseName=matlab Total=3 Used=1 Free=2 Reserved=0 Remote=no\nLicenseName=idl Total=1 Used=0 Free=1\n"

    assert (parse_licenses(text), parse_licenses("No licenses configured in Slurm.\n")) == ({"matlab": 3, "idl": 1}, {})


@pytest.mark.parametrize(
    ("text", "answered_at", "resume_timeout"),
    [
        (config_text(), None, None),
        (config_text().replace("2026-11-22T02:10:51", "1795313451"), 1795313451.0, None),
        (config_text(ResumeProgram="/sbin/resume", ResumeTimeout="600 sec"), None, 600),
        (config_text(ResumeProgram="(null)", ResumeTimeout="60 sec"), None, None),
    ],
    ids=["a date", "seconds since the epoch", "power saving", "none"],
)
def test_its_time_and_how_long_nodes_take_to_boot(
    text: str, answered_at: float | None, resume_timeout: int | None
) -> None:
    """slurmctld's time is in the first line; nodes are booted only where there is a program that does it."""
    config = parse_config(text)

    assert (config.answered_at, config.resume_timeout) == (answered_at, resume_timeout)


STARTS = {"22.05": 1795262301.0, "24.11": 1795262305.0, "26.05": 1795262309.0}


@pytest.mark.parametrize("version", VERSIONS)
def test_running_job_with_two_gpus(version: str) -> None:
    """State, times, log and tag are read, and the CPUs, memory and GPU indices on its node."""
    assert parse_job(recorded(version, "hub", "job_running").stdout, "1") == Job(
        "1",
        Phase.RUNNING,
        state="RUNNING",
        nodes="g1",
        batch_host="g1",
        user="ci",
        partition="gpu",
        starts_at=STARTS[version],
        ends_at=STARTS[version] + 86400,
        tag="gpuspawner:hub:alice:",
        name="wrap",
        uid=2001,
        time_limit=86400,
        memory_mib=100,
        stdout_path="/cl/jobs/1.log",
        allocations=(NodeAllocation("g1", (0, 1, 2, 3), 100, (Gres("gpu", "k80", 2, (0, 1)),)),),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_failed_job_keeps_its_exit_code_and_what_it_had(version: str) -> None:
    """The job has exit code 3 and no GPU."""
    job = parse_job(recorded(version, "hub", "job_failed").stdout, "2")
    assert job is not None
    assert (job.phase, job.end, job.reason, job.exit_code, job.tag) == (
        Phase.ENDED,
        End.FAILED,
        "NonZeroExitCode",
        "3:0",
        "gpuspawner:hub:alice:lab",
    )
    assert [(one.node, one.memory_mib, one.gres) for one in job.allocations] == [("g1", 100, ())]


def only(version: str, area: str, name: str) -> Job:
    """The job in a recorded answer."""
    text = recorded(version, area, name).stdout
    job = parse_job(text, text.removeprefix("JobId=").split()[0])
    assert job is not None
    return job


K80, V100, A100, MIG = "k80", "v100", "a100", "1g.10gb"


def shards(count: int, *of_gpus: tuple[int, int]) -> Gres:
    """Shards of one GPU, with how many are in use of each."""
    return Gres("shard", None, count, tuple(n for n, (used, _) in enumerate(of_gpus) if used), shares=of_gpus)


@pytest.mark.parametrize(
    ("version", "name", "allocations"),
    [
        ("22.05", "gpu2", [NodeAllocation("g1", (0, 1, 2, 3), 8000, (Gres("gpu", K80, 2, (0, 1)),))]),
        ("24.11", "gpu2", [NodeAllocation("g1", (0, 1, 2, 3), 8000, (Gres("gpu", K80, 2, (0, 1)),))]),
        ("26.05", "gpu2", []),  # was pending there
        ("22.05", "a100", [NodeAllocation("m1", (1,), 500, (Gres("gpu", A100, 0),))]),  # 22.05 allocated none
        ("24.11", "a100", [NodeAllocation("m1", (1,), 500, (Gres("gpu", A100, 1, (4,)),))]),
        ("26.05", "mig", [NodeAllocation("m1", (0,), 500, (Gres("gpu", MIG, 1, (0,)),))]),
        ("22.05", "shard", [NodeAllocation("s1", (0,), 500, (Gres("shard", None, 3, (0,)),))]),
        ("24.11", "shard", [NodeAllocation("s1", (0,), 500, (shards(3, (3, 4), (0, 4)),))]),
        ("26.05", "shard", [NodeAllocation("s1", (1,), 500, (shards(3, (0, 4), (3, 4)),))]),
        ("24.11", "shard_b", [NodeAllocation("s1", (1,), 500, (shards(2, (0, 4), (2, 4)),))]),
        ("26.05", "gpus", [NodeAllocation("d1", (20,), 500, (Gres("gpu", V100, 2, (4, 5)),))]),
        ("22.05", "untyped", [NodeAllocation("u1", (0,), 500, (Gres("gpu", None, 1, (0,)),))]),
        ("24.11", "ht", [NodeAllocation("h1", (0, 1, 2, 3), 2000)]),
        ("22.05", "suspended", [NodeAllocation("c3", (12,), 500)]),
        (
            "24.11",
            "gpu_multi",
            [
                NodeAllocation("g1", (12,), 1000, (Gres("gpu", K80, 1, (2,)),)),
                NodeAllocation("g2", (0,), 1000, (Gres("gpu", K80, 1, (0,)),)),
            ],
        ),
    ],
)
def test_what_a_running_job_holds(version: str, name: str, allocations: list[NodeAllocation]) -> None:
    """CPUs, MiB and GPUs of each node: typed and untyped GPUs, MIG, shards, hardware threads, two nodes."""
    assert list(only(version, "scontrol", f"job_run_{name}").allocations) == allocations


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("area", "name", "state", "reason", "end", "exit_codes"),
    [
        ("scontrol", "job_completed", "COMPLETED", "", End.FINISHED, {"0:0"}),
        ("scontrol", "job_failed", "FAILED", "NonZeroExitCode", End.FAILED, {"3:0"}),
        ("scontrol", "late_timeout", "TIMEOUT", "TimeLimit", End.TIME_LIMIT, {"0:15"}),
        ("scontrol", "job_dl2", "DEADLINE", "DeadLine", End.TIME_LIMIT, {"0:1"}),
        ("scontrol", "job_cancel_running", "CANCELLED", "", End.CANCELLED, {"0:15"}),
        ("scontrol", "job_node_fail", "NODE_FAIL", "NodeDown", End.NODE_FAILED, {"0:0", "0:1"}),
        ("scontrol", "late_preempt_can", "PREEMPTED", "", End.PREEMPTED, {"0:0", "0:15"}),
        ("cgroup_v1", "oom_job", "OUT_OF_MEMORY", "OutOfMemory", End.OUT_OF_MEMORY, {"0:125"}),
    ],
)
def test_how_jobs_ended(
    version: str,
    area: str,
    name: str,
    state: str,
    reason: str,
    end: End,
    exit_codes: set[str],
) -> None:
    """Each recorded end is read in three versions, which differ in a few exit codes."""
    job = only(version, area, name)
    assert (job.state, job.reason, job.end) == (state, reason, end)
    assert job.exit_code in exit_codes


@pytest.mark.parametrize(
    ("name", "phase", "reason"),
    [
        ("job_pend_resources", Phase.QUEUED, None),
        ("job_requeued_hold", Phase.QUEUED, "job requeued in held state"),
        ("job_special", Phase.QUEUED, "job requeued in held state"),
        ("job_cloud", Phase.STARTING, ""),
        ("job_completing_now", Phase.ENDING, ""),
        ("job_run_suspended", Phase.RUNNING, ""),
        ("job_prolog_fail", Phase.QUEUED, "launch failed requeued held"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_on_their_way(version: str, name: str, phase: Phase, reason: str | None) -> None:
    """Phases before and after running are read; underscores in a reason become blanks."""
    job = only(version, "scontrol", name)
    assert job.phase is phase
    assert reason is None or job.reason == reason


def test_job_without_time_limit_has_none() -> None:
    """UNLIMITED becomes None, and so does the end of such a job."""
    job = only("24.11", "scontrol", "job_run_unlimited")
    assert (job.time_limit, job.ends_at, job.ends_at_iso) == (None, None, None)


@pytest.mark.parametrize("path", ["/home/ada/a b=c/log", "/home/x TresPer=1/JobState/log"])
@pytest.mark.parametrize(("name", "behind"), [("job_running", ""), ("job_running", " Power= TresPerNode=gres/gpu:1")])
def test_the_path_of_a_log_is_read_whole(path: str, name: str, behind: str) -> None:
    """Whatever the folder of a home is called."""
    text = recorded("24.11", "hub", name).stdout
    odd = re.sub(r"StdOut=\S+.*", lambda _: f"StdOut={path}{behind}", text)
    job, plain = parse_job(odd, "1"), parse_job(text, "1")

    assert job is not None
    assert plain is not None
    assert job == replace(plain, stdout_path=path)


ODD_JOBS: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "a limit that is not set": ({"TimeLimit": "NOT_SET"}, {"time_limit": None}),
    "a limit that is not known": ({"TimeLimit": "INVALID"}, {"time_limit": None}),
    "the limit of its partition": ({"TimeLimit": "Partition_Limit"}, {"time_limit": None}),
    "a year": ({"TimeLimit": "365-00:00:00"}, {"time_limit": 365 * 86400}),
    "no end": ({"EndTime": "Unknown", "TimeMin": "N/A", "Deadline": "Unknown"}, {"ends_at": None}),
    "a user of a domain": ({"UserId": "DOM\\john doe(1000)"}, {"user": "DOM\\john doe", "uid": 1000}),
    "a user with the name of a domain": ({"UserId": "al@dom.org(7)"}, {"user": "al@dom.org", "uid": 7}),
    "a user without a uid": ({"UserId": "nobody"}, {"user": "nobody", "uid": None}),
    "a node list": ({"NodeList": "g[1-2],h1"}, {"nodes": "g[1-2],h1"}),
    "no batch host": ({"BatchHost": "(null)"}, {"batch_host": ""}),
    "an account with blanks": ({"Account": "a@b c"}, {}),
    "tasks of an array": ({"JobId": "9 ArrayJobId=9 ArrayTaskId=1-5%2"}, {"job_id": "9"}),
    "a part of a heterogeneous job": (
        {"JobId": "9 HetJobId=9 HetJobOffset=0 HetJobIdSet=9-10"},
        {"job_id": "9"},
    ),
    "all memory of a large node": ({"MinMemoryNode": "1.5P"}, {"memory_mib": 3 << 29}),
    "a later version's parameters": ({"Partition": "gpu New=1 Newer:x/y=a b"}, {"partition": "gpu"}),
    "a reason with a name": (
        {"Reason": "Job's_account_not_permitted_(x_allows_a=b)"},
        {"reason": "Job's account not permitted (x allows a=b)"},
    ),
}


@pytest.mark.parametrize(("printed", "expected"), ODD_JOBS.values(), ids=ODD_JOBS.keys())
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_odd_in_a_job_changes_nothing_else_of_it(
    version: str, printed: dict[str, str], expected: dict[str, object]
) -> None:
    """Whatever Slurm prints for one of its parameters, the others are read as before."""
    text = recorded(version, "hub", "job_running").stdout
    plain = parse_job(text, "1")
    for key, value in printed.items():
        found = re.search(rf"(?:^|\s){key}=(\S+)", text)
        assert found is not None
        text = f"{text[: found.start(1)]}{value}{text[found.end(1) :]}"
    job_id = re.match(r"JobId=(\d+)", text)

    assert plain is not None
    assert job_id is not None
    assert parse_job(text, job_id[1]) == replace(plain, **expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_requested_no_memory_has_what_slurm_allocated_by_default(version: str) -> None:
    """By DefMemPerCPU and the like, which Slurm shows as MinMemoryCPU; of several nodes it is not known of each."""
    by_default = recorded(version, "hub", "job_running").stdout.replace("MinMemoryNode=100M", "MinMemoryCPU=25M")
    jobs = [parse_job(by_default.replace("NodeList=g1", f"NodeList={nodes}"), "1") for nodes in ("g1", "g[1-2]")]

    assert [job and job.memory_mib for job in jobs] == [100, None]


def test_a_deadline_says_when_the_job_must_have_started() -> None:
    """The deadline less the time limit, or less the shortest time with which the job may run."""
    text = recorded("24.11", "hub", "job_running").stdout
    limit = only("24.11", "hub", "job_running").time_limit
    at = re.sub(r" Deadline=\S+", " Deadline=1800000000", text)
    shorter = re.sub(r" TimeMin=\S+", " TimeMin=00:05:00", at)

    assert limit is not None
    assert [job.latest_start for answer in (text, at, shorter) if (job := parse_job(answer, "1"))] == [
        None,
        1800000000.0 - limit,
        1800000000.0 - 300,
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_array_answers_with_all_its_tasks_and_one_is_picked(version: str) -> None:
    """``show job 50`` prints jobs 50, 107 and 108: the requested one is returned, or None if it is absent."""
    text = recorded(version, "scontrol", "job_array").stdout
    ids = re.findall(r"^JobId=(\d+)", text, re.MULTILINE)
    assert len(ids) > 1
    jobs = [parse_job(text, job_id) for job_id in ids]
    assert [one.job_id for one in jobs if one] == ids
    assert parse_job(text, "5") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_job_on_two_nodes_has_two_allocations(version: str) -> None:
    """Each node has its own allocation, even where Slurm folds two of them into one line."""
    job = only(version, "hub", "job_two_nodes")
    assert (job.nodes, job.batch_host) == ("g[1-2]", "g1")
    assert {one.node: [(g.name, g.type, g.count, len(g.indices)) for g in one.gres] for one in job.allocations} == {
        "g1": [("gpu", "k80", 1, 1)],
        "g2": [("gpu", "k80", 1, 1)],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_name_that_imitates_a_field_is_refused(version: str) -> None:
    """A job named ``x JobState=FAILED`` is ambiguous, and the error names the field."""
    with pytest.raises(SlurmOutputError, match="Job 5 has JobState twice"):
        parse_job(recorded(version, "hub", "job_forged").stdout, "5")


def test_name_that_imitates_a_whole_job_is_refused() -> None:
    """A newline and a forged record in a name give two records for one job, which is an error."""
    text = recorded("24.11", "hub", "job_running").stdout
    forged = (
        text.replace("JobId=1 JobName=wrap", "JobId=9 JobName=x\n" + text.replace("g1", "evil").rstrip("\n"), 1) + text
    )
    with pytest.raises(SlurmOutputError, match="listed job 1 twice"):
        parse_job(forged, "1")


@pytest.mark.parametrize("field", ["JobState", "ExitCode", "NodeList", "EndTime"])
def test_missing_field_is_named(field: str) -> None:
    """An answer without a required field is refused with an error that names it."""
    text = recorded("24.11", "hub", "job_running").stdout.replace(f" {field}=", f" Other{field}=", 1)
    with pytest.raises(SlurmOutputError, match=f"did not report {field} of job 1"):
        parse_job(text, "1")


@pytest.mark.parametrize("version", VERSIONS)
def test_comment_with_newline_and_blanks_is_read_to_its_end(version: str) -> None:
    """The comment is the text between ``Comment=`` and ``StdErr=``."""
    assert only(version, "scontrol", "job_name2").tag == "new\nline"
    assert only(version, "scontrol", "job_run_gpu2").tag == "hub=a|b c"


def records(text: str) -> list[str]:
    """The records of an answer, one for each job."""
    return [record for record in re.split(r"^(?=JobId=\d+ )", text, flags=re.MULTILINE) if record.startswith("JobId=")]


EVERY = [("22.05", "jobs_late_d_o"), ("24.11", "jobs_late_d_o"), ("26.05", "jobs_all_o")]


@pytest.mark.parametrize(("version", "name"), EVERY)
@pytest.mark.usefixtures("utc")
def test_every_recorded_job_is_read(version: str, name: str) -> None:
    """Over a hundred jobs of each version have a known state; running ones have host and start, ended ones an end."""
    jobs = [
        parse_job(record, record.removeprefix("JobId=").split()[0])
        for record in records(recorded(version, "scontrol", name).stdout)
    ]
    assert len(jobs) > 80
    assert [one for one in jobs if one is None or one.phase is Phase.UNKNOWN] == []
    assert [one for one in jobs if one and one.phase is Phase.RUNNING and not (one.batch_host and one.starts_at)] == []
    assert [one for one in jobs if one and one.end and one.ends_at is None] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_both_commands_tell_the_same(version: str) -> None:
    """squeue and scontrol give the same status for a job."""
    squeue = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout, "2001", "wrap"), MARK)
    for job_id, name in (("1", "job_running"), ("2", "job_failed"), ("6", "job_two_nodes"), ("7", "job_cancelled")):
        detail = parse_job(recorded(version, "hub", name).stdout, job_id)
        assert detail is not None
        in_squeue = replace(detail, time_limit=None, memory_mib=None, latest_start=None, stdout_path="", allocations=())
        assert in_squeue == squeue[job_id]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_what_every_job_has_in_one_answer(version: str) -> None:
    """One answer gives the GPUs of all jobs: on two nodes, a shard, a MIG device, several on one node."""
    allocations = parse_allocations(recorded(version, "scontrol", "jobs_late_d_o").stdout)
    gpus = {job: {part.node: tuple(map(str, part.gres)) for part in parts} for job, parts in allocations.items()}
    assert {job: gpus[job] for job in ("38", "39", "41", "45", "54")} == {
        "38": {"g1": ("gpu:k80:1",), "g2": ("gpu:k80:1",)},
        "39": {"s1": ("shard:3",)},
        "41": {"m1": ("gpu:1g.10gb:1",)},
        "45": {"d1": ("gpu:v100:3",)},
        "54": {"c3": ()},
    }
    assert allocations["45"][0].gres[0].indices == (4, 5, 6)


def test_a_job_whose_name_imitates_another_gives_neither() -> None:
    """If a name imitates a whole job, neither of the two is reported; a job with fields in its name is left out."""
    text = recorded("22.05", "scontrol", "jobs_late_d_o").stdout
    (real,) = (line for line in text.splitlines() if line.startswith("JobId=37 "))
    forged = real.replace("JobId=37 ", "JobId=45 ").replace("(IDX:0-1)", "(IDX:0-7)")
    named = real.replace("JobId=37 ", "JobId=900 ").replace("JobName=plain", "JobName=CoreSpec=* MinCPUsNode=1")
    allocations = parse_allocations(text + forged + "\n" + named + "\n")
    assert "37" in allocations
    assert not {"45", "900"} & set(allocations)


def test_a_job_with_threads_set_aside_is_read() -> None:
    """With --thread-spec, scontrol prints ThreadSpec= in the place of CoreSpec=."""
    text = recorded("24.11", "hub", "job_running").stdout
    threads = text.replace(" CoreSpec=*", " ThreadSpec=2")

    assert threads != text
    assert parse_job(threads, "1") == parse_job(text, "1")
    assert parse_allocations(threads) == parse_allocations(text) != {}


def test_no_jobs_have_nothing() -> None:
    """Slurm prints a sentence for an empty cluster."""
    assert parse_allocations("No jobs in the system\n") == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_parameter_of_a_partition_is_known(version: str) -> None:
    """A new one is declared with how it counts, before a form says that something starts now."""
    printed = {
        key
        for partition in parse_partitions(recorded(version, "scontrol", "partition_a_o").stdout)
        for key in partition.parameters
    }

    assert printed - PARTITION_PARAMETERS == set()


@pytest.mark.parametrize(
    ("parameter", "not_modelled", "exclusive"),
    [
        ("MaxCPUsPerSocket=2", ("MaxCPUsPerSocket",), False),
        ("MaxCPUsPerSocket=UNLIMITED RootOnly=NO ExclusiveTopo=NO Exclusive=NO SelectTypeParameters=NONE", (), False),
        ("RootOnly=YES ExclusiveTopo=YES", ("ExclusiveTopo", "RootOnly"), False),
        ("SelectTypeParameters=CR_SOCKET", ("SelectTypeParameters",), False),
        ("NewInThisVersion=4", ("NewInThisVersion",), False),
        ("NewInThisVersion=NO AnotherOne=(null) AndOne=UNLIMITED", (), False),
        ("Exclusive=NODE", (), True),
        ("Exclusive=TOPO", ("Exclusive",), False),
        ("Exclusive=USER", (), False),
    ],
)
def test_a_parameter_that_nobody_models_is_told_where_it_is_set(
    parameter: str, not_modelled: tuple[str, ...], exclusive: bool
) -> None:
    """So that no start is promised; whole nodes have two names, by version."""
    (partition,) = parse_partitions(f"PartitionName=gpu {parameter} Nodes=g1 State=UP OverSubscribe=NO\n")

    assert (partition.not_modelled, partition.exclusive) == (not_modelled, exclusive)


def test_what_a_reservation_holds_beside_nodes_is_read() -> None:
    """Cores of each node, and licences."""
    (reservation,) = parse_reservations(
        "ReservationName=half a week StartTime=1 EndTime=2 Nodes=g[1-2] CoreCnt=3 Flags=SPEC_NODES   NodeName=g1 "
        "CoreIDs=0-1 NodeName=g2 CoreIDs=4 TRES=cpu=3 Licenses=matlab:2,idl:1 State=ACTIVE\n"
    )

    assert (reservation.name, reservation.core_count, reservation.cores, reservation.licenses) == (
        "half a week",
        3,
        (2, 1),
        "matlab:2,idl:1",
    )
