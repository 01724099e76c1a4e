"""Which limits of partitions rule a job out for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.availability.model.limits import Fault, FaultKind, fault_of
from jupyterhub_gpuspawner.slurm.snapshot import SlurmConfig
from tests.snapshots import NOW, cluster, node
from tests.standins.resources import resolved

HOUR = 3600


@pytest.mark.parametrize(
    ("lists", "resources", "fault"),
    [
        ({"allow_qos": ("GPU",)}, {"qos": "gpu"}, None),
        ({"allow_qos": ("gpu",)}, {"qos": "GPU"}, None),
        ({"allow_accounts": ("ML-Lab",)}, {"account": "ml-lab"}, None),
        (
            {"deny_qos": ("GPU",)},
            {"qos": "gpu"},
            Fault("qos", "partition gpu does not allow QOS gpu", FaultKind.FORBIDDEN),
        ),
        (
            {"deny_accounts": ("ML-Lab",)},
            {"account": "ml-lab"},
            Fault("account", "partition gpu does not allow account ml-lab", FaultKind.FORBIDDEN),
        ),
    ],
)
def test_a_partition_lists_accounts_and_qos_without_regard_to_case(
    lists: dict[str, Any], resources: dict[str, Any], fault: Fault | None
) -> None:
    """Slurm's database has them in lower case, and scontrol prints the lists as slurm.conf spells them."""
    assert fault_of(resolved(cpus=1, **resources), cluster(node("n1"), **lists), now=NOW) == fault


@pytest.mark.parametrize(
    ("short", "resources", "fault"),
    [
        ({"max_time": HOUR}, {"time": 8 * HOUR}, Fault("time", "8 h is more than the limit of 1 h in partition short")),
        ({"max_nodes": 1}, {"nodes": 2}, Fault("nodes", "2 nodes are more than the limit of 1 in partition short")),
        ({"min_nodes": 2}, {}, Fault("nodes", "1 node is fewer than the 2 required in partition short")),
        (
            {"max_cpus_per_node": 4},
            {"cpus": 8},
            Fault("cpus", "8 cores are more than the limit of 4 in partition short"),
        ),
        (
            {"max_memory_per_node_mib": 1024},
            {"memory": 2048},
            Fault("memory", "2 GiB of memory is more than the limit of 1 GiB in partition short"),
        ),
        (
            {"needs_reservation": True},
            {},
            Fault("reservation", "partition short requires a reservation", FaultKind.NEEDED),
        ),
        (
            {"deny_accounts": ("lab",)},
            {"account": "lab"},
            Fault("account", "partition short does not allow account lab", FaultKind.FORBIDDEN),
        ),
        ({"state": "DRAIN", "max_time": HOUR}, {"time": 8 * HOUR}, None),
        ({"nodes": ()}, {}, None),
        ({"max_time": HOUR, "unread": ("MaxNodes",)}, {"time": 8 * HOUR}, None),
    ],
)
@pytest.mark.parametrize("partitions", ["short,gpu", "gpu,short"])
def test_slurm_may_refuse_a_job_for_the_limits_of_one_of_its_partitions(
    partitions: str, short: dict[str, Any], resources: dict[str, Any], fault: Fault | None
) -> None:
    """With EnforcePartLimits=ALL slurmctld 22.05 refuses it, but not for a closed partition or its nodes."""
    snapshot = cluster(node("n1"), node("n2"))
    limited = replace(snapshot.partitions[0], **{"name": "short", "default": False, **short})
    snapshot = replace(snapshot, partitions=(*snapshot.partitions, limited))
    job = resolved(partitions, **{"cpus": 1, "time": 600, **resources})
    enforced = replace(snapshot, config=SlurmConfig(enforces_limits_of_all=True))
    assert [fault_of(job, state, now=NOW) for state in (snapshot, enforced)] == [None, fault]
