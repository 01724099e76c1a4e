"""The groups of a job's account that partitions allow."""

from __future__ import annotations

import grp
import pwd

import pytest

from jupyterhub_gpuspawner.extensions.availability.groups import allowed_groups
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Partition
from tests.name_service import holds_nothing_else

ME = pwd.getpwnam("nobody").pw_name
MINE = grp.getgrgid(pwd.getpwnam(ME).pw_gid).gr_name


def cluster_for(*groups: str) -> ClusterSnapshot:
    """Return a cluster with one partition that allows these groups."""
    return ClusterSnapshot(partitions=(Partition("gpu", allow_groups=groups), Partition("all")))


async def test_an_account_is_in_its_groups_and_in_no_other() -> None:
    """A group or account that the machine does not know is left out: only Slurm can tell."""
    memberships = await allowed_groups(cluster_for(MINE, "root", "no-such-group"), ME)
    assert memberships == {MINE: True, "root": False}
    assert await allowed_groups(cluster_for(MINE), "no-such-account") == {}


async def test_root_may_use_every_partition() -> None:
    """As in Slurm: whatever groups root is in, and also if the group exists only on the cluster."""
    assert await allowed_groups(cluster_for(MINE, "no-such-group"), "root") == {MINE: True, "no-such-group": True}


async def test_nothing_is_asked_if_no_partition_is_restricted() -> None:
    """Nor if the owner of the jobs is unknown, or Slurm has not responded yet."""
    assert await allowed_groups(cluster_for(), ME) == {}
    assert await allowed_groups(cluster_for(MINE), "") == {}
    assert await allowed_groups(None, ME) == {}


async def test_a_name_service_that_hangs_holds_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class looks at the form while SSSD hangs: asyncio's threads still read Slurm's answers and find the proxy."""
    await holds_nothing_else("pwd.getpwnam", lambda: allowed_groups(cluster_for("g"), "ada"), monkeypatch)
