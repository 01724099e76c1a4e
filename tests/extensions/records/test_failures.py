"""Starts that failed by their cause, and nodes on which several people's starts failed in a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.records.failures import failing_nodes, failures_of, never_started, slurm_commands
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from tests.hub.spawners.test_clusters import CEDAR, CLUSTERS, spawner_of
from tests.standins.session_events import NOON


def start(at: int, user: str, node: str, fault: str = "", profile: str = "gpu") -> SessionRecord:
    """A start of this minute: with a fault it failed, else it succeeded."""
    begun_at = NOON + 60 * at
    record = SessionRecord(str(at), user, job_id=str(at), profile=profile, begun_at=begun_at, node=node)
    if not fault:
        return replace(record, ready_at=begun_at + 10)
    return replace(record, ended_at=begun_at + 10, cause=Cause(Kind.START_FAILED, fault))


STARTS = [
    start(1, "ada", "g1", "module"),
    start(2, "ben", "g2"),
    start(3, "ben", "g2", "module"),
    start(4, "cid", "", "submit_rejected", profile="big"),
    start(5, "ada", "g1", "module"),
    start(6, "ada", "g1", "module", profile="other"),
]


def test_starts_that_failed_are_grouped_by_cause_and_profile() -> None:
    """Those of most people first, each with its nodes; a start that succeeded is none."""
    groups = failures_of(STARTS)

    assert [(group.fault, group.profile, group.nodes, group.people) for group in groups] == [
        ("module", "gpu", {"g1": 2, "g2": 1}, ("ada", "ben")),
        ("module", "other", {"g1": 1}, ("ada",)),
        ("submit_rejected", "big", {}, ("cid",)),
    ]
    assert groups[0].latest_at == NOON + 310


WORKS = start(0, "eve", "g9")
THREE = [start(at, f"u{at}", "g1", "launcher") for at in (1, 2, 3)]
ROWS = {
    "three starts in a row, of a profile that works elsewhere": ([WORKS, *THREE], ["g1"]),
    "of one that worked there before": ([start(0, "eve", "g1"), *THREE], ["g1"]),
    "of one person alone": ([WORKS, *(start(at, "ada", "g1", "launcher") for at in (1, 2, 3))], []),
    "two starts": ([WORKS, *THREE[:2]], []),
    "one that succeeded since": ([WORKS, *THREE, start(4, "ada", "g1")], []),
    "homes that are full": ([WORKS, *(start(at, f"u{at}", "g1", "home_full") for at in (1, 2, 3))], []),
    "of a profile that works nowhere": (THREE, []),
    "of several profiles that fail there alone, and have never worked": (
        [*THREE[:2], start(3, "ada", "g1", "python", "other")],
        [],
    ),
    "of several profiles that fail everywhere": (
        [
            *(start(at, f"u{at}", node, "module", f"p{at % 2}") for node in ("g1", "g2") for at in (1, 2, 3)),
        ],
        [],
    ),
    "the first day of a hub: three broken profiles, on the first node that Slurm fills": (
        [start(at, f"u{at}", "c1", fault, fault) for at, fault in enumerate(("module", "conda", "server"))],
        [],
    ),
    "the same, while a fourth profile works there and elsewhere": (
        [
            *(start(at, f"u{at}", "c1", fault, fault) for at, fault in enumerate(("module", "conda", "server"))),
            start(4, "eve", "c2", profile="good"),
        ],
        [],
    ),
    "a node that is broken, while its siblings work": (
        [*(start(at, f"u{at}", f"g{at % 3}", "launcher" if at % 3 == 1 else "") for at in range(12))],
        ["g1"],
    ),
    "two nodes that are broken, while a third works": (
        [*(start(at, f"u{at}", f"g{at % 3}", "launcher" if at % 3 else "") for at in range(12))],
        ["g1", "g2"],
    ),
    "a broken partition: all its nodes fail what worked before": (
        [WORKS, *(start(at, f"u{at}", f"g{at % 2 + 1}", "launcher") for at in range(1, 9))],
        [],
    ),
    "a profile that was broken by a change, on the second and third node it meets": (
        [
            start(0, "eve", "g1"),
            start(1, "eve", "g2"),
            *(start(at, f"u{at}", f"g{at % 2 + 1}", "module") for at in range(2, 8)),
        ],
        [],
    ),
    "a file that one node lacks, for one of two profiles": (
        [
            *(start(at, f"u{at}", "g1", "server") for at in (1, 3, 5)),
            *(start(at, f"u{at}", "g2") for at in (2, 4)),
            *(start(at, f"u{at}", "g3", profile="other") for at in (6, 7)),
        ],
        ["g1"],
    ),
    "one person's broken home, on each node": (
        [WORKS, *(start(at, "ada", node, "server") for node in ("g1", "g2") for at in (1, 2, 3))],
        [],
    ),
    "the same, and one start of somebody else that failed for a profile that works nowhere": (
        [WORKS, *(start(at, "ada", "g1", "server") for at in (1, 2, 3)), start(4, "ben", "g1", "module", "new")],
        [],
    ),
}


@pytest.mark.parametrize(("records", "nodes"), ROWS.values(), ids=ROWS)
def test_a_node_is_at_fault_where_the_starts_of_several_people_failed_in_a_row(
    records: list[SessionRecord], nodes: list[str]
) -> None:
    """Until one of them succeeds, and unless the profile or its people are."""
    assert [failing.node for failing in failing_nodes(records)] == nodes


def test_before_a_node_is_drained_its_profiles_are_looked_at_unless_they_have_worked_since() -> None:
    """One that was changed fails on the node alone that Slurm fills first."""
    since = start(2, "eve", "g9")

    assert [node.doubt for records in ([WORKS, *THREE], [since, *THREE]) for node in failing_nodes(records)] == [
        "No server of these profiles has started since: if they were changed, it may be the profiles.",
        "",
    ]


def test_a_profile_of_which_no_server_has_ever_started_is_known() -> None:
    """By cluster; what its users did wrong says nothing of it."""
    records = [
        WORKS,
        *THREE,
        start(4, "ada", "g1", "module", "new"),
        start(5, "ada", "g1", "home_full", "untried"),
        replace(start(6, "ada", "g1", "module"), cluster="cedar"),
    ]

    assert never_started(records) == {("", "new"), ("cedar", "gpu")}


def test_a_node_of_that_name_on_another_cluster_has_nothing_to_do_with_it() -> None:
    """Nor has a start of the profile that succeeded there: each cluster has its groups, its nodes and its commands."""
    elsewhere = [replace(record, session=f"{record.session} on cedar", cluster="cedar") for record in THREE]
    both = [replace(record, cluster="juniper") for record in (WORKS, *THREE)] + elsewhere
    commands = {"juniper": "SLURM_CONF=/etc/slurm-juniper/slurm.conf {}", "cedar": "ssh cedar {}"}

    assert [(node.cluster, node.node, node.drain) for node in failing_nodes(both, commands)] == [
        (
            *("juniper", "g1"),
            "SLURM_CONF=/etc/slurm-juniper/slurm.conf scontrol update NodeName=g1 State=DRAIN "
            "Reason='\"gpuspawner: the last 3 starts failed\"'",
        )
    ]
    ended = [replace(record, cause=Cause(Kind.START_FAILED, "job_node_failed")) for record in (THREE[0], elsewhere[0])]
    assert [(group.cluster, group.nodes, group.explanation.fix) for group in failures_of(ended, commands)] == [
        ("", {"g1": 1}, "`scontrol show node g1`, and slurmctld's log."),
        ("cedar", {"g1": 1}, "`ssh cedar scontrol show node g1`, and slurmctld's log."),
    ]


def test_a_node_is_drained_by_a_command() -> None:
    """It says why, for whoever runs sinfo -R, and how the node is used again."""
    (failing,) = failing_nodes([WORKS, *THREE, start(4, "u4", "g1", "python")])

    assert (failing.people, failing.drain, failing.resume, failing.exclude) == (
        ("u1", "u2", "u3", "u4"),
        'scontrol update NodeName=g1 State=DRAIN Reason="gpuspawner: the last 4 starts failed"',
        "scontrol update NodeName=g1 State=RESUME",
        'slurm: {extra: ["--exclude=g1"]}',
    )


def test_a_command_is_typed_for_the_cluster_that_it_is_about() -> None:
    """By its login node without the hub's own account there, by its name in slurmdbd, or by its slurm.conf."""
    clusters = {**CLUSTERS, "oak": {"req_cluster": "oak"}, "ash": {"slurm_bin_dir": "/opt/ash/bin"}}
    clusters["cedar"] = {**CEDAR, "query_prefix": "ssh -p 2222 cedar sudo -n -u slurm"}

    assert slurm_commands(spawner_of(clusters)) == {
        "juniper": "SLURM_CONF=/etc/juniper/slurm.conf {}",
        "cedar": "ssh -p 2222 cedar {}",
        "oak": "{} -M oak",
        "ash": "/opt/ash/bin/{}",
    }
    assert slurm_commands(spawner_of()) == {}
