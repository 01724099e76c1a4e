"""Who is in the groups for which partitions are kept, as far as the hub's machine knows."""

from __future__ import annotations

import grp
import pwd

from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot, Partition
from jupyterhub_gpuspawner.hub.site.account import allowed_groups

ME = pwd.getpwnam("nobody").pw_name
MINE = grp.getgrgid(pwd.getpwnam(ME).pw_gid).gr_name


def kept_for(*groups: str) -> ClusterSnapshot:
    """A cluster with one partition for these."""
    return ClusterSnapshot(partitions=(Partition("gpu", allow_groups=groups), Partition("all")))


async def test_an_account_is_in_its_groups_and_in_no_other() -> None:
    """A group or an account that the machine does not know is left out: only Slurm can say."""
    found = await allowed_groups(kept_for(MINE, "root", "no-such-group"), ME)
    assert found == {MINE: True, "root": False}
    assert await allowed_groups(kept_for(MINE), "no-such-account") == {}


async def test_root_is_let_in_everywhere() -> None:
    """As Slurm does, whatever groups it is in, and also where the group is on the cluster alone."""
    assert await allowed_groups(kept_for(MINE, "no-such-group"), "root") == {MINE: True, "no-such-group": True}


async def test_nobody_is_asked_where_no_partition_is_kept_for_anybody() -> None:
    """Nor where the owner of the jobs is not known, or Slurm has not answered yet."""
    assert await allowed_groups(kept_for(), ME) == {}
    assert await allowed_groups(kept_for(MINE), "") == {}
    assert await allowed_groups(None, ME) == {}
