"""The findings of ``gpuspawner check`` about requests that can never run."""

from __future__ import annotations

from jupyterhub_gpuspawner.check.finding import Code, Verdict
from jupyterhub_gpuspawner.check.profiles import RESERVATION_MISSING
from jupyterhub_gpuspawner.extensions.availability.model.limits import Fault, FaultKind, fault_of
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

_GONE, _CLOSED, _OTHERS = FaultKind.MISSING, FaultKind.CLOSED, FaultKind.FORBIDDEN
_NEEDED, _AMOUNT, _TOGETHER = FaultKind.NEEDED, FaultKind.AMOUNT, FaultKind.TOGETHER

NO_PARTITION = Code("partition-missing", "A partition does not exist. Slurm refuses every job that names it.")
NOT_TOGETHER = Code("resources-not-together", "Nodes have each requested resource, but none has all of them together.")

BY_FAULT: dict[tuple[str, FaultKind], tuple[Code, str]] = {
    ("partition", _GONE): (NO_PARTITION, "Name a partition that exists."),
    ("partition", _NEEDED): (
        Code("partition-needed", "No partition is requested, and the cluster has no default one."),
        "Set slurm.partition, or c.GPUSlurmSpawner.req_partition for all profiles.",
    ),
    ("partition", _CLOSED): (
        Code("partition-closed", "A partition is down, drained or inactive, or has no nodes."),
        "Open it (scontrol update partition=NAME state=UP), or name another one.",
    ),
    ("partition", _OTHERS): (
        Code("partition-forbidden", "A partition admits members of some Unix groups alone (AllowGroups)."),
        "Put the users into one of these groups, or name another partition.",
    ),
    ("reservation", _GONE): (RESERVATION_MISSING, "Create the reservation, or take it out of the profile."),
    ("reservation", _CLOSED): (
        Code("reservation-over", "A reservation has ended."),
        "Name the current reservation, or take it out of the profile.",
    ),
    ("reservation", _OTHERS): (
        Code("reservation-forbidden", "A reservation does not admit users who may use the profile."),
        "Add the users to the reservation, or restrict the profile to those that it admits.",
    ),
    ("reservation", _NEEDED): (
        Code("reservation-needed", "A partition accepts only jobs with a reservation (ReqResv)."),
        "Set slurm.reservation.",
    ),
    ("account", _OTHERS): (
        Code("account-not-allowed", "A partition does not allow the account (AllowAccounts, DenyAccounts)."),
        "Name an account that the partition allows.",
    ),
    ("qos", _OTHERS): (
        Code("qos-not-allowed", "A partition does not allow the QOS (AllowQos, DenyQos)."),
        "Name a QOS that the partition allows.",
    ),
    ("constraint", _GONE): (
        Code("feature-missing", "No node of the partition has the requested features."),
        "Name features that its nodes have; `sinfo -N -o '%N %f'` lists them.",
    ),
    ("gpu_type", _GONE): (
        Code("gpu-type-missing", "No node of the partition has GPUs of the requested type."),
        "Name a type that its nodes have; `sinfo -N -o '%N %G'` lists them.",
    ),
    ("gpus", _GONE): (
        Code("gpus-missing", "GPUs are requested, and no node of the partition has any."),
        "Name a partition with GPUs, or request none.",
    ),
    ("shards", _GONE): (
        Code("shards-missing", "GPU shards are requested, and no node of the partition has any."),
        "Name a partition with shards, or request GPUs.",
    ),
    ("time", _NEEDED): (
        Code("time-needed", "The job has no time limit, and the partition needs one."),
        "Set slurm.time.",
    ),
    ("time", _AMOUNT): (
        Code("time-too-long", "More time is requested than the partition allows."),
        "Request no more than that.",
    ),
    ("memory", _AMOUNT): (
        Code("memory-too-much", "More memory is requested than a node has, or than the partition allows."),
        "Request no more than that.",
    ),
    ("cpus", _AMOUNT): (
        Code("cpus-too-many", "More CPUs are requested than a node has, or than the partition allows."),
        "Request no more than that.",
    ),
    ("gpus", _AMOUNT): (
        Code("gpus-too-many", "More GPUs are requested than a node has."),
        "Request no more than that.",
    ),
    ("shards", _AMOUNT): (
        Code("shards-too-many", "More GPU shards are requested than a node has."),
        "Request no more than that.",
    ),
    ("nodes", _AMOUNT): (
        Code("nodes-out-of-range", "More nodes are requested than can run the job, or fewer than the partition needs."),
        "Request a number of nodes that the partition allows.",
    ),
    ("exclusive", _AMOUNT): (
        Code("whole-node-too-large", "A whole node is requested, and has more CPUs than the partition allows on one."),
        "Request a part of a node, or name another partition.",
    ),
    ("shards", _TOGETHER): (NOT_TOGETHER, "Request GPUs, or a part of a node."),
    **{
        (field, _TOGETHER): (NOT_TOGETHER, "Lower one of the numbers, or name a partition with larger nodes.")
        for field in ("cpus", "memory", "gpus")
    },
}
"""By field of a profile's ``slurm`` block and kind of fault."""


def judge(resources: Resources, snapshot: ClusterSnapshot, now: float) -> Verdict | None:
    """Why a request can never run on the cluster, with what would be right; ``now`` in seconds since the epoch."""
    fault = fault_of(resources, snapshot, now=now)
    return verdict_of(fault) if fault is not None else None


def verdict_of(fault: Fault) -> Verdict:
    """A fault as a finding has it."""
    code, fix = BY_FAULT[fault.field, fault.kind]
    return Verdict(fault.field, fault.clause, code, fix)
