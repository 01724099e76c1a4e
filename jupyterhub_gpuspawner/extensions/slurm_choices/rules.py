"""Whether Slurm would refuse a job for its account, partition, QOS and reservation together. Pure.

Seven rules of slurmctld (slurm.conf(5), sacctmgr(1), scontrol(1)). Slurm takes a job that a limit of its account or QOS
keeps from starting, and without EnforcePartLimits one that a partition's lists of accounts and QOS do; it then waits
for ever: such a job is refused here, too. What is not known refuses nothing: Slurm judges.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from jupyterhub_gpuspawner.extensions.availability.model.limits import in_allowed_group, is_listed, is_over
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import NO_QOS, Accounting, Association
from jupyterhub_gpuspawner.extensions.slurm_choices.job_size import beyond
from jupyterhub_gpuspawner.extensions.slurm_choices.words import NO_ACCOUNT, Naming
from jupyterhub_gpuspawner.slurm.accounting import Limits, in_order, qos_of_job
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Partition, Reservation
from jupyterhub_gpuspawner.slurm.text import value_or_empty

_CLOSED = ("INACTIVE", "DRAIN")
"""States in which a partition refuses jobs; one that is DOWN accepts them, and they wait."""
_TREE_SINCE = (24, 11)
"""From here on an account is admitted by AllowAccounts if one above it is listed, which the hub does not know."""


class Combination(NamedTuple):
    """What a job names; None: nothing, so that Slurm's default applies."""

    account: str | None = None
    partition: str | None = None
    """One or more, separated by commas."""
    qos: str | None = None
    reservation: str | None = None


@dataclass(frozen=True)
class Person:
    """One user as Slurm knows them on a cluster."""

    owner: str
    """The account that owns their jobs."""
    associations: tuple[Association, ...] | None = ()
    """None: not known."""
    default_account: str = ""
    """Empty where it is not known."""
    groups: Mapping[str, bool] = field(default_factory=dict)
    """Whether they are in a Unix group; one that is missing is not known."""

    @cached_property
    def accounts(self) -> tuple[str, ...]:
        """Their accounts, each once, in alphabetical order."""
        return tuple(sorted({row.account for row in self.associations or ()}))

    @cached_property
    def _by_account(self) -> Mapping[str, Mapping[str, Association]]:
        """By account in lower case and partition."""
        by_account: dict[str, dict[str, Association]] = {}
        for row in self.associations or ():
            by_account.setdefault(row.account.lower(), {}).setdefault(row.partition, row)
        return by_account

    def association(self, account: str, partition: str) -> Association | None:
        """What they may name in an account and a partition."""
        rows = self._by_account.get(account.lower(), {})
        return rows.get(partition) or rows.get("")


@dataclass(frozen=True)
class Rules:
    """The rules of one cluster for one person."""

    person: Person
    accounting: Accounting
    snapshot: ClusterSnapshot
    now: float
    """Seconds since the epoch."""
    naming: Naming = field(default_factory=Naming)
    contact: str = "your administrator"
    requested: Limits = field(default_factory=dict)
    """What the job requests beside what it names, as far as it is known; see :func:`.job_size.requested_by`."""

    def refusal(self, job: Combination) -> str:
        """Why Slurm would refuse a job that names these, as a clause; empty where it is not known to."""
        partitions = self.snapshot.partitions_of(job.partition)
        of_partitions = [next(self._in_partition(job, name), "") for name in partitions]
        if of_partitions and all(of_partitions):
            return of_partitions[0]
        return next(self._with_qos(job), "") or next(self._in_reservation(job, partitions), "")

    def account_of(self, job: Combination) -> str:
        """The account of a job; empty where it is not known."""
        return job.account or self.person.default_account

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """Those that are not hidden and that the person may use if they name the right account and QOS."""
        return tuple(one for one in self.snapshot.partitions if not one.hidden and self._is_open(one))

    def _is_open(self, partition: Partition) -> bool:
        if next(self._of_groups(partition), ""):
            return False
        if not self.accounting.names_accounts or self.person.associations is None:
            return True
        if not self.person.associations:
            return False
        rows = (row for row in self.person.associations if row.partition in ("", partition.name))
        return any(
            not next(self._of_account_in(row.account, partition), "")
            and (
                not (self.accounting.names_qos and row.qos)
                or any(not next(self._of_qos_in(qos, partition), "") for qos in row.qos)
            )
            for row in rows
        )

    @cached_property
    def reservations(self) -> tuple[Reservation, ...]:
        """Those that admit the person in one of their accounts, and have not ended."""
        return tuple(one for one in self.snapshot.reservations if self._admitted_to(one))

    def _in_partition(self, job: Combination, name: str) -> Iterator[str]:
        partition = self.snapshot.partition_by_name.get(name)
        if partition is None or partition.unread:
            return
        where = self.naming.of("partition", name)
        yield from self._of_access(job, partition)
        if partition.state in _CLOSED:
            yield f"{where} accepts no jobs at the moment"
        if partition.needs_reservation and not job.reservation:
            yield f"{where} needs a reservation"
        if clause := beyond(self.requested, self._limits(job, partition)):
            yield clause

    def _qos(self, job: Combination, row: Association) -> str:
        """The QOS of a job; empty where that is none of theirs, which Slurm refuses, or where it is not known."""
        qos = job.qos or qos_of_job(row.default_qos, row.qos, self.accounting.root_qos)
        return qos if job.qos or row.default_qos or is_listed(row.qos, qos) else ""

    def _limits(self, job: Combination, partition: Partition) -> Iterator[tuple[str, Limits]]:
        """Those of a job, with their names, in the order in which Slurm looks at them."""
        account = self.account_of(job)
        row = self.person.association(account, partition.name) if account else None
        if not self.accounting.config.enforces_limits or row is None:
            return
        qos, known = self._qos(job, row), self.accounting.qos
        flags = known.get(qos.lower(), NO_QOS).flags
        for name in in_order(value_or_empty(partition.parameters.get("QoS")), qos, flags):
            is_own = name == qos.lower()
            who = self.naming.of("qos", qos) if is_own else self.naming.of("partition", partition.name)
            yield who, known.get(name, NO_QOS).limits
        yield self.naming.of("account", account), row.limits

    def _of_access(self, job: Combination, partition: Partition) -> Iterator[str]:
        """AllowGroups, and the person's associations with AllowAccounts and AllowQos."""
        where = self.naming.of("partition", partition.name)
        yield from self._of_groups(partition)
        account, row = self.account_of(job), None
        if self.accounting.names_accounts and self.person.associations is not None:
            yield from self._of_account(account)
            row = self.person.association(account, partition.name) if account else None
            if account and row is None:
                yield f"{self.naming.of('account', account)} cannot be used in {where}"
        if self.accounting.names_accounts and account:
            yield from self._of_account_in(account, partition)
        if not self.accounting.names_qos:
            return
        if row is not None and job.qos and not is_listed(row.qos, job.qos):
            at = f" in {where}" if row.partition else ""
            yield f"{self.naming.of('account', account)} does not have {self.naming.of('qos', job.qos)}{at}"
        if qos := self._qos(job, row) if row is not None else job.qos:
            yield from self._of_qos_in(qos, partition)

    def _of_groups(self, partition: Partition) -> Iterator[str]:
        if in_allowed_group(partition, self.person.groups) is False:
            groups = " or ".join(partition.allow_groups)
            yield f"{self.naming.of('partition', partition.name)} is for members of {groups}"

    def _of_account_in(self, account: str, partition: Partition) -> Iterator[str]:
        allowed = partition.allow_accounts
        refused = not is_listed(allowed, account) if allowed else is_listed(partition.deny_accounts, account)
        if refused and not (allowed and self._may_be_below):
            yield f"{self.naming.of('partition', partition.name)} is not open to {self.naming.of('account', account)}"

    def _of_qos_in(self, qos: str, partition: Partition) -> Iterator[str]:
        allowed = partition.allow_qos
        if not is_listed(allowed, qos) if allowed else is_listed(partition.deny_qos, qos):
            yield f"{self.naming.of('partition', partition.name)} is not open to {self.naming.of('qos', qos)}"

    def _of_account(self, account: str) -> Iterator[str]:
        if not self.person.associations:
            yield NO_ACCOUNT.format(contact=self.contact)
        elif account and not is_listed(self.person.accounts, account):
            yield f"{self.naming.of('account', account)} is not one of yours"

    @cached_property
    def _may_be_below(self) -> bool:
        """Whether an account may be admitted since one above it is listed."""
        version = re.match(r"(\d+)\.(\d+)", self.snapshot.config.version)
        return version is None or (int(version[1]), int(version[2])) >= _TREE_SINCE

    def _with_qos(self, job: Combination) -> Iterator[str]:
        qos = self.accounting.qos.get((job.qos or "").lower(), NO_QOS)
        if "requiresreservation" in qos.flags and not job.reservation:
            yield f"{self.naming.of('qos', job.qos or '')} needs a reservation"

    def _in_reservation(self, job: Combination, partitions: Collection[str]) -> Iterator[str]:
        name = job.reservation or ""
        reservation = self.snapshot.reservation_by_name.get(name)
        if reservation is None:  # the form of availability says if there is none
            return
        where = self.naming.of("reservation", name)
        account = self.account_of(job)
        if is_over(reservation, self.now):
            yield f"{where} has ended"
        if self.person.owner and not _admits(reservation.users, {self.person.owner}):
            yield f"{where} is for other users"
        if account and not _admits(reservation.accounts, {account}):
            yield f"{where} is not for {self.naming.of('account', account)}"
        if self._outside_groups(reservation):
            yield f"{where} is for members of other groups"
        allowed = reservation.allowed_partitions
        if allowed and not set(partitions) & set(allowed):
            named = " or ".join(self.naming.of("partition", name) for name in allowed)
            yield f"{where} is for {named}"
        if job.qos and reservation.qos and not is_listed(reservation.qos, job.qos):
            yield f"{where} is not for {self.naming.of('qos', job.qos)}"

    def _outside_groups(self, reservation: Reservation) -> bool:
        member = {name for name, inside in self.person.groups.items() if inside}
        known = all(name.lstrip("-") in self.person.groups for name in reservation.groups)
        return known and not _admits(reservation.groups, member)

    def _admitted_to(self, reservation: Reservation) -> bool:
        """Whether a reservation, which has not ended, admits the person in one of their accounts."""
        if is_over(reservation, self.now) or not (reservation.users or reservation.accounts or reservation.groups):
            return False
        accounts = {*self.person.accounts, *filter(None, [self.person.default_account])}
        known = self.person.associations is not None
        return (
            _admits(reservation.users, {self.person.owner})
            and not self._outside_groups(reservation)
            and (not known or any(_admits(reservation.accounts, {name}) for name in accounts or {""}))
        )


def _admits(listed: Collection[str], names: Collection[str]) -> bool:
    """Whether a list of a reservation admits somebody with these names: ``-`` excludes, and alone admits the rest."""
    lowered = {name.lower() for name in names}
    excluded = {name[1:].lower() for name in listed if name.startswith("-")}
    wanted = {name.lower() for name in listed if not name.startswith("-")}
    return not (excluded & lowered) and (not wanted or bool(wanted & lowered))
