"""Which limits of partitions rule a job out for ever."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.cluster.limits import Fault, FaultKind, fault_of
from tests.snapshots import NOW, cluster, node
from tests.standins.resources import resolved


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
