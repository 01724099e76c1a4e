"""Whether Slurm responds, by all that the hub asks it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.site.connection import Connection
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

LOOKED = 1000.0
"""When the hub last looked at the cluster, in seconds since the epoch."""
SNAPSHOT = ClusterSnapshot(taken_at=LOOKED)
KNOWN: dict[str, tuple[bool, ClusterSnapshot | None, float | None, bool]] = {
    "nothing asked yet": (False, None, None, False),
    "all answered": (False, SNAPSHOT, None, False),
    "the cluster's view has no answer": (True, SNAPSHOT, None, True),
    "the jobs have none, since the cluster was looked at": (False, SNAPSHOT, LOOKED + 5, True),
    "the jobs had none, and the cluster was looked at since": (False, SNAPSHOT, LOOKED - 5, False),
    "the jobs have none, and the cluster was never looked at": (False, None, LOOKED, True),
}


@pytest.mark.parametrize(("silent", "latest", "since", "told"), KNOWN.values(), ids=KNOWN.keys())
def test_pages_say_the_same_whoever_asked(
    silent: bool, latest: ClusterSnapshot | None, since: float | None, told: bool
) -> None:
    """The later of the two counts: an answer about the cluster ends what is told of an earlier silence."""
    unused: Any = None
    watcher: Any = SimpleNamespace(unanswered_since=since)
    cluster: Any = SimpleNamespace(silent=silent, latest=latest)

    known = Connection(unused, watcher, cluster, allocations=unused, operator=unused, shows_jobs=unused)
    assert known.silent is told
