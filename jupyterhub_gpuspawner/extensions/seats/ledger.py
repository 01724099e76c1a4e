"""Which jobs the limits of a site's accounting let start, of those for which there is room. Pure.

As slurmctld does (acct_policy.c): a job that would start is compared with each limit in its turn, and what it uses then
counts for the next. A limit of the partition's QOS is in the place of the same one of the job's QOS, and
that in the place of the same one of the association; the flag OverPartQOS exchanges the first two. Limits named Grp
are those of an association and of all above it, the others of the user's own association, to which Slurm hands down
those above. Jobs, minutes and TRES have Slurm's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jupyterhub_gpuspawner.extensions.seats.accounting import Accounting, Association, Budget
from jupyterhub_gpuspawner.slurm.accounting import WALL, Limits, in_order

NODE = "node"
_MEMORY, _ENDLESS = "mem", float(2**32 - 1)


class Charged(NamedTuple):
    """To whom a job is charged."""

    user: str
    account: str = ""
    """Empty: the user's own."""
    partition: str = ""
    qos: str = ""
    """Empty: that of the association."""
    other: int = 0
    """Not 0: to somebody else who has the same limits, and has used nothing."""


@dataclass(frozen=True)
class Usage:
    """What a job uses."""

    tres: Mapping[str, float]
    minutes: float | None
    """Its time limit; None without one."""
    nodes: frozenset[str] = frozenset()
    """Empty where they are not known."""
    not_requested: frozenset[str] = frozenset()
    """TRES that it has and did not request, such as a type of GPU: they count as used, and limits of them do not hold
    it back."""

    @property
    def requested(self) -> Mapping[str, float]:
        """What limits are compared with."""
        return {name: amount for name, amount in self.tres.items() if amount and name not in self.not_requested}

    @property
    def length(self) -> float:
        """Its time limit as Slurm counts it."""
        return _ENDLESS if self.minutes is None else self.minutes


class UnknownCharge(Exception):
    """Slurm shows no association to which a job would be charged; the text is its user."""


@dataclass
class _Account:
    """What one holder of limits has used; it grows."""

    jobs: float = 0.0
    submitted: float = 0.0
    wall: float = 0.0
    tres: dict[str, float] = field(default_factory=dict)
    minutes: dict[str, float] = field(default_factory=dict)
    run_minutes: dict[str, float] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)


def _of(used: Limits, *kinds: str) -> dict[str, float]:
    return {tres: amount for (kind, tres), amount in used.items() if kind in kinds}


def _account(used: Limits) -> _Account:
    return _Account(
        jobs=sum(_of(used, "GrpJobs", "MaxJobsPU", "MaxJobsPA").values()),
        submitted=sum(_of(used, "GrpSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA").values()),
        wall=sum(_of(used, "GrpWall").values()),
        tres=_of(used, "GrpTRES", "MaxTRESPU", "MaxTRESPA"),
        minutes=_of(used, "GrpTRESMins"),
        run_minutes=_of(used, "GrpTRESRunMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA"),
    )


class _Holder(NamedTuple):
    """Who or what has limits."""

    scope: str
    """How Slurm's reasons begin: ``QOS``, ``Assoc``, or not at all, of an account's share of a QOS."""
    limits: Limits
    account: _Account
    kinds: Mapping[str, _Limit]
    """Which of the limits count for it."""


_Test = Callable[["_Held", str], bool]


class _Held(NamedTuple):
    """What a limit is compared with."""

    limit: float
    account: _Account
    usage: Usage
    safe: bool

    @property
    def requested(self) -> Mapping[str, float]:
        return self.usage.requested

    def minutes(self, tres: str) -> float:
        return self.requested.get(tres, 0.0) * self.usage.length

    def in_use(self, tres: str) -> float:
        """What it uses with the job; a node that it has already is not counted twice."""
        if tres == NODE and self.usage.nodes and self.account.nodes:
            return len(self.account.nodes | self.usage.nodes)
        return self.account.tres.get(tres, 0.0) + self.usage.tres.get(tres, 0.0)


class _Limit(NamedTuple):
    """How Slurm applies a limit, and names it."""

    reached: _Test
    reason: str
    """With ``{tres}`` in it; see :data:`_WORDS`."""
    places: tuple[str, ...] = ()
    """The limits of a QOS in whose place it is not; empty: the one of the same name."""
    style: int = 0
    """Which of the words for a TRES."""


def _group_minutes(held: _Held, tres: str) -> bool:
    if tres not in held.requested:
        return False
    used, running = held.account.minutes.get(tres, 0.0), held.account.run_minutes.get(tres, 0.0)
    return int(used) >= held.limit or (held.safe and held.minutes(tres) + running > held.limit - used)


def _group_wall(held: _Held, _tres: str) -> bool:
    return int(held.account.wall) >= held.limit or (held.safe and held.account.wall + held.usage.length > held.limit)


def _run_minutes(held: _Held, tres: str) -> bool:
    return tres in held.requested and held.account.run_minutes.get(tres, 0.0) + held.minutes(tres) > held.limit


def _per_node(held: _Held, tres: str) -> bool:
    return held.requested.get(tres, 0.0) // max(1.0, held.requested.get(NODE, 1.0)) > held.limit


def _jobs(held: _Held, _tres: str) -> bool:
    return held.account.jobs >= held.limit


def _used(held: _Held, tres: str) -> bool:
    return tres in held.requested and held.in_use(tres) > held.limit


def _wall(held: _Held, _tres: str) -> bool:
    return held.usage.length > held.limit


_GROUP = {
    "GrpJobs": _Limit(_jobs, "GrpJobsLimit"),
    "GrpWall": _Limit(_group_wall, "GrpWallLimit"),
    "GrpTRESMins": _Limit(_group_minutes, "Grp{tres}", style=1),
    "GrpTRES": _Limit(_used, "Grp{tres}", style=0),
    "GrpTRESRunMins": _Limit(_run_minutes, "Grp{tres}", style=2),
}
_EACH = {
    "MaxWallPJ": _Limit(_wall, "MaxWallDurationPerJobLimit"),
    "MaxTRESMinsPJ": _Limit(lambda held, tres: held.minutes(tres) > held.limit, "Max{tres}", style=4),
    "MaxTRESPJ": _Limit(lambda held, tres: held.requested.get(tres, 0.0) > held.limit, "Max{tres}", style=3),
    "MaxTRESPN": _Limit(_per_node, "Max{tres}PerNode", style=5),
}
_OF_JOBS = {
    "MaxJobs": _Limit(_jobs, "MaxJobsLimit", places=("MaxJobsPU", "MaxJobsPA")),
}
_OF_QOS = {
    "MinTRESPJ": _Limit(lambda held, tres: held.requested.get(tres, 0.0) < held.limit, "Min{tres}", style=5),
}
_OF_USER = {
    "MaxJobsPU": _Limit(_jobs, "MaxJobsPerUserLimit"),
    "MaxTRESPU": _Limit(_used, "Max{tres}PerUser", style=5),
    "MaxTRESRunMinsPU": _Limit(_run_minutes, "Max{tres}PerUser", style=2),
}
_OF_ACCOUNT = {
    "MaxJobsPA": _Limit(_jobs, "MaxJobsPerAccount"),
    "MaxTRESPA": _Limit(_used, "Max{tres}PerAccount", style=5),
    "MaxTRESRunMinsPA": _Limit(_run_minutes, "Max{tres}PerAccount", style=2),
}


def _submit(held: _Held, _tres: str) -> bool:
    return held.account.submitted >= held.limit


_SUBMIT_GROUP = {"GrpSubmitJobs": _Limit(_submit, "GrpSubmitJobsLimit")}
_SUBMIT_OWN = {"MaxSubmitJobs": _Limit(_submit, "MaxSubmitJobLimit", places=("MaxSubmitJobsPU", "MaxSubmitJobsPA"))}
_SUBMIT_USER = {"MaxSubmitJobsPU": _Limit(_submit, "MaxSubmitJobPerUserLimit")}
_SUBMIT_ACCOUNT = {"MaxSubmitJobsPA": _Limit(_submit, "MaxSubmitJobsPerAccount")}

_WORDS = {
    "cpu": ("CpuLimit", "CPUMinutesLimit", "CPURunMinutesLimit", "CpuPerJobLimit", "CpuMinutesPerJobLimit", "Cpu"),
    _MEMORY: ("MemLimit", "MemMinutes", "MemRunMinutes", "MemPerJob", "MemMinutesPerJob", "Memory"),
    NODE: ("NodeLimit", "NodeMinutes", "NodeRunMinutes", "NodePerJobLimit", "NodeMinutesPerJob", "Node"),
    "billing": ("Billing", "BillingMinutes", "BillingRunMinutes", "BillingPerJob", "BillingMinutesPerJob", "Billing"),
    "gres": ("GRES", "GRESMinutes", "GRESRunMinutes", "GRESPerJob", "GRESMinutesPerJob", "GRES"),
}
"""Words for a TRES in Slurm's reasons, by :attr:`_Limit.style`."""
_UNKNOWN = ("Unknown", "UnknownMinutes", "UnknownRunMinutes", "UnknownPerJob", "UnknownMinutesPerJob", "Unknown")


def _reason(scope: str, limit: _Limit, tres: str) -> str:
    words = _WORDS.get(tres.partition("/")[0], _UNKNOWN)
    end = {
        "Min{tres}": "NotSatisfied" if tres == "cpu" else "",
        "Max{tres}PerUser": "Limit" if tres in ("cpu", NODE) else "",
    }
    return f"{scope}{limit.reason.format(tres=words[limit.style])}{end.get(limit.reason, '')}"


class Ledger:
    """What is used of a site's limits, job by job."""

    def __init__(self, accounting: Accounting, partition_qos: Mapping[str, str]) -> None:
        """``partition_qos``: the QOS of each partition that has one."""
        self._accounting, self._partition_qos = accounting, partition_qos
        self._accounts: dict[tuple[str, ...], _Account] = {}

    def refused(self, charged: Charged) -> str:
        """Slurm's word for why sbatch refuses one more job; empty where it does not, and then it is submitted."""
        holders = [*self._holders(charged, _SUBMIT_GROUP, _SUBMIT_OWN, {}, _SUBMIT_USER, _SUBMIT_ACCOUNT)]
        reason = self._reached(holders, Usage({}, None))
        if not reason:
            for account in self._distinct(charged):
                account.submitted += 1
        return reason

    def held_back(self, charged: Charged, usage: Usage) -> str:
        """Slurm's word for the limit that a job would exceed; empty where it starts; see :meth:`add` then."""
        own = _OF_JOBS | _EACH
        holders = [*self._holders(charged, _GROUP, own, _EACH | _OF_QOS, _OF_USER, _OF_ACCOUNT)]
        return self._reached(holders, usage)

    def longest(self, charged: Charged) -> float | None:
        """The time limit of a job that requests none, in minutes, where its partition has no default; None: no limit.

        It is that MaxWall which would hold a longer job back.
        """
        holders = self._holders(charged, {}, _EACH, _EACH, {}, {})
        walls = (holder.limits.get(WALL) for holder in holders if "MaxWallPJ" in holder.kinds)
        return next((wall for wall in walls if wall is not None), None)

    def add(self, charged: Charged, usage: Usage, *, jobs: int = 1) -> None:
        """A job has started; with ``jobs`` -1 it is gone."""
        for account in self._distinct(charged):
            account.jobs = max(0.0, account.jobs + jobs)
            for tres, amount in usage.tres.items():
                account.tres[tres] = max(0.0, account.tres.get(tres, 0.0) + jobs * amount)
            self._run(account, usage.tres, jobs * usage.length)
            if jobs > 0:
                account.nodes |= usage.nodes

    def pass_time(self, charged: Charged, usage: Usage, minutes: float) -> None:
        """A job has run for so many minutes more."""
        for account in self._distinct(charged):
            self._run(account, usage.tres, -minutes)
            for tres, amount in usage.tres.items():
                account.minutes[tres] = account.minutes.get(tres, 0.0) + amount * minutes
            account.wall += minutes

    def withdraw(self, charged: Charged) -> None:
        """A job is no longer among those that are submitted."""
        for account in self._distinct(charged):
            account.submitted = max(0.0, account.submitted - 1)

    def on_nodes(self, charged: Charged, nodes: Iterable[str]) -> None:
        """A job that is counted already holds these nodes."""
        for account in self._distinct(charged):
            account.nodes.update(nodes)

    @staticmethod
    def _run(account: _Account, tres: Mapping[str, float], minutes: float) -> None:
        for name, amount in tres.items():
            account.run_minutes[name] = max(0.0, account.run_minutes.get(name, 0.0) + amount * minutes)

    def _reached(self, holders: Sequence[_Holder], usage: Usage) -> str:
        set_by_qos = set[tuple[str, str]]()
        for holder in holders:
            for kind, limit in holder.kinds.items():
                places = limit.places or (kind,)
                for (name, tres), amount in holder.limits.items():
                    if name != kind or any((place, tres) in set_by_qos for place in places):
                        continue
                    if limit.reached(_Held(amount, holder.account, usage, self._accounting.safe), tres):
                        return _reason(holder.scope, limit, tres)
            if holder.scope != "Assoc":
                set_by_qos |= {key for key in holder.limits if key[0] in holder.kinds}
        return ""

    def _qos(self, charged: Charged, association: Association) -> tuple[str, ...]:
        """The job's QOS and the partition's, the one first whose limits come before the other's."""
        own = self._accounting.qos_name(charged.qos, association)
        qos = self._accounting.qos.get(own)
        return in_order(self._partition_qos.get(charged.partition, ""), own, qos.flags if qos is not None else ())

    def _association(self, charged: Charged) -> Association:
        found = self._accounting.association(charged.user, charged.account.lower(), charged.partition)
        known = self._accounting.associations
        if found is None or any(one not in known for one in self._accounting.chain(found)):
            raise UnknownCharge(charged.user)
        return found

    def _holders(
        self,
        charged: Charged,
        group: Mapping[str, _Limit],
        own: Mapping[str, _Limit],
        of_qos: Mapping[str, _Limit],
        of_user: Mapping[str, _Limit],
        of_account: Mapping[str, _Limit],
    ) -> Iterator[_Holder]:
        association = self._association(charged)
        for name in self._qos(charged, association):
            qos = self._accounting.qos.get(name)
            if qos is not None:
                yield _Holder("QOS", qos.own.limits, self._of_qos(name), {**group, **of_qos})
                yield _Holder("QOS", qos.own.limits, self._of_qos_user(name, charged), of_user)
                yield _Holder("", qos.own.limits, self._of_qos_account(name, association.account), of_account)
        for number, one in enumerate(self._accounting.chain(association)):
            limits = self._accounting.associations.get(one, Budget())
            kinds = group if number else {**group, **own}
            yield _Holder("Assoc", limits.limits, self._of_association(one, charged.other if not number else 0), kinds)

    def _distinct(self, charged: Charged) -> list[_Account]:
        """All accounts that a job is added to."""
        association = self._association(charged)
        accounts = [
            account
            for name in self._qos(charged, association)
            for account in (
                self._of_qos(name),
                self._of_qos_user(name, charged),
                self._of_qos_account(name, association.account),
            )
        ]
        chain = enumerate(self._accounting.chain(association))
        return [*accounts, *(self._of_association(one, charged.other if not at else 0) for at, one in chain)]

    def _kept(self, key: tuple[str, ...], used: Limits) -> _Account:
        if key not in self._accounts:
            self._accounts[key] = _account(used)
        return self._accounts[key]

    def _of_association(self, one: Association, other: int) -> _Account:
        used = self._accounting.associations.get(one, Budget()).used if not other else {}
        return self._kept(("association", *one, str(other)), used)

    def _of_qos(self, name: str) -> _Account:
        qos = self._accounting.qos.get(name)
        return self._kept(("qos", name), qos.own.used if qos is not None else {})

    def _of_qos_user(self, name: str, charged: Charged) -> _Account:
        qos = self._accounting.qos.get(name)
        used = qos.users.get(charged.user, Budget()).used if qos is not None and not charged.other else {}
        return self._kept(("qos user", name, charged.user, str(charged.other)), used)

    def _of_qos_account(self, name: str, account: str) -> _Account:
        qos = self._accounting.qos.get(name)
        return self._kept(("qos account", name, account), qos.accounts.get(account, Budget()).used if qos else {})


# --- billing --------------------------------------------------------------------------------------------------------


def billing(tres: Mapping[str, float], weights: str, *, most_of_a_node: bool) -> float:
    """The TRES ``billing`` of a job in a partition with these TRESBillingWeights; without any, its CPUs.

    ``most_of_a_node``: that of CPUs, memory and generic resources which is the most counts (PriorityFlags, MAX_TRES).
    """
    of_node, of_all = list[float](), list[float]()
    for item in filter(None, weights.split(",")):
        name, _, weight = item.partition("=")
        amount, factor = tres.get(name.lower(), 0.0), _weight(weight, name.lower())
        (of_node if name.lower() in ("cpu", _MEMORY) or "/" in name else of_all).append(amount * factor)
    if not of_node and not of_all:
        return tres.get("cpu", 0.0)
    return int((max(of_node, default=0.0) if most_of_a_node else sum(of_node)) + sum(of_all))


def _weight(text: str, name: str) -> float:
    """``0.25G``: for each GiB; without a letter for each MiB, or one."""
    unit = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}.get(text[-1:].upper()) if name == _MEMORY else None
    try:
        return float(text[:-1]) / unit if unit is not None else float(text)
    except ValueError:
        return 0.0
