"""Reads the limits of accounting that some users' jobs come under, and the hub's rights: sacctmgr(1) and sshare(1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.jobs.accounting import Accounting, Association, Limits, Qos
from jupyterhub_gpuspawner.slurm.commands import good
from jupyterhub_gpuspawner.slurm.parse.records import present, read, words
from jupyterhub_gpuspawner.units import parse_memory, parse_walltime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.slurm.commands import Installation
    from jupyterhub_gpuspawner.slurm.parse.scontrol import SlurmConfig


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
            account=each["Account"],
            user=each["User"].lower(),
            parent=each["ParentName"] if not each["User"] else "",
            partition=each["Partition"],
            qos=words(each["QOS"]),
            default_qos=each["DefaultQOS"],
            limits=_limits(each),
            user_jobs=_number(each, "MaxJobs"),
            user_submitted=_number(each, "MaxSubmitJobs"),
        )
        for each in _records(text, ASSOCIATION)
    )


def parse_qos(text: str) -> tuple[Qos, ...]:
    """The QOS in an answer of ``sacctmgr show qos``; raises SlurmOutputError."""
    return tuple(
        Qos(
            name=each["Name"],
            flags=frozenset(words(each["Flags"])),
            limits=_limits(each),
            user_tres=_tres(each, "MaxTRESPerUser"),
            user_jobs=_number(each, "MaxJobsPerUser"),
            user_submitted=_number(each, "MaxSubmitJobsPerUser"),
            account_tres=_tres(each, "MaxTRESPerAccount"),
            account_jobs=_number(each, "MaxJobsPerAccount"),
            account_submitted=_number(each, "MaxSubmitJobsPerAccount"),
        )
        for each in _records(text, QOS)
    )


def parse_default_accounts(text: str) -> dict[str, str]:
    """Each user's default account in an answer of ``sacctmgr show user``; raises SlurmOutputError."""
    return {
        each["User"].lower(): each["DefaultAccount"]
        for each in _records(text, DEFAULT_ACCOUNT)
        if each["DefaultAccount"]
    }


def parse_usage(text: str) -> dict[str, Mapping[str, int]]:
    """The resource minutes that accounts have used, in an answer of ``sshare``; raises SlurmOutputError."""
    return {each["Account"]: _tres(each, "GrpTRESRaw") for each in _records(text, USAGE) if not each["User"]}


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
    found = {}
    for word in words(record[key]):
        name, _, value = word.partition("=")
        found[name] = read(parse_memory if name == "mem" else int, key, value)
    return found


_AT_ONCE = 500
"""Users in one command's argument, of which Linux allows 128 KiB."""


async def read_accounting(slurm: Installation, config: SlurmConfig, users: Sequence[str]) -> Accounting:
    """What limits the jobs of these users.

    Four commands for up to five hundred users, one more where an account's minutes are limited. slurmdbd answers
    them; usage comes from slurmctld. Raises SlurmUnavailable and SlurmOutputError.
    """
    cluster = f"cluster={config.cluster_name}"
    shown = await _sacctmgr(slurm, "assoc", ASSOCIATION, cluster, "user=")
    accounts = {each.account: each for each in parse_associations(shown) if not each.user}
    qos = {each.name: each for each in parse_qos(await _sacctmgr(slurm, "qos", QOS))}
    found: list[Association] = []
    defaults: dict[str, str] = {}
    for at in range(0, len(users), _AT_ONCE):
        names = ",".join(users[at : at + _AT_ONCE])
        found += parse_associations(await _sacctmgr(slurm, "assoc", ASSOCIATION, cluster, f"user={names}"))
        defaults |= parse_default_accounts(await _sacctmgr(slurm, "user", DEFAULT_ACCOUNT, f"name={names}"))
    known = Accounting(accounts, tuple(found), qos, defaults, enforced=config.accounting_enforced)
    return replace(known, used_minutes=await _used(slurm, known))


async def _used(slurm: Installation, known: Accounting) -> Mapping[str, Mapping[str, int]]:
    concerned = {above.account for each in known.users for above in known.above(each.account)}
    limited = sorted(name for name in concerned if known.accounts[name].limits.group_minutes)
    if not limited:
        return {}
    answer = await slurm.run("sshare", "-n", "-P", "-A", ",".join(limited), "-o", ",".join(USAGE))
    return parse_usage(good("sshare", answer))


async def _sacctmgr(slurm: Installation, what: str, fields: Sequence[str], *conditions: str) -> str:
    where = ["where", *conditions] if conditions else []
    answer = await slurm.run("sacctmgr", "-n", "-P", "show", what, *where, f"format={','.join(fields)}")
    return good("sacctmgr", answer)
