"""What slurmdbd says of all users of a cluster, in three answers of sacctmgr(1) that are parsed here.

One question about all users costs slurmdbd what a question about one does, so nobody is asked about by name.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.slurm.accounting import Limits, limits_of, rows, sacctmgr_show
from jupyterhub_gpuspawner.slurm.accounts import asking_account, has_all_rights
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.snapshot import SlurmConfig

ASSOCIATIONS = ("account", "user", "partition", "qos", "defaultqos", "maxwall", "maxtres")
USERS = ("user", "defaultaccount")
QOS = ("name", "flags", "maxwall", "maxtres")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}", re.ASCII)
"""What can be requested of sbatch as an account, a partition, a QOS or a reservation."""
_HIDING = ("accounts", "users")
"""Words of PrivateData with which Slurm shows an ordinary account its own associations alone."""


def is_name(text: str) -> bool:
    """Whether this can be requested as an account, a partition, a QOS or a reservation."""
    return _NAME.fullmatch(text) is not None


class Association(NamedTuple):
    """What a user may name together."""

    account: str
    partition: str = ""
    """The only partition that it is for; empty: every one for which there is no other with the account."""
    qos: tuple[str, ...] = ()
    """Those of the account where the user has none of their own."""
    default_qos: str = ""
    """Empty where Slurm's own applies."""
    limits: Limits = {}  # noqa: RUF012
    """Of one job; those of the account where the user has none of their own."""


class Qos(NamedTuple):
    """A QOS, as far as it decides what a job may be."""

    flags: frozenset[str] = frozenset()
    """In lower case, such as ``requiresreservation``."""
    limits: Limits = {}  # noqa: RUF012
    """Of one job."""


NO_QOS = Qos()


@dataclass(frozen=True)
class Accounting:
    """The associations of all users of a cluster."""

    associations: Mapping[str, tuple[Association, ...]] = field(default_factory=dict)
    """By user."""
    default_accounts: Mapping[str, str] = field(default_factory=dict)
    """By user."""
    qos: Mapping[str, Qos] = field(default_factory=dict)
    """By name in lower case."""
    root_qos: str = ""
    """The default QOS of root's account; empty where it has none, or it is not known."""
    config: SlurmConfig = field(default_factory=SlurmConfig)
    exists: bool = True
    """False for a cluster without slurmdbd."""
    hidden: bool = False
    """Slurm does not show the hub the associations of others."""
    hides: frozenset[str] = frozenset()
    """What else it does not show the hub: words of PrivateData such as ``reservations``."""
    left_out: int = 0
    """Rows with a name that cannot be requested."""
    taken_at: float = 0.0
    """Seconds since the epoch."""

    @property
    def names_accounts(self) -> bool:
        """Slurm refuses a job in an account that its user does not have."""
        return bool(self.config.accounting_enforced)  # limits, qos, safe and wckeys imply associations

    @property
    def names_qos(self) -> bool:
        """Slurm refuses a job in a QOS that its user does not have."""
        return "qos" in self.config.accounting_enforced


def parse_associations(
    text: str, columns: Sequence[str] = ASSOCIATIONS
) -> tuple[dict[str, tuple[Association, ...]], int]:
    """The associations of each user in ``sacctmgr -n -P show assoc``, and how many rows were left out.

    ``columns`` are those of ``format=``. A row without a user is an account's own. One with a name that cannot be
    requested is left out. Raises SlurmOutputError for a row with another number of fields.
    """
    by_user: dict[str, list[Association]] = {}
    shared: dict[tuple[str, ...], Association] = {}
    left_out = 0
    for row in rows(text, columns):
        user, account, partition = row["user"], row["account"], row.get("partition", "")
        if not user:
            continue
        if not is_name(account) or (partition and not is_name(partition)):
            left_out += 1
            continue
        named = [name for name in row.get("qos", "").split(",") if name]
        qos = tuple(intern(name) for name in named if is_name(name))
        left_out += len(qos) != len(named)
        default = row.get("defaultqos", "")
        key = (account, partition, *qos, default, row.get("maxwall", ""), row.get("maxtres", ""))
        if key not in shared:
            default = default if is_name(default) else ""
            shared[key] = Association(intern(account), intern(partition), qos, default, limits_of(row))
        by_user.setdefault(user, []).append(shared[key])
    return {user: tuple(rows) for user, rows in by_user.items()}, left_out


def parse_default_accounts(text: str) -> dict[str, str]:
    """The default account of each user in ``sacctmgr -n -P show user format=user,defaultaccount``."""
    return {row["user"]: intern(row["defaultaccount"]) for row in rows(text, USERS) if is_name(row["defaultaccount"])}


def parse_qos(text: str) -> dict[str, Qos]:
    """The QOS in ``sacctmgr -n -P show qos format=name,flags,maxwall,maxtres``, by name in lower case."""
    return {
        row["name"].lower(): Qos(frozenset(filter(None, row["flags"].lower().split(","))), limits_of(row))
        for row in rows(text, QOS)
    }


def _root_qos(text: str) -> str:
    of_root = (row for row in rows(text, ASSOCIATIONS) if row["account"] == "root" and not row["user"])
    return next((row["defaultqos"] for row in of_root), "")


async def read_accounting(client: SlurmClient) -> Accounting:
    """The associations of all users of the client's cluster; raises SlurmUnavailable and SlurmOutputError."""
    config, now = await client.config(), time.time()
    all_rights = not config.private_data or await has_all_rights(client.installation, config)
    hides = frozenset() if all_rights else config.private_data
    if not config.accounting:
        return Accounting(exists=False, hides=hides, taken_at=now)

    slurm = client.installation
    associations = await sacctmgr_show(slurm, "assoc", ASSOCIATIONS, "where", f"cluster={config.cluster_name}")
    users, qos = await sacctmgr_show(slurm, "user", USERS), await sacctmgr_show(slurm, "qos", QOS)

    def parse() -> Accounting:
        by_user, left_out = parse_associations(associations)
        return Accounting(
            by_user,
            parse_default_accounts(users),
            parse_qos(qos),
            _root_qos(associations),
            config,
            hides=hides,
            left_out=left_out,
            taken_at=now,
        )

    accounting = await asyncio.to_thread(parse)  # a megabyte takes some 20 ms
    own = (await asking_account(client.installation)).name
    hidden = not hides.isdisjoint(_HIDING)
    if not hidden and accounting.associations.keys() <= {own, "root"}:  # slurmdbd.conf may hide them by itself
        hidden = not await has_all_rights(client.installation, config)
    if not hidden and not accounting.associations:  # Slurm adds root's with the cluster
        raise SlurmUnavailable(
            f"sacctmgr shows no association at all of the cluster {config.cluster_name}, not even root's.",
            hint="Run `sacctmgr show assoc` as the hub's account: something stands in its place, or the cluster is not "
            "registered.",
        )
    if not hidden:
        return accounting
    visible = {user: rows for user, rows in accounting.associations.items() if user == own}
    return replace(accounting, associations=visible, hidden=True)
