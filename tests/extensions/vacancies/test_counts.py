"""What everybody may know of the GPUs of a cluster."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.vacancies.counts import GPUCount, count_gpus
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, SlurmConfig
from tests.snapshots import NOW, node

AT = "2027-01-15T08:00:00+00:00"
NODES = (
    node("g1", "gpu:k80:4", "gpu:k80:3(IDX:0-2)"),
    node("g2", "gpu:k80:4", "gpu:k80:1(IDX:0)", states=frozenset({"IDLE", "DRAIN"}), reason="fan"),
    node("m1", "gpu:a100:2,gpu:1g.10gb:7", "gpu:1g.10gb:2(IDX:2-3)"),
    node("x1", "gpu:2"),
    node("c1"),
)


def test_gpus_are_counted_by_kind() -> None:
    """Free, in use, and on nodes that are out of service; a GPU that is in use there is in use."""
    assert count_gpus("cedar", ClusterSnapshot(nodes=NODES, taken_at=NOW)) == (
        GPUCount("cedar", "A100", 2, 0, 0, AT),
        GPUCount("cedar", "A100 slice, 10 GB", 5, 2, 0, AT),
        GPUCount("cedar", "GPU", 2, 0, 0, AT),
        GPUCount("cedar", "K80, 12 GB", 1, 4, 3, AT),
    )


@pytest.mark.parametrize(
    ("private", "is_shown"),
    [({"jobs"}, False), ({"nodes", "cloud"}, False), ({"users"}, False), ({"cloud"}, True), (set(), True)],
)
def test_what_slurm_keeps_private_is_not_shown(private: set[str], is_shown: bool) -> None:
    """Whatever it is: ``cloud`` alone shows more."""
    snapshot = ClusterSnapshot(nodes=NODES, config=SlurmConfig(private_data=frozenset(private)))
    assert (count_gpus("", snapshot) is not None) is is_shown
