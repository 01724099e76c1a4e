"""The limits of a site's accounting, and what is used of them, as slurmctld and slurmdbd report them.

``scontrol show assoc_mgr`` has the limits of every association and QOS, with what is used. It prints neither the QOS
that an association has, nor the flags of a QOS, nor what a QOS allows each user and account that has not used it yet:
those are asked of sacctmgr. Written against the answers of Slurm 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmOutputError
from jupyterhub_gpuspawner.slurm.accounting import Limits, limits_of, qos_of_job, rows, sacctmgr_show
from jupyterhub_gpuspawner.slurm.commands import OUTPUT_LIMIT, Installation
from jupyterhub_gpuspawner.slurm.snapshot import SlurmConfig


class Budget(NamedTuple):
    """What an association, a QOS, or a user or an account in a QOS may use, and does use now."""

    limits: Limits = {}  # noqa: RUF012
    used: Limits = {}  # noqa: RUF012


class Association(NamedTuple):
    """Who is charged for a job."""

    account: str
    user: str = ""
    """Empty for that of the account itself."""
    partition: str = ""
    """The only partition that it is for; empty: every one for which the user has no other in the account."""


@dataclass(frozen=True)
class QOS:
    """A quality of service."""

    own: Budget = field(default_factory=Budget)
    """Of all its jobs, and of each (``MaxTRESPJ``)."""
    users: Mapping[str, Budget] = field(default_factory=dict)
    """What is used of it by each user."""
    accounts: Mapping[str, Budget] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    priority: float = 0.0


class UsersQOS(NamedTuple):
    """The QOS of an association."""

    allowed: tuple[str, ...] = ()
    default: str = ""


@dataclass(frozen=True)
class Accounting:
    """What a site's accounting limits."""

    associations: Mapping[Association, Budget] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    """The account above each account; none for root."""
    qos: Mapping[str, QOS] = field(default_factory=dict)
    default_accounts: Mapping[str, str] = field(default_factory=dict)
    """By user."""
    qos_of: Mapping[Association, UsersQOS] = field(default_factory=dict)
    shares: Mapping[Association, float] = field(default_factory=dict)
    """The fair-share factor of each user's association, from 0 to 1."""
    safe: bool = False
    """A job starts only if its minutes are left for its whole time limit (AccountingStorageEnforce=safe)."""

    def association(self, user: str, account: str, partition: str) -> Association | None:
        """Who is charged for a job; None where Slurm shows no such association."""
        named = account or self.default_accounts.get(user, "")
        both = (Association(named, user, partition), Association(named, user))
        return next((one for one in both if one in self.associations), None)

    def qos_name(self, named: str, association: Association) -> str:
        """The QOS of a job of an association that names this one, or none."""
        own, of_root = (self.qos_of.get(one, UsersQOS()) for one in (association, Association("root")))
        return named.lower() or qos_of_job(own.default, own.allowed, of_root.default)

    def chain(self, association: Association) -> Iterator[Association]:
        """The association, that of its account, and those above."""
        yield association
        account, passed = association.account, set[str]()
        while account and account not in passed:
            passed.add(account)
            yield Association(account)
            account = self.parents.get(account, "")


async def read_accounting(slurm: Installation, config: SlurmConfig) -> Accounting | GPUSpawnerError | None:
    """What is limited: three commands; None where nothing is, and why it is not known."""
    if not config.enforces_limits:
        return None
    cluster = ("where", f"cluster={config.cluster_name}")
    try:
        answer, qos, associations = await asyncio.gather(
            slurm.run("scontrol", "--local", "show", "assoc_mgr", "flags=assoc,qos,users", limit=OUTPUT_LIMIT),
            sacctmgr_show(slurm, "qos", _QOS_COLUMNS),
            sacctmgr_show(slurm, "assoc", _ASSOC_COLUMNS, *cluster),
        )
        safe = "safe" in config.accounting_enforced
        return await asyncio.to_thread(parse_accounting, answer.output(), qos, associations, safe=safe)
    except GPUSpawnerError as error:
        return error


def parse_accounting(assoc_mgr: str, qos: str, associations: str, *, safe: bool = False) -> Accounting:
    """The answers of ``scontrol show assoc_mgr`` and of sacctmgr to its two questions; raises SlurmOutputError."""
    known: dict[Association, Budget] = {}
    parents: dict[str, str] = {}
    shares: dict[Association, float] = {}
    names: dict[str, str] = {}
    defaults: dict[str, str] = {}
    by_qos: dict[str, str] = {}
    for kind, head, body in _records(assoc_mgr):
        if kind == "user":
            names[head["uid"] or ""] = head["user"]
            defaults[head["user"]] = "" if head["account"] == "(null)" else head["account"]
        elif kind == "association":
            association = Association(head["account"], head["user"] or "", head["partition"])
            known[association] = _budget(body)
            if (share := _SHARE.search(body)) is not None:
                shares[association] = float(share[1])
            above = _PARENT.search(body)
            if not head["user"] and above is not None:
                parents[head["account"]] = above[1]
        else:
            by_qos[head["qos"]] = body
    if not known and _HEADING not in assoc_mgr:  # PrivateData may hide all of them below it
        raise SlurmOutputError("scontrol show assoc_mgr listed no associations.", raw=assoc_mgr[:2000])
    of_sacctmgr = {row["name"]: row for row in rows(qos, _QOS_COLUMNS)}
    return Accounting(
        associations=known,
        parents=parents,
        qos={name: _qos(body, of_sacctmgr.get(name, {}), names) for name, body in by_qos.items()},
        default_accounts=defaults,
        qos_of=dict(_qos_of(associations)),
        shares=shares,
        safe=safe,
    )


# --- scontrol show assoc_mgr ----------------------------------------------------------------------------------------

_HEADS = {
    "user": re.compile(r"UserName=(?P<user>.*?)(?:\((?P<uid>\d+)\))? DefAccount=(?P<account>.*?) DefWckey=.*"),
    "association": re.compile(
        r"ClusterName=\S+ Account=(?P<account>.*?) UserName=(?P<user>.*?)(?:\((?P<uid>\d+)\))? "
        r"Partition=(?P<partition>\S*) .*"
    ),
    "qos": re.compile(r"QOS=(?P<qos>.*?)(?:\(\d+\))?"),
}
_HEADING = "Association Records"
_PARENT = re.compile(r"\bParentAccount=(.+?)\(\d+\) ")
_SHARE = re.compile(r"\bSharesRaw/Norm/Level/Factor=\S*/([\d.]+)\s")
_PAIR = re.compile(r"(\w+)=(\S*)")
_AMOUNT = re.compile(r"(?:(?P<tres>[A-Za-z][^=,]*)=)?(?P<limit>N|[\d.]+)?(?:\((?P<used>[\d.]+)\))?")


def _records(text: str) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Each record: its kind, what its first line names, and the lines below, which are indented."""
    kind, head, body = "", dict[str, str](), list[str]()
    for line in text.splitlines():
        if line[:1] in ("", " ", "\t"):
            body.append(line)
            continue
        if kind:
            yield kind, head, "\n".join(body)
        kind, body = "", []
        for name, pattern in _HEADS.items():
            if (match := pattern.fullmatch(line)) is not None:
                kind, head = name, match.groupdict()
    if kind:
        yield kind, head, "\n".join(body)


def _budget(text: str) -> Budget:
    """The limits of a record and what is used, of ``GrpTRES=cpu=8(4),gres/gpu=N(2)``; N is none."""
    limits, used = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for key, value in _PAIR.findall(text):
        if key.startswith(("Grp", "Max", "Min")):
            for match in filter(None, map(_AMOUNT.fullmatch, value.split(","))):
                if match["limit"] not in (None, "N"):
                    limits[key, match["tres"] or ""] = float(match["limit"])
                if match["used"] is not None:
                    used[key, match["tres"] or ""] = float(match["used"])
    return Budget(limits, used)


_PRIORITY = re.compile(r"^Priority=(\d+)", re.MULTILINE)
_UID = re.compile(r"(?:.*\()?(\d+)\)?")


def _qos(body: str, row: Mapping[str, str], users: Mapping[str, str]) -> QOS:
    """A QOS of its record, and of sacctmgr's row; ``users``: their names by their numbers.

    What each account and each user has used of it stands below the line ``Account Limits`` and ``User Limits``.
    """
    section = name = ""
    texts: dict[tuple[str, str], str] = {}
    for line in map(str.strip, body.splitlines()):
        if line in ("Account Limits", "User Limits"):
            section, name = line.partition(" ")[0], ""
        elif section and "=" not in line:
            uid = _UID.fullmatch(line) if section == "User" else None
            name = line if uid is None else users.get(uid[1], line)
        else:
            texts[section, name] = f"{texts.get((section, name), '')}{line}\n"
    own, of_all = texts.pop(("", ""), ""), {key: _budget(text) for key, text in texts.items()}
    priority, limits = _PRIORITY.search(own), _budget(own)
    return QOS(
        Budget({**limits.limits, **limits_of(row, _OF_EACH)}, limits.used),
        {name: limits for (section, name), limits in of_all.items() if section == "User"},
        {name: limits for (section, name), limits in of_all.items() if section == "Account"},
        frozenset(filter(None, row.get("flags", "").split(","))),
        float(priority[1]) if priority is not None else 0.0,
    )


# --- sacctmgr -------------------------------------------------------------------------------------------------------

_OF_EACH = {
    "maxjobspu": "MaxJobsPU",
    "maxjobspa": "MaxJobsPA",
    "maxsubmitpu": "MaxSubmitJobsPU",
    "maxsubmitpa": "MaxSubmitJobsPA",
    "maxtrespu": "MaxTRESPU",
    "maxtrespa": "MaxTRESPA",
}
"""scontrol's names of what a QOS allows each user and each account."""
_QOS_COLUMNS = ("name", "flags", *_OF_EACH)
_ASSOC_COLUMNS = ("account", "user", "partition", "qos", "defaultqos")


def _qos_of(text: str) -> Iterator[tuple[Association, UsersQOS]]:
    for row in rows(text, _ASSOC_COLUMNS):
        allowed = tuple(filter(None, row["qos"].split(",")))
        yield Association(row["account"], row["user"], row["partition"]), UsersQOS(allowed, row["defaultqos"])
