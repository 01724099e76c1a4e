"""Why nodes are out of service, in one clause for all pages and commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.slurm.job import Job, Phase, job_words
from jupyterhub_gpuspawner.slurm.reason import OutOfService, out_of_service
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition
from jupyterhub_gpuspawner.units import expand_nodelist, fold_nodelist

MAINTAINED = "maint, ecc.errors=3 [root@1795905516]"
SINCE = "since 28 Nov 2026, 22:38 UTC"


@pytest.mark.parametrize(
    ("nodes", "clause"),
    [
        ([], ""),
        ([("g1", "")], "g1 is out of service"),
        ([("g1", "hardware: PSU")], "g1 (hardware: PSU) is out of service"),
        ([("g1", "old"), ("d1", "old"), ("g2", "old")], "g[1-2] and d1 (old) are out of service"),
        ([("g1", MAINTAINED)], f"g1 (maint, ecc.errors=3, {SINCE}, by root) is out of service"),
        (
            [("g1", MAINTAINED), ("d1", "Not responding [slurm@1795905516]"), ("g2", MAINTAINED), ("u1", "")],
            f"g[1-2] (maint, ecc.errors=3, {SINCE}, by root), d1 (it does not respond, {SINCE}, by slurm) and u1 are "
            "out of service",
        ),
        (
            [(f"n{at:02}", f"case {at // 2}") for at in range(12)],
            "n[00-01] (case 0), n[02-03] (case 1), n[04-05] (case 2) and 6 more are out of service",
        ),
    ],
)
@pytest.mark.usefixtures("utc")
def test_nodes_out_of_service_are_one_clause(nodes: list[tuple[str, str]], clause: str) -> None:
    """Those with the same reason together, as a host list; why, since when and by whom."""
    assert out_of_service(nodes) == clause


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,4}[a-z]?[0-9]{0,3}", fullmatch=True)


@given(st.lists(NAMES, unique=True))
def test_a_folded_host_list_names_the_same_nodes(names: list[str]) -> None:
    """Also those with leading zeros, and with none."""
    assert sorted(expand_nodelist(",".join(fold_nodelist(names)))) == sorted(names)


OUT = f"g1 (maint, ecc.errors=3, {SINCE}, by root) and g3 (it does not respond) are out of service"
DRAINED = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


def node(name: str, *states: str, reason: str = "") -> NodeState:
    """A node in these states."""
    return NodeState(name, states=frozenset(states), cpus=4, reason=reason)


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (node("g1", "IDLE", "DRAIN", reason="maint"), "maint"),
        (node("g1", "IDLE", "NOT_RESPONDING"), "it does not respond"),
        (node("c1", "IDLE", "CLOUD", "POWERING_DOWN"), "powering down"),
        (node("c1", "IDLE", "CLOUD", "POWER_DOWN", "POWERED_DOWN"), "powering down"),
        (node("g1", "DOWN", "REBOOT_ISSUED", "NOT_RESPONDING", reason="Kernel"), "Kernel"),
        (node("g1", "IDLE", "MAINTENANCE", "RESERVED"), "in maintenance"),
        (node("g1", "IDLE", "REBOOT_ISSUED"), "rebooting"),
        (node("g1", "DOWN"), ""),
        (node("f1", "FUTURE"), ""),
    ],
)
def test_a_node_without_a_reason_is_out_of_service_for_its_state(out: NodeState, why: str) -> None:
    """Cloud nodes are powered down by Slurm itself, which gives no reason for it."""
    assert not out.usable
    assert out.why_out == why


SNAPSHOT = ClusterSnapshot(
    nodes=(
        node("g1", "IDLE", "DRAIN", reason=MAINTAINED),
        node("g2", "MIXED"),
        node("g3", "DOWN", "NOT_RESPONDING"),
    ),
    partitions=(
        Partition("out", nodes=("g1", "g3")),
        Partition("some", nodes=("g1", "g2", "g3")),
        Partition("well", nodes=("g2",)),
        Partition("cloud", nodes=("g1", "g3", "c1")),  # Slurm does not show c1
    ),
)


@pytest.mark.parametrize(
    ("reason", "partition", "out"),
    [
        (DRAINED, "out", OutOfService(OUT, all=True)),
        (DRAINED, "some", OutOfService(OUT)),
        (DRAINED, "out,some", OutOfService(OUT)),
        (DRAINED, "cloud", OutOfService(OUT)),
        (DRAINED, "well", OutOfService()),
        (DRAINED, "none", OutOfService()),
        ("ReqNodeNotAvail, UnavailableNodes:g[1-2]", "some", OutOfService(OUT)),
        ("ReqNodeNotAvail, May be reserved for other job", "out", OutOfService(OUT, all=True)),
        ("Priority", "out", OutOfService(OUT, all=True)),
        ("Resources", "out", OutOfService(OUT, all=True)),
        ("Priority", "some", OutOfService()),
        ("JobHeldUser", "out", OutOfService()),
        ("Dependency", "out", OutOfService()),
    ],
)
@pytest.mark.usefixtures("utc")
def test_a_job_waits_for_nodes_where_all_are_out_of_service_or_slurm_says_so(
    reason: str, partition: str, out: OutOfService
) -> None:
    """Also one behind others in the line; not one that waits for something else."""
    job = Job("7", Phase.QUEUED, "PENDING", reason, partition=partition)
    found = SNAPSHOT.out_of_service(job)
    plain, words = job_words(job), job_words(job, out=found)

    assert found == out
    assert words.advice == plain.advice
    assert words.sentence == (
        f"Waiting: {OUT}." if out.all else f"{plain.sentence} {OUT}." if out.clause else plain.sentence
    )
    assert SNAPSHOT.out_of_service(Job("7", Phase.RUNNING, "RUNNING", partition=partition)) == OutOfService()
