"""The groups of a job's account, as far as partitions and reservations allow groups."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.tasks import in_name_thread

_GROUPS_AGE = 60.0
"""Seconds for which memberships in groups are cached."""


async def allowed_groups(snapshot: ClusterSnapshot | None, owner: str) -> Mapping[str, bool]:
    """Return whether the account is in each of the groups that partitions (AllowGroups) and reservations allow.

    An account or group that the hub's machine does not know, such as one that exists only on the cluster, is left out.
    Slurm lets root use every partition. The account database is read in a thread, and answers are cached for a minute.
    """
    names = tuple(sorted({name.lstrip("-") for lists in _groups_in(snapshot) for name in lists})) if snapshot else ()
    if not names or not owner:
        return {}
    return await in_name_thread(_memberships, owner, names, int(time.monotonic() // _GROUPS_AGE))


def _groups_in(snapshot: ClusterSnapshot) -> Iterator[tuple[str, ...]]:
    yield from (partition.allow_groups for partition in snapshot.partitions)
    yield from (reservation.groups for reservation in snapshot.reservations)


@lru_cache(maxsize=1024)
def _memberships(owner: str, names: tuple[str, ...], _minute: int) -> Mapping[str, bool]:
    try:
        account = pwd.getpwnam(owner)
        numbers = set(os.getgrouplist(owner, account.pw_gid))
    except (KeyError, OSError):
        return {}
    if account.pw_uid == 0:
        return dict.fromkeys(names, True)
    memberships: dict[str, bool] = {}
    for name in names:
        with suppress(KeyError):
            memberships[name] = grp.getgrnam(name).gr_gid in numbers
    return memberships
