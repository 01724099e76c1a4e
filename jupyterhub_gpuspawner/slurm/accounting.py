"""Slurm's accounting: associations and QOS, with the limits that they set for jobs, and their readers. Pure.

Source: sacctmgr(1), "SPECIFICATIONS FOR ASSOCIATIONS" and "SPECIFICATIONS FOR QOS"; Slurm's resource_limits.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.text import present, read, words
from jupyterhub_gpuspawner.units import parse_memory, parse_walltime

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


# ``sacctmgr show assoc``, ``show qos`` and ``show user``, and ``sshare``: accounting.
#
# The commands run with ``-n -P``: one record a line, fields divided by ``|`` in the order in which they were asked
# for.

_LIMITS = ("GrpTRES", "GrpTRESMins", "GrpJobs", "GrpSubmitJobs", "MaxTRES", "MaxWall")
ASSOCIATION = ("Account", "ParentName", "User", "Partition", "QOS", "DefaultQOS", *_LIMITS, "MaxJobs", "MaxSubmitJobs")
"""Fields of ``sacctmgr show assoc``."""
QOS = (
    "Name",
    "Flags",
    *_LIMITS,
    "MaxTRESPerUser",
    "MaxJobsPerUser",
    "MaxSubmitJobsPerUser",
    "MaxTRESPerAccount",
    "MaxJobsPerAccount",
    "MaxSubmitJobsPerAccount",
)
"""Fields of ``sacctmgr show qos``."""
DEFAULT_ACCOUNT = ("User", "DefaultAccount")
"""Fields of ``sacctmgr show user``."""
USAGE = ("Account", "User", "GrpTRESRaw")
"""Fields of ``sshare``."""


def parse_associations(text: str) -> tuple[Association, ...]:
    """The associations in an answer of ``sacctmgr show assoc``; raises SlurmOutputError."""
    return tuple(
        Association(
            account=record["Account"],
            user=record["User"].lower(),
            parent=record["ParentName"] if not record["User"] else "",
            partition=record["Partition"],
            qos=words(record["QOS"]),
            default_qos=record["DefaultQOS"],
            limits=_limits(record),
            user_jobs=_number(record, "MaxJobs"),
            user_submitted=_number(record, "MaxSubmitJobs"),
        )
        for record in _records(text, ASSOCIATION)
    )


def parse_qos(text: str) -> tuple[Qos, ...]:
    """The QOS in an answer of ``sacctmgr show qos``; raises SlurmOutputError."""
    return tuple(
        Qos(
            name=record["Name"],
            flags=frozenset(words(record["Flags"])),
            limits=_limits(record),
            user_tres=_tres(record, "MaxTRESPerUser"),
            user_jobs=_number(record, "MaxJobsPerUser"),
            user_submitted=_number(record, "MaxSubmitJobsPerUser"),
            account_tres=_tres(record, "MaxTRESPerAccount"),
            account_jobs=_number(record, "MaxJobsPerAccount"),
            account_submitted=_number(record, "MaxSubmitJobsPerAccount"),
        )
        for record in _records(text, QOS)
    )


def parse_default_accounts(text: str) -> dict[str, str]:
    """Each user's default account in an answer of ``sacctmgr show user``; raises SlurmOutputError."""
    return {
        record["User"].lower(): record["DefaultAccount"]
        for record in _records(text, DEFAULT_ACCOUNT)
        if record["DefaultAccount"]
    }


def parse_usage(text: str) -> dict[str, Mapping[str, int]]:
    """The resource minutes that accounts have used, in an answer of ``sshare``; raises SlurmOutputError."""
    return {record["Account"]: _tres(record, "GrpTRESRaw") for record in _records(text, USAGE) if not record["User"]}


def _records(text: str, names: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        if not line.strip():
            continue
        values = [present(value) for value in line.split("|")]  # sshare indents accounts
        if len(values) != len(names):
            raise SlurmOutputError(
                f"Slurm's accounting gave {len(values)} fields where {len(names)} were asked for.", raw=line
            )
        yield dict(zip(names, values, strict=True))


def _limits(record: Mapping[str, str]) -> Limits:
    wall = record["MaxWall"]
    return Limits(
        group_tres=_tres(record, "GrpTRES"),
        group_minutes=_tres(record, "GrpTRESMins"),
        group_jobs=_number(record, "GrpJobs"),
        group_submitted=_number(record, "GrpSubmitJobs"),
        job_tres=_tres(record, "MaxTRES"),
        longest=read(parse_walltime, "MaxWall", wall) if wall else None,
    )


def _number(record: Mapping[str, str], key: str) -> int | None:
    return read(int, key, record[key]) if record[key] else None


def _tres(record: Mapping[str, str], key: str) -> dict[str, int]:
    """``cpu=40,mem=100000M,gres/gpu:k80=3``; memory in MiB."""
    amounts = {}
    for word in words(record[key]):
        name, _, value = word.partition("=")
        amounts[name] = read(parse_memory if name == "mem" else int, key, value)
    return amounts
