"""Which of the jobs that wait at a site come before a new one: an estimate of the priority that it would get. Pure.

slurmctld tells nobody the priority of a job before it is submitted. With priority/multifactor it is a sum, of which the
parts that depend on the association, the QOS and the partition are known; age is none, and what the size of a job and
the digits that Slurm does not print may add is allowed for. Whatever is in doubt comes first.
"""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.seats.accounting import Accounting
from jupyterhub_gpuspawner.extensions.seats.held import WaitingJob
from jupyterhub_gpuspawner.extensions.seats.ledger import Charged
from jupyterhub_gpuspawner.extensions.seats.site import Site

_PRINTED = 0.005
"""The most by which a factor differs that is printed with two digits."""
_SOON = 60.0
"""Seconds ahead up to which a moment is now."""


def comes_before(waits: WaitingJob, site: Site, newest: float | None, at: float) -> bool:
    """Whether a job that waits comes before new ones at a moment, whose priority is at least ``newest``; None: unknown.

    A job in a QOS with the flag NoReserve keeps no nodes for itself, and would run if it could.
    """
    now = site.config.answered_at
    if isinstance(site.accounting, Accounting) and now is not None and at - now < _SOON:
        qos = site.accounting.qos.get(waits.qos)
        if qos is not None and "NoReserve" in qos.flags:
            return False
    ahead = 0.0 if now is None else max(0.0, at - now) / _weight(site, "PriorityMaxAge", 7 * 86400.0)
    aged = waits.job.priority + min(1.0, ahead) * _weight(site, "PriorityWeightAge")
    return newest is None or aged >= newest


def least_priority(site: Site, charged: Charged) -> float | None:
    """The least priority that a new job gets; None where that is not known, or does not depend on whose it is."""
    known = site.accounting
    if not isinstance(known, Accounting) or site.config.parameters.get("PriorityType") != "priority/multifactor":
        return None
    association = known.association(charged.user, charged.account.lower(), charged.partition)
    if association is None or "NO_NORMAL" in site.config.parameters.get("PriorityFlags", ""):
        return None
    share = known.shares.get(association, 0.0)
    qos = known.qos.get(known.qos_name(charged.qos, association))
    most = max((one.priority for one in known.qos.values()), default=0.0)
    factors = {part.name: _number(part.parameters.get("PriorityJobFactor", "")) for part in site.partitions}
    largest = max(factors.values(), default=0.0)
    return (
        max(0.0, share - _PRINTED) * _weight(site, "PriorityWeightFairShare")
        + (qos.priority / most * _weight(site, "PriorityWeightQOS") if qos is not None and most else 0.0)
        + (factors.get(charged.partition, 0.0) / largest * _weight(site, "PriorityWeightPartition") if largest else 0.0)
    )


def _weight(site: Site, name: str, default: float = 0.0) -> float:
    """A number of slurm.conf; of a time such as ``7-00:00:00`` the default."""
    return _number(site.config.parameters.get(name, "")) or default


def _number(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0
