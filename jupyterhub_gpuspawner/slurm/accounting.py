"""Slurm's accounting: associations and QOS, with the limits that they set for jobs. Pure.

Source: sacctmgr(1), "SPECIFICATIONS FOR ASSOCIATIONS" and "SPECIFICATIONS FOR QOS"; Slurm's resource_limits.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

Tres = Mapping[str, int]
"""Trackable resources by Slurm's names: ``cpu``, ``mem`` in MiB, ``node``, ``gres/gpu``, ``gres/gpu:k80``."""


@dataclass(frozen=True)
class Limits:
    """The limits that associations and QOS have in common; None and missing resources are not limited."""

    group_tres: Tres = field(default_factory=dict)
    """GrpTRES: what all its jobs may hold at once."""
    group_minutes: Tres = field(default_factory=dict)
    """GrpTRESMins: what its jobs may use up, ended ones included."""
    group_jobs: int | None = None
    """GrpJobs: how many jobs may run at once."""
    group_submitted: int | None = None
    """GrpSubmitJobs: how many may be pending or running."""
    job_tres: Tres = field(default_factory=dict)
    """MaxTRESPerJob."""
    longest: int | None = None
    """MaxWall, in seconds."""


@dataclass(frozen=True)
class Association:
    """What a user may do with an account, or what an account may do."""

    account: str
    user: str = ""
    """In lower case, as slurmdbd keeps it; empty for the account itself."""
    parent: str = ""
    """The account above it; empty for ``root``, and for users."""
    partition: str = ""
    """The only partition that it is for; empty for all."""
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    limits: Limits = Limits()
    user_jobs: int | None = None
    """MaxJobs, set here or in an account above it."""
    user_submitted: int | None = None
    """MaxSubmitJobs likewise."""


@dataclass(frozen=True)
class Qos:
    """A quality of service."""

    name: str
    flags: frozenset[str] = frozenset()
    limits: Limits = Limits()
    user_tres: Tres = field(default_factory=dict)
    """MaxTRESPerUser."""
    user_jobs: int | None = None
    user_submitted: int | None = None
    account_tres: Tres = field(default_factory=dict)
    """MaxTRESPerAccount."""
    account_jobs: int | None = None
    account_submitted: int | None = None


@dataclass(frozen=True)
class Accounting:
    """The associations and QOS that some users' jobs come under."""

    accounts: Mapping[str, Association] = field(default_factory=dict)
    """The associations of accounts, by name."""
    users: Sequence[Association] = ()
    qos: Mapping[str, Qos] = field(default_factory=dict)
    default_accounts: Mapping[str, str] = field(default_factory=dict)
    """By user in lower case, for those who have one."""
    used_minutes: Mapping[str, Tres] = field(default_factory=dict)
    """Resource minutes used so far, by account; only of accounts that GrpTRESMins limits."""
    enforced: frozenset[str] = frozenset()
    """AccountingStorageEnforce: ``associations``, ``limits``, ``qos``, ``safe``, ..."""

    def association(self, user: str, account: str, partition: str) -> Association | None:
        """The user's association with the account for this partition, or else for all."""
        own = self._of_users.get((user.lower(), account), {})
        return own.get(partition) or own.get("")

    @cached_property
    def _of_users(self) -> Mapping[tuple[str, str], Mapping[str, Association]]:
        """The users' associations by user and account, and then by partition."""
        by_user: dict[tuple[str, str], dict[str, Association]] = {}
        for user in self.users:
            by_user.setdefault((user.user, user.account), {})[user.partition] = user
        return by_user

    def above(self, account: str) -> Iterator[Association]:
        """The account's association, and those of the accounts above it."""
        visited = set[str]()
        while account in self.accounts and account not in visited:
            visited.add(account)
            yield self.accounts[account]
            account = self.accounts[account].parent

    def below(self, account: str) -> frozenset[str]:
        """The account and all accounts under it."""
        return frozenset(
            name for name in self.accounts if any(association.account == account for association in self.above(name))
        ) | {account}
