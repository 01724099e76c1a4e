"""Slurm's job reasons: a sentence and advice for participants, a hint for admins, and whether waiting helps. Pure.

Sources: squeue(1), "JOB REASON CODES"; reasons recorded on clusters of 22.05 to 26.05. The names of limits
are parsed by their grammar: scope, kind, measure, and what the limit applies to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

NAME_LENGTH = 60
"""Characters of a reason's name that are kept."""


@dataclass(frozen=True)
class Words:
    """What is shown of a reason, a job or an end; each may be empty."""

    sentence: str = ""
    """For a participant."""
    advice: str = ""
    """What a participant may do, without Slurm's terms; ``{contact}`` in it stands for whom they may ask."""
    hint: str = ""
    """For an admin."""


NO_WORDS = Words()


@dataclass(frozen=True)
class Meaning(Words):
    """What one reason means."""

    clears: bool = True
    """False: waiting alone never lets the job start."""
    for_resources: bool = False
    """The job starts as soon as its resources are free."""


OR_LESS = "A smaller choice (fewer GPUs, cores, less memory or time) may start sooner."
WHEN_FREE = "It starts automatically once they are free. Another choice may start sooner."
SHARED = "It starts when other jobs under the same limit end."
OWN = "It starts when one of your other jobs or servers ends."
CLOSED = "Choose something else, or wait until {contact} opens the partition."
STOP = "Stop it, and contact {contact}."
ADMIN = "Please contact {contact}: this choice cannot start as it is configured."
FEWER = f"Choose fewer GPUs or cores, or less memory. {ADMIN}"
LESS = f"Choose fewer resources. {ADMIN}"


_HELD = "Release it with `scontrol release JOB`, or cancel it."
_REASONS: dict[str, Meaning] = {
    "None": Meaning("Slurm has accepted the job and will consider it shortly."),
    "Resources": Meaning(
        "All matching resources are in use.",
        advice=OR_LESS,
        hint="`squeue --start` may show when it starts.",
        for_resources=True,
    ),
    "Priority": Meaning(
        "Jobs with a higher priority start first.",
        advice=OR_LESS,
        hint="`sprio -j JOB` shows the components of its priority.",
        for_resources=True,
    ),
    "SchedDefer": Meaning(
        "Waiting: Slurm has deferred scheduling the job.",
        hint="SchedulerParameters has `defer`.",
        for_resources=True,
    ),
    "Prolog": Meaning("Slurm is preparing the node.", hint="The prolog is running."),
    "Cleaning": Meaning("Waiting until Slurm has cleaned up after the job's earlier run."),
    "BeginTime": Meaning(
        "Waiting for the time at which the job may start.",
        advice="It starts automatically at that time.",
        hint="Set by --begin, or two minutes after a requeue.",
    ),
    "Dependency": Meaning(
        "Waiting for another job to finish.",
        advice="The job is waiting for another job. Stop it if that is not intended.",
        hint="The job has --dependency, or is a singleton.",
    ),
    "DependencyNeverSatisfied": Meaning(
        "The job depends on another job that did not end as required, so it will never start.",
        advice="Stop it: it will never start.",
        hint="Cancel it.",
        clears=False,
    ),
    "Licenses": Meaning(
        "Waiting for a software licence.", hint="`scontrol show licenses` shows which are in use.", for_resources=True
    ),
    "Reservation": Meaning(
        "Waiting for its reservation to begin.",
        advice="It starts automatically when the reservation begins.",
        hint="`scontrol show reservation` shows when.",
    ),
    "ReservationDeleted": Meaning(
        "The job's reservation was deleted, and Slurm holds the job.", advice=STOP, hint=_HELD, clears=False
    ),
    "ReservationInvalid": Meaning(
        "The job's reservation is no longer valid.", advice=STOP, hint="Name another reservation.", clears=False
    ),
    "JobArrayTaskLimit": Meaning(
        "Waiting until other tasks of the same job array end.", hint="The array has a limit (%)."
    ),
    "JobHeldUser": Meaning(
        "The job is held by its owner and will not start until it is released.",
        advice="Release it, or stop it here.",
        hint=_HELD,
        clears=False,
    ),
    "JobHeldAdmin": Meaning(
        "The job is held by an administrator and will not start until it is released.",
        advice=STOP,
        hint=_HELD,
        clears=False,
    ),
    "JobHoldMaxRequeue": Meaning(
        "Slurm requeued the job too often and holds it.",
        advice=STOP,
        hint="MaxBatchRequeue was reached: look for a failing prolog or node. " + _HELD,
        clears=False,
    ),
    "job requeued in held state": Meaning(
        "Slurm requeued the job and holds it: it will not start until it is released.",
        advice=STOP,
        hint=_HELD,
        clears=False,
    ),
    "launch failed requeued held": Meaning(
        "The node could not start the job, and Slurm holds it.",
        advice=STOP,
        hint="The prolog failed, or slurmd could not launch the job: see slurmd's log. " + _HELD,
        clears=False,
    ),
    "PartitionDown": Meaning(
        "The partition is closed at the moment.",
        advice=CLOSED,
        hint="`scontrol update partition=NAME state=up` opens it.",
    ),
    "PartitionInactive": Meaning(
        "The partition is inactive at the moment.",
        advice=CLOSED,
        hint="`scontrol update partition=NAME state=up` opens it.",
    ),
    "PartitionNodeLimit": Meaning(
        "The job asks for more or fewer nodes than the partition allows, so it will never start.",
        advice=FEWER,
        hint="Compare `nodes` in the profile with MinNodes and MaxNodes of the partition.",
        clears=False,
    ),
    "PartitionTimeLimit": Meaning(
        "The job asks for more time than the partition allows, so it will never start.",
        advice="Choose a shorter time.",
        hint="Compare `time` in the profile with MaxTime of the partition.",
        clears=False,
    ),
    "PartitionConfig": Meaning(
        "The partition cannot satisfy the job's request at the moment.",
        advice="It starts automatically once the partition has enough nodes. Another choice may start sooner.",
        hint="Compare the profile with the partition (`scontrol show partition`) and the states of its nodes.",
    ),
    "MaxMemPerLimit": Meaning(
        "The job asks for more memory than the partition allows, so it will never start.",
        advice="Choose less memory.",
        hint="Compare `memory` in the profile with MaxMemPerNode or MaxMemPerCPU of the partition.",
        clears=False,
    ),
    "BadConstraints": Meaning(
        "No node can satisfy the job's request.",
        advice=FEWER,
        hint="Compare gpus, cpus, memory, nodes and constraint in the profile with `scontrol show node`.",
        clears=False,
    ),
    "ReqNodeNotAvail": Meaning(
        "A node that the job needs is not available now.",
        advice=WHEN_FREE,
        hint="`sinfo -R` shows why nodes are out of service.",
        for_resources=True,
    ),
    "AccountNotAllowed": Meaning(
        "The job's account is not allowed to use this partition or QOS.",
        advice=ADMIN,
        hint="Set `account` in the profile to one that is allowed.",
        clears=False,
    ),
    "QOSNotAllowed": Meaning(
        "The job's QOS is not allowed in this partition or for this account.",
        advice=ADMIN,
        hint="Set `qos` in the profile to one that is allowed.",
        clears=False,
    ),
    "InvalidAccount": Meaning(
        "The job's account is no longer valid.", advice=ADMIN, hint="Set `account` in the profile.", clears=False
    ),
    "InvalidQOS": Meaning(
        "The job's QOS is no longer valid.", advice=ADMIN, hint="Set `qos` in the profile.", clears=False
    ),
    "AccountingPolicy": Meaning(
        "Waiting: a limit of the account or the QOS has been reached.",
        advice=SHARED,
        hint="`sacctmgr show assoc,qos` shows limits.",
    ),
    "QOSJobLimit": Meaning("Waiting: the job limit of the QOS has been reached.", advice=SHARED),
    "QOSResourceLimit": Meaning("Waiting: a resource limit of the QOS has been reached.", advice=SHARED),
    "QOSTimeLimit": Meaning("Waiting: the time limit of the QOS has been reached.", advice=SHARED),
    "QOSUsageThreshold": Meaning(
        "Waiting: the account has used more than its QOS allows.", advice=SHARED, hint="UsageThreshold of the QOS."
    ),
    "AssociationJobLimit": Meaning("Waiting: the job limit of the account has been reached.", advice=SHARED),
    "AssociationResourceLimit": Meaning("Waiting: a resource limit of the account has been reached.", advice=SHARED),
    "AssociationTimeLimit": Meaning("Waiting: the time limit of the account has been reached.", advice=SHARED),
    "FedJobLock": Meaning("Waiting while the clusters of the federation agree on which of them runs the job."),
    "FrontEndDown": Meaning("Waiting: no front-end node is up."),
    "BurstBufferResources": Meaning("Waiting for space in the burst buffer."),
    "BurstBufferStageIn": Meaning("Waiting while data are copied to the burst buffer."),
    "BurstBufferOperation": Meaning("The burst buffer failed.", hint="See slurmctld's log."),
    "PowerNotAvail": Meaning("Waiting until there is enough electric power."),
    "PowerReserved": Meaning("Waiting: the electric power is reserved."),
    "NodeDown": Meaning("A node of the job went down.", hint="`sinfo -R` shows why."),
    "SystemFailure": Meaning("Slurm itself failed.", hint="See slurmctld's log."),
    "JobLaunchFailure": Meaning(
        "The node could not start the job.", hint="See slurmd's log on the node, and the job's log."
    ),
    "NonZeroExitCode": Meaning("The job ended with an error.", hint="See the job's log."),
    "RaisedSignal": Meaning(
        "The job was ended by a signal.", hint="Signal 9 is often the memory limit. See the job's log."
    ),
    "OutOfMemory": Meaning("The job exceeded its memory limit.", hint="Give the profile more memory."),
    "TimeLimit": Meaning("The job reached its time limit.", hint="Give the profile more time."),
    "DeadLine": Meaning("The job cannot end before its deadline."),
    "InactiveLimit": Meaning("The job was ended because it was inactive.", hint="InactiveLimit in slurm.conf."),
}

_PHRASES: tuple[tuple[re.Pattern[str], Meaning], ...] = (
    (
        re.compile(r"ReqNodeNotAvail, Reserved for maintenance"),
        Meaning(
            "Waiting: the nodes are reserved for maintenance.",
            advice="A job with a shorter time limit may be able to end before the maintenance begins.",
            hint="A job with a shorter `time` may be able to end before the maintenance begins.",
            for_resources=True,
        ),
    ),
    (
        re.compile(r"ReqNodeNotAvail, May be reserved for other job"),
        Meaning(
            "Waiting: the nodes are reserved for another job or by a reservation.",
            advice=WHEN_FREE,
            hint="`scontrol show reservation` shows reservations.",
            for_resources=True,
        ),
    ),
    (
        re.compile(r"ReqNodeNotAvail, *UnavailableNodes:"),
        Meaning(
            "Waiting: nodes that the job needs are not available.",
            advice=WHEN_FREE,
            hint="`sinfo -R` shows why nodes are out of service.",
            for_resources=True,
        ),
    ),
    (re.compile(r"ReqNodeNotAvail\b"), _REASONS["ReqNodeNotAvail"]),
    (
        re.compile(r"Nodes required for job are DOWN, DRAINED"),
        Meaning(
            "Waiting: suitable nodes are down, or reserved for jobs with higher priority.",
            advice=WHEN_FREE,
            hint="`sinfo -R` shows why nodes are out of service.",
            for_resources=True,
        ),
    ),
    (
        re.compile(r"uid \d+ not in group permitted to use this partition"),
        Meaning(
            "You are not a member of any group that may use this partition.",
            advice=ADMIN,
            hint="AllowGroups of the partition.",
            clears=False,
        ),
    ),
    (re.compile(r"Job's account not (known|permitted)"), _REASONS["AccountNotAllowed"]),
    (re.compile(r"Job's QOS not (known|permitted)"), _REASONS["QOSNotAllowed"]),
    (re.compile(r"RaisedSignal:"), _REASONS["RaisedSignal"]),
)

_LIMIT = re.compile(
    r"(?P<scope>QOS|Assoc|)(?P<kind>Grp|Max|Min)"
    r"(?P<what>Cpu|CPU|GRES|SubmitJobs?|Jobs|Mem(?:ory)?|Node|Wall(?:Duration)?|Energy|License|BB|Billing|Unknown)"
    r"(?P<minutes>RunMinutes|Minutes)?(?P<per>PerJob|PerNode|PerUser|PerAccount)?(?:Limit|NotSatisfied)?"
)
_MEASURES = {
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "GRES": "GPUs",
    "Submit": "jobs at a time",
    "Jobs": "running jobs",
    "Mem": "memory",
    "Node": "nodes",
    "Wall": "time",
    "Energy": "energy",
    "License": "licences",
    "BB": "burst buffer",
    "Billing": "billing units",
    "Unknown": "some resource",
}


def reason_name(reason: str) -> str:
    """The name of a reason without what Slurm adds for one job: nodes, or a time."""
    return re.split(r"[,(]", reason, maxsplit=1)[0].strip()[:NAME_LENGTH]


@lru_cache(maxsize=1024)
def meaning(reason: str) -> Meaning:
    """What one of Slurm's reasons means; an unknown reason is quoted."""
    if not reason:
        return _REASONS["None"]
    if reason in _REASONS:
        return _REASONS[reason]
    for pattern, phrase in _PHRASES:
        if pattern.match(reason):
            return phrase
    limit = _LIMIT.fullmatch(reason)
    if limit is not None:
        return _limit(reason, limit)
    return Meaning(f"Waiting: Slurm says '{reason}'.")


def _limit(reason: str, limit: re.Match[str]) -> Meaning:
    what = next(words for name, words in _MEASURES.items() if limit["what"].startswith(name))
    if limit["minutes"]:
        what += " times minutes"
    whose = "its account" if limit["scope"] == "Assoc" else "its QOS"
    table = "assoc" if limit["scope"] == "Assoc" else "qos"
    hint = f"{reason} is a limit of `sacctmgr show {table}`."
    if limit["kind"] == "Min":
        fewer = "less" if what in ("memory", "time", "energy") else "fewer"
        return Meaning(
            f"The job asks for {fewer} {what} than {whose} requires, so it will never start.",
            advice=LESS,
            hint=hint,
            clears=False,
        )
    if limit["per"] in ("PerJob", "PerNode"):
        one = "one job" if limit["per"] == "PerJob" else "one node"
        return Meaning(
            f"The job asks for more {what} than {whose} allows for {one}, so it will never start.",
            advice=LESS,
            hint=hint,
            clears=False,
        )
    hint += " A single job that requests more than this will never start."
    if limit["per"] == "PerAccount" or limit["kind"] == "Grp":
        holder = "jobs of this QOS" if limit["scope"] == "QOS" else "jobs of this account"
        return Meaning(f"Waiting: all {holder} together have reached a limit ({what}).", advice=SHARED, hint=hint)
    return Meaning(f"Waiting: your own jobs have reached a limit ({what}).", advice=OWN, hint=hint)


def never_clears(reason: str) -> bool:
    """Whether waiting cannot help, so that the job, its limits or its partition have to change.

    True only where this is certain: a limit shared with other jobs and an unknown reason may clear.
    """
    return not meaning(reason).clears


# Why a node is out of service: what an admin, or Slurm itself, has written (scontrol(1), ``Reason``).

_SIGNED = re.compile(r"(?P<words>.*?) *\[(?P<by>[^\s@\[\]]+)@(?P<at>\d{9,11})\]", re.DOTALL | re.ASCII)
"""A node's reason as scontrol prints it with ``SLURM_TIME_FORMAT=%s``."""
_NODES_REASONS = {"Not responding": "it does not respond"}
"""Slurm's own reasons in words for participants."""


class NodeReason(NamedTuple):
    """Why a node is out of service."""

    text: str
    by: str = ""
    """Who set it; empty where Slurm does not report it."""
    at: float | None = None
    """When, in seconds since the epoch; None where Slurm does not report it."""

    @property
    def for_user(self) -> str:
        """The text for participants."""
        return _NODES_REASONS.get(self.text, self.text)


def node_reason(text: str) -> NodeReason:
    """Read a node's reason, with who set it and when where these stand behind it."""
    signed = _SIGNED.fullmatch(text)
    return NodeReason(signed["words"], signed["by"], float(signed["at"])) if signed else NodeReason(text)
