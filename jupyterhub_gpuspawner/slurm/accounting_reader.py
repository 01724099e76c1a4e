"""Reads the limits of accounting that some users' jobs come under, and the hub's rights: sacctmgr(1) and sshare(1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.accounting import Accounting, Association, Limits, Qos
from jupyterhub_gpuspawner.slurm.commands import Installation, good
from jupyterhub_gpuspawner.slurm.scontrol import SlurmConfig
from jupyterhub_gpuspawner.slurm.text import present, read, words
from jupyterhub_gpuspawner.units import parse_memory, parse_walltime

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


_BATCH_SIZE = 500
"""Users in one command's argument, of which Linux allows 128 KiB."""


async def read_accounting(slurm: Installation, config: SlurmConfig, users: Sequence[str]) -> Accounting:
    """What limits the jobs of these users.

    Four commands for up to five hundred users, one more where an account's minutes are limited. slurmdbd answers
    them; usage comes from slurmctld. Raises SlurmUnavailable and SlurmOutputError.
    """
    cluster = f"cluster={config.cluster_name}"
    shown = await _sacctmgr(slurm, "assoc", ASSOCIATION, cluster, "user=")
    accounts = {association.account: association for association in parse_associations(shown) if not association.user}
    qos = {qos.name: qos for qos in parse_qos(await _sacctmgr(slurm, "qos", QOS))}
    associations: list[Association] = []
    defaults: dict[str, str] = {}
    for at in range(0, len(users), _BATCH_SIZE):
        names = ",".join(users[at : at + _BATCH_SIZE])
        associations += parse_associations(await _sacctmgr(slurm, "assoc", ASSOCIATION, cluster, f"user={names}"))
        defaults |= parse_default_accounts(await _sacctmgr(slurm, "user", DEFAULT_ACCOUNT, f"name={names}"))
    accounting = Accounting(accounts, tuple(associations), qos, defaults, enforced=config.accounting_enforced)
    return replace(accounting, used_minutes=await _used(slurm, accounting))


async def _used(slurm: Installation, accounting: Accounting) -> Mapping[str, Mapping[str, int]]:
    concerned = {above.account for user in accounting.users for above in accounting.above(user.account)}
    limited = sorted(name for name in concerned if accounting.accounts[name].limits.group_minutes)
    if not limited:
        return {}
    answer = await slurm.run("sshare", "-n", "-P", "-A", ",".join(limited), "-o", ",".join(USAGE))
    return parse_usage(good("sshare", answer))


async def _sacctmgr(slurm: Installation, what: str, fields: Sequence[str], *conditions: str) -> str:
    where = ["where", *conditions] if conditions else []
    answer = await slurm.run("sacctmgr", "-n", "-P", "show", what, *where, f"format={','.join(fields)}")
    return good("sacctmgr", answer)
