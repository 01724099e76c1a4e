"""How many people of a course the limits of accounting let in at the same time. Pure.

Slurm considers the partition's QOS, the job's QOS, the user's association and those of the accounts above it. A limit
that a QOS sets replaces the same one of what comes after it; group limits of several accounts all apply. Source:
Slurm's resource_limits.html.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jupyterhub_gpuspawner.slurm.accounting import Accounting, Association, Limits, Qos, Tres
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.words import counted, duration, memory, some

_LICENSES = re.compile(r"(?:--licenses[= ]|-L ?)(?P<list>\S+)")
_NO_QOS_SET = "normal"
"""Slurm's QOS for associations without a default one."""


@dataclass(frozen=True)
class JobSize:
    """What one participant's job counts for, and where it is submitted."""

    partition: str
    tres: Tres
    """What it holds, by Slurm's names."""
    seconds: float
    """Its time limit; may be infinite."""
    account: str = ""
    """Empty: the user's default account."""
    qos: str = ""
    """Empty: the association's default QOS."""
    partition_qos: str = ""


@dataclass(frozen=True)
class Admission:
    """Whom the limits let in."""

    fit: int
    """How many people, in the order of the roster."""
    tight: str = ""
    """The limit that keeps most people out, by Slurm's name; empty where nobody is."""
    sentences: tuple[str, ...] = ()
    """What keeps people out, for an instructor; it names what an admin must change."""


class _Cap(NamedTuple):
    """A limit that several people share."""

    owner: str
    """``account training`` or ``QOS lesson``."""
    limit: str
    """Slurm's name of the limit."""
    what: str
    """The resource; empty where jobs are counted."""
    value: int
    of: str = ""
    """The account whose jobs are counted; empty where others' jobs are not known (QOS)."""


class _Fault(NamedTuple):
    """Why a person's job does not start, whoever else is there."""

    limit: str
    sentence: str
    """With ``{who}`` for the people."""


def admit(names: Sequence[str], size: JobSize, accounting: Accounting, held: Iterable[ClusterJob]) -> Admission:
    """Let people in one after the other, as Slurm starts their jobs.

    ``held`` are the jobs that still run at that time; they count for the limits of their accounts.
    """
    if not accounting.enforced:
        return Admission(len(names))
    others = tuple(held)
    fit, faults, exceeded = 0, defaultdict[_Fault, list[str]](list), Counter[_Cap]()
    used, concerned = Counter[_Cap](), Counter[_Cap]()
    amounts: dict[_Cap, int] = {}
    for name in names:
        association, fault = _association(name, size, accounting)
        caps: list[_Cap] = []
        if association is not None and "limits" in accounting.enforced:
            caps = list(_caps(association, size, accounting))
            fault = fault or next(_faults(association, size, accounting), None)
        if fault is not None:
            faults[fault].append(name)
            continue
        for cap in caps:
            if cap not in amounts:
                amounts[cap] = _amount(cap, size)
                used[cap] = _held(cap, others, accounting)
        concerned.update(caps)
        full = next((cap for cap in caps if used[cap] + amounts[cap] > cap.value), None)
        if full is not None:
            exceeded[full] += 1
            continue
        used.update({cap: amounts[cap] for cap in caps})
        fit += 1
    sentences = [fault.sentence.format(who=some(who)) for fault, who in faults.items()]
    sentences += [_sentence(cap, concerned[cap], _held(cap, others, accounting), amounts[cap]) for cap in exceeded]
    by_limit = Counter({cap.limit: count for cap, count in exceeded.items()})
    by_limit.update({fault.limit: len(who) for fault, who in faults.items()})
    return Admission(fit, by_limit.most_common(1)[0][0] if by_limit else "", tuple(sentences))


def licenses_of(options: Sequence[str]) -> dict[str, int]:
    """How many of each licence options of sbatch ask for."""
    matches = [match for option in options if (match := _LICENSES.match(option)) is not None]
    words = [word for match in matches[-1:] for word in match["list"].split(",")]
    return {
        name: int(count or 1) for name, _, count in (word.partition(":") for word in words) if (count or "1").isdigit()
    }


def admit_licensed(wanted: int, options: Sequence[str], licenses: Mapping[str, int]) -> Admission:
    """How many people the cluster's licences are enough for; ``options`` are further options of sbatch."""
    per_person = licenses_of(options)
    enough = {name: licenses.get(name, 0) // number for name, number in per_person.items() if number}
    tight = min(enough, key=lambda name: enough[name], default="")
    if not tight or enough[tight] >= wanted:
        return Admission(wanted)
    there = f"There are {licenses[tight]} licences {tight}" if tight in licenses else f"There is no licence {tight}"
    return Admission(enough[tight], "licenses", (f"{there} (--licenses): {enough[tight]} of {wanted} people fit.",))


def lowest(one: Admission | None, other: Admission) -> Admission:
    """Both limits together."""
    if one is None:
        return other
    tight = one if one.fit <= other.fit else other
    return Admission(tight.fit, tight.tight, (*one.sentences, *other.sentences))


def _association(name: str, size: JobSize, accounting: Accounting) -> tuple[Association | None, _Fault | None]:
    account = size.account or accounting.default_accounts.get(name.lower(), "")
    if not account:
        return None, _Fault("account", "Without an account in Slurm: {who}. Slurm refuses their jobs.")
    association = accounting.association(name, account, size.partition)
    if association is None:
        return None, _Fault(
            "account", f"Not in Slurm's account {account}: {{who}}. Slurm refuses their jobs until an admin adds them."
        )
    if size.qos and "qos" in accounting.enforced and size.qos not in association.qos:
        return None, _Fault("qos", f"Without access to QOS {size.qos} in account {account}: {{who}}.")
    return association, None


def _qos(association: Association, size: JobSize, accounting: Accounting) -> list[Qos]:
    """The QOS of a job, the one whose limits count first in front."""
    of_job = accounting.qos.get(size.qos or association.default_qos or _NO_QOS_SET)
    of_partition = accounting.qos.get(size.partition_qos)
    both = [name for name in (of_partition, of_job) if name is not None]
    return both[::-1] if of_job is not None and "OverPartQOS" in of_job.flags else both


def _faults(association: Association, size: JobSize, accounting: Accounting) -> Iterator[_Fault]:
    """Limits for one person's job, each where it is set first."""
    qos = _qos(association, size, accounting)
    above = list(accounting.above(association.account))
    owned = [(f"QOS {limit.name}", limit.limits) for limit in qos]
    owned += [(owner, association_limit.limits) for association_limit, owner in _owned(association, above)]
    longest = next(((limit.longest, owner) for owner, limit in owned if limit.longest is not None), None)
    if longest is not None and size.seconds > longest[0]:
        lasts = duration(size.seconds) if size.seconds < 1e9 else "no time limit"
        yield _Fault(
            "MaxWall",
            f"{_capital(longest[1])} limits jobs to {duration(longest[0])} (MaxWall), and servers have {lasts}: "
            "they do not start.",
        )
    per_job = [(owner, limit.job_tres) for owner, limit in owned]
    per_user = [(f"QOS {limit.name}", limit.user_tres) for limit in qos]
    for limit, whose, of in (("MaxTRESPerJob", "each job", per_job), ("MaxTRESPerUser", "each person", per_user)):
        for what, needed in size.tres.items():
            first = next(((owner, tres[what]) for owner, tres in of if what in tres), None)
            if first is not None and needed > first[1]:
                yield _Fault(
                    limit,
                    f"{_capital(first[0])} allows {whose} {_words(what, first[1])} ({limit}), and a server requests "
                    f"{_words(what, needed)}: it does not start.",
                )
    of_account = f"account {association.account}"
    jobs = [("MaxJobsPerUser", f"QOS {limit.name}", limit.user_jobs) for limit in qos]
    jobs.append(("MaxJobs", of_account, association.user_jobs))
    submitted = [("MaxSubmitJobsPerUser", f"QOS {limit.name}", limit.user_submitted) for limit in qos]
    submitted.append(("MaxSubmitJobs", of_account, association.user_submitted))
    for limits in (jobs, submitted):
        limit, owner, value = next((one for one in limits if one[2] is not None), ("", "", None))
        if value == 0:
            yield _Fault(limit, f"{_capital(owner)} allows no jobs ({limit} is 0) for {{who}}.")


def _owned(association: Association, above: Sequence[Association]) -> list[tuple[Association, str]]:
    """The user's association and those above it, with their names."""
    own = f"the association with account {association.account}"
    return [(association, own), *((association, f"account {association.account}") for association in above)]


def _caps(association: Association, size: JobSize, accounting: Accounting) -> Iterator[_Cap]:
    """The limits that the job shares with others. What a QOS sets, the accounts do not limit again."""
    done = set[tuple[str, str]]()
    for qos in _qos(association, size, accounting):
        caps = [*_of_limits(qos.limits, f"QOS {qos.name}", "")]
        owner = f"QOS {qos.name} for account {association.account}"
        caps += [_Cap(owner, "MaxTRESPerAccount", what, value) for what, value in qos.account_tres.items()]
        counts = ("MaxJobsPerAccount", qos.account_jobs), ("MaxSubmitJobsPerAccount", qos.account_submitted)
        caps += [_Cap(owner, limit, "", value) for limit, value in counts if value is not None]
        new = [cap for cap in caps if (cap.limit, cap.what) not in done]
        yield from (cap for cap in new if _amount(cap, size))
        done |= {(cap.limit, cap.what) for cap in new}
    for account in accounting.above(association.account):
        own = f"account {account.account}"
        caps = [*_of_limits(account.limits, own, account.account)]
        caps += _of_minutes(account, accounting)
        yield from (cap for cap in caps if (cap.limit, cap.what) not in done and _amount(cap, size))


def _of_limits(limits: Limits, owner: str, account: str) -> Iterator[_Cap]:
    for what, value in limits.group_tres.items():
        yield _Cap(owner, "GrpTRES", what, value, account)
    for limit, number in (("GrpJobs", limits.group_jobs), ("GrpSubmitJobs", limits.group_submitted)):
        if number is not None:
            yield _Cap(owner, limit, "", number, account)


def _of_minutes(account: Association, accounting: Accounting) -> Iterator[_Cap]:
    """GrpTRESMins: once it is used up nothing starts; with ``safe``, only what can also run to its end."""
    used = accounting.used_minutes.get(account.account, {})
    for what, value in account.limits.group_minutes.items():
        left = max(0, value - used.get(what, 0))
        if left == 0 or "safe" in accounting.enforced:
            yield _Cap(f"account {account.account}", "GrpTRESMins", what, left)


def _amount(cap: _Cap, size: JobSize) -> int:
    """What one participant's job counts for."""
    if not cap.what:
        return 1
    per_person = size.tres.get(cap.what, 0)
    if cap.limit == "GrpTRESMins":
        return max(1, int(per_person * min(size.seconds, 1e9) / 60)) if per_person else 0
    return per_person


def _held(cap: _Cap, held: Iterable[ClusterJob], accounting: Accounting) -> int:
    if not cap.of:
        return 0
    accounts = accounting.below(cap.of)
    return sum(_counts_for(cap.what, job) for job in held if job.account in accounts)


def _counts_for(what: str, job: ClusterJob) -> int:
    """What a job of others holds of a resource; 1 where jobs are counted."""
    name, _, kind = what.removeprefix("gres/").partition(":")
    if name in ("gpu", "shard"):
        return job.node_count * sum(
            gres.count for gres in job.gpus if gres.name == name and (not kind or gres.type == kind)
        )
    return {"": 1, "cpu": job.cpus, "mem": job.memory_mib, "node": job.node_count}.get(what, 0)


def _sentence(cap: _Cap, people: int, held: int, per_person: int) -> str:
    fit = min(people, max(0, cap.value - held) // per_person)
    out = f"{fit} of {people} people fit."
    owner = _capital(cap.owner)
    if cap.limit == "GrpTRESMins":
        kind = "CPU" if cap.what == "cpu" else "GPU" if cap.what.startswith("gres/gpu") else cap.what
        if cap.value == 0:
            return f"{owner} has used up its {kind} minutes (GrpTRESMins): no job starts."
        return f"{owner} has {cap.value} {kind} minutes left (GrpTRESMins), and each server may use {per_person}: {out}"
    if cap.what:
        others = f", and jobs of others hold {_words(cap.what, held)}" if held else ""
        return f"{owner} may use {_words(cap.what, cap.value)} at once ({cap.limit}){others}: {out}"
    others = f", and others have {held}" if held else ""
    verb = "have" if "Submit" in cap.limit else "run"
    together = " pending or running" if "Submit" in cap.limit else " at once"
    return f"{owner} may {verb} {counted(cap.value, 'job')}{together} ({cap.limit}){others}: {out}"


def _words(what: str, number: int) -> str:
    name, _, kind = what.removeprefix("gres/").partition(":")
    if name in ("gpu", "shard"):
        unit = counted(number, "GPU" if name == "gpu" else "GPU shard")
        return f"{unit} of type {kind}" if kind else unit
    if what == "mem":
        return f"{memory(number)} of memory"
    return counted(number, {"cpu": "CPU"}.get(what, what))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
