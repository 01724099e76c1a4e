"""A Slurm job: its state, what it was allocated, whose it is, and words for it.

:data:`PHASES` maps Slurm's job states to phases. A state that it does not contain is UNKNOWN, and a server whose job is
in an UNKNOWN state is kept. Reasons are explained in :mod:`jupyterhub_gpuspawner.slurm.reason`.

Source: squeue(1), "JOB STATE CODES", of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from jupyterhub_gpuspawner.slurm.reason import IN_SERVICE, OutOfService, Words, meaning, table
from jupyterhub_gpuspawner.units import NodeAllocation
from jupyterhub_gpuspawner.words import duration, memory


class Phase(str, Enum):
    """The phase of a job's life, as far as a server depends on it."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"
    UNKNOWN = "unknown"


class End(str, Enum):
    """How a job ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failed"
    PREEMPTED = "preempted"
    VANISHED = "vanished"
    REVOKED = "revoked"
    """Another cluster of the federation has started it."""
    REPLACED = "replaced"
    """The id now belongs to another job: slurmctld lost its state, or job ids started over."""


ENDS: dict[str, End] = {
    "BOOT_FAIL": End.NODE_FAILED,
    "CANCELLED": End.CANCELLED,
    "COMPLETED": End.FINISHED,
    "DEADLINE": End.TIME_LIMIT,
    "FAILED": End.FAILED,
    "LAUNCH_FAILED": End.FAILED,
    "NODE_FAIL": End.NODE_FAILED,
    "OUT_OF_MEMORY": End.OUT_OF_MEMORY,
    "PREEMPTED": End.PREEMPTED,
    "RECONFIG_FAIL": End.FAILED,
    "REVOKED": End.REVOKED,  # its sibling runs on another cluster of the federation
    "TIMEOUT": End.TIME_LIMIT,
}
"""Slurm's state -> how the job ended, for every state whose phase is ENDED."""

PHASES: dict[str, Phase] = {
    "PENDING": Phase.QUEUED,
    "REQUEUED": Phase.QUEUED,
    "REQUEUE_FED": Phase.QUEUED,
    "REQUEUE_HOLD": Phase.QUEUED,
    "RESV_DEL_HOLD": Phase.QUEUED,
    "SPECIAL_EXIT": Phase.QUEUED,  # requeued and held
    "CONFIGURING": Phase.STARTING,
    "RUNNING": Phase.RUNNING,
    "RESIZING": Phase.RUNNING,
    "SIGNALING": Phase.RUNNING,
    "STOPPED": Phase.RUNNING,  # by a signal; keeps its nodes
    "SUSPENDED": Phase.RUNNING,  # Slurm will resume it
    "COMPLETING": Phase.ENDING,
    "STAGE_OUT": Phase.ENDING,
    **dict.fromkeys(ENDS, Phase.ENDED),
}
"""Slurm's state -> phase. What is not here is UNKNOWN."""


def _word(state: str) -> str:
    """The bare state: sacct writes ``CANCELLED by 2001`` and ``CANCELLED+``."""
    words = state.split()
    return words[0].rstrip("+").upper() if words else ""


def phase_of(state: str) -> Phase:
    """The phase of one of Slurm's state words; UNKNOWN for a word that is not in :data:`PHASES`."""
    return PHASES.get(_word(state), Phase.UNKNOWN)


def end_of(state: str) -> End | None:
    """How a job in this state ended; None unless the state is final."""
    return ENDS.get(_word(state))


@dataclass(frozen=True)
class Job:
    """One job as Slurm last reported it. Times are seconds since the epoch, None where Slurm prints N/A.

    What follows :attr:`uid` is known from ``scontrol show job -d`` alone.
    """

    job_id: str
    phase: Phase
    state: str = ""
    """Slurm's word, such as ``PENDING``."""
    reason: str = ""
    """Slurm's word, such as ``Resources``; empty for ``None``."""
    nodes: str = ""
    """Slurm's node list, unexpanded (``g[1-2]``)."""
    batch_host: str = ""
    """The first node: where the batch script, and so the server, runs."""
    user: str = ""
    partition: str = ""
    starts_at: float | None = None
    ends_at: float | None = None
    exit_code: str = ""
    """``code:signal`` of a job that is ending or has ended, such as ``3:0``; else empty."""
    end: End | None = None
    tag: str = ""
    """The job's comment, as Slurm stores it. Its owner may change it, so it does not prove who owns the job."""
    name: str = ""
    """The job's name; its owner may change it, too."""
    uid: int | None = None
    """The owner's uid; ``user`` is the name that Slurm finds for it on this machine, if there is one."""
    time_limit: int | None = None
    """Seconds; None for UNLIMITED."""
    memory_mib: int | None = None
    """What it requested on each node, else what it was allocated on its only one; None where neither is known."""
    latest_start: float | None = None
    """When Slurm removes the job if it is still pending: its ``--deadline`` less its time limit. None: never."""
    stdout_path: str = ""
    """Path of the log file. The owner chose it: never open it with rights that the owner does not have."""
    allocations: tuple[NodeAllocation, ...] = ()
    """One for each node; empty while the job is pending."""

    @property
    def is_prepared(self) -> bool:
        """Slurm runs its Prolog on the nodes, for as long as PrologEpilogTimeout allows; the script has not begun."""
        return self.phase in (Phase.STARTING, Phase.RUNNING) and self.reason == "Prolog"

    @property
    def ends_at_iso(self) -> str | None:
        """The end as ISO 8601 in UTC; None where Slurm reports none."""
        return None if self.ends_at is None else datetime.fromtimestamp(self.ends_at, timezone.utc).isoformat()


# Whose a job is. The job id is not enough, since Slurm may assign the same id again: ids start over after slurmctld
# loses its state, and after MaxJobId (slurm.conf(5)). Nobody can change a job's owner; its comment and name can be
# changed by the owner, by an admin, and by a site's plugins.

PREFIX = "jupyterhub-gpuspawner"
"""Begins the tag in every job's comment, which names hub, user and server, so that the hub can find the job again."""
START = "{start}"
"""Placeholder for the start id in the setting for job names."""


def hub_mark(cookie_secret: bytes) -> str:
    """Return eight hexadecimal digits that tell this hub from another one of the same name; empty without a secret."""
    return hmac.new(cookie_secret, PREFIX.encode(), hashlib.sha256).hexdigest()[:8] if cookie_secret else ""


def tag(hub: str, user: str, server: str) -> str:
    """``jupyterhub-gpuspawner/<hub>/<user>/<server>``, each percent-encoded; the server's name may be empty.

    It contains no blank, comma, ``|``, ``#``, quote or control character, whatever the names contain.
    """
    return "/".join((PREFIX, *(quote(part, safe="") for part in (hub, user, server))))


def parse_tag(text: str) -> tuple[str, str, str] | None:
    """Hub, user and server of a job's comment; None if it is not a tag. What follows a ``#`` is ignored."""
    match text.strip().partition("#")[0].split("/"):
        case [head, hub, user, server] if head == PREFIX:
            return unquote(hub), unquote(user), unquote(server)
    return None


def start_of(text: str) -> str:
    """The start id, which follows the ``#`` of a tag; empty where there is none."""
    return text.strip().partition("#")[2] if parse_tag(text) else ""


def job_name(template: str, start_id: str) -> str:
    """The job name: ``template`` with the start id filled in, or without it for a trial (empty ``start_id``)."""
    if start_id:
        return template.replace(START, start_id)
    return template.replace(START, "").strip("-_. ") or "jupyterhub"


def start_of_name(template: str, name: str) -> str:
    """The start id in a job name made by :func:`job_name`; empty for any other name."""
    before, placeholder, after = template.partition(START)
    fits = placeholder and name.startswith(before) and name.endswith(after)
    return name[len(before) : len(name) - len(after)] if fits and len(name) > len(before) + len(after) else ""


@dataclass(frozen=True)
class JobIdentity:
    """What is known of the job of one start besides its id. Empty or None: not known."""

    owner: str = ""
    """The account that the job belongs to."""
    uid: int | None = None
    """The owner's uid; takes precedence over the name, which may not resolve on the hub's machine."""
    tag: str = ""
    """The job's comment. One without a start id (``#...``) was stored by an earlier version."""
    name: str = ""
    """The job's name, if it contains the start id as well; for sites that replace comments."""

    def owns(self, job: Job) -> bool | None:
        """Whether the job belongs to the owner; None where that is not known."""
        if self.uid is not None and job.uid is not None:
            return self.uid == job.uid
        # squeue(1) says "nobody", or the number, for an account that this machine does not have
        if not self.owner or job.user in ("", "nobody") or job.user.isdigit():
            return None
        return self.owner == job.user

    def matches(self, job: Job) -> bool:
        """Whether the job with this id is the start's own, as far as is known."""
        return self.owns(job) is not False and self._named_by(job)

    def proves(self, job: Job) -> bool:
        """The same for a job whose id did not come from sbatch: the owner must be certain."""
        return self.owns(job) is True and self._named_by(job)

    def _named_by(self, job: Job) -> bool:
        if self._exact:
            return bool(self.tag and job.tag == self.tag) or bool(self.name and job.name == self.name)
        names, others = parse_tag(self.tag), parse_tag(job.tag)
        # batchspawner's jobs have no tag, so a job without one may be the server's own
        return names is None or others is None or names[1:] == others[1:]

    @property
    def _exact(self) -> bool:
        """Whether comment or name distinguish this start from any other."""
        return bool(start_of(self.tag)) if parse_tag(self.tag) else bool(self.tag or self.name)

    @property
    def complete(self) -> bool:
        """Whether the first answer of Slurm could add nothing."""
        return self._exact and bool(self.owner or self.uid is not None)

    def may_be(self, job: Job) -> bool:
        """Whether the job is the start's own, given that sbatch has just returned this id.

        A job with this start's comment or name is, whoever owns it, since a site's command may submit as another
        account. So is one whose comment and name a plugin has replaced, unless it has another owner.
        """
        if self._exact and self._named_by(job):
            return True
        return self.owns(job) is not False and (self._named_by(job) or parse_tag(job.tag) is None)

    def completed_from(self, job: Job) -> JobIdentity:
        """This identity, with unknown values taken from ``job``, which must be the start's own."""
        is_learnt = (self.owner or self.uid is not None) and self.owns(job) is not False
        identity = self if is_learnt else replace(self, owner=job.user, uid=job.uid)
        if self._exact and self._named_by(job):
            return identity
        return replace(identity, tag=job.tag, name="" if start_of(job.tag) else job.name)

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state."""
        fields = {"owner": self.owner, "uid": self.uid, "tag": self.tag, "name": self.name}
        return {key: value for key, value in fields.items() if value not in ("", None)}


def identity_from_json(document: object) -> JobIdentity | None:
    """Read what :meth:`JobIdentity.to_json` wrote; None for anything else."""
    if not isinstance(document, dict):
        return None
    texts = [document.get(key, "") for key in ("owner", "tag", "name")]
    uid = document.get("uid")
    if not all(isinstance(text, str) for text in texts) or not (uid is None or type(uid) is int):
        return None
    owner, tag, name = texts
    return JobIdentity(owner=owner, uid=uid, tag=tag, name=name)


# Jobs in words, which stand in ``job.yaml``.

KILLED = ("0:9", "137:0")
"""Exit codes of a job of which a process was killed by signal 9."""
NO_LOG = "0:53"
"""slurmd could not open the job's output file or enter its folder (it raises signal 53)."""
_EXIT_REASONS = ("NonZeroExitCode", "JobLaunchFailure", "RaisedSignal")
"""Reasons that add nothing to the exit code."""


_TABLE = table(__file__)
_STATES: Mapping[str, str] = _TABLE["states"]
"""Sentences by Slurm's state."""
_PHASES: Mapping[str, str] = _TABLE["phases"]
"""Sentences by phase, with fields in braces."""
_ENDS, _EXITS = ({name: Words(**words) for name, words in _TABLE[part].items()} for part in ("ends", "exits"))
"""The second by exit code."""


def job_words(
    job: Job, *, matching: str = "resources", contact: str = "your administrator", out: OutOfService = IN_SERVICE
) -> Words:
    """What is said of a job, in plain words where they suffice; there is always a sentence.

    ``matching`` is what it asks for, such as ``GPUs``, where that is known; ``contact`` is whom a participant may ask.
    ``out`` says which nodes are out of service, if a pending job waits for them.
    """
    if job.phase is Phase.QUEUED:
        words = _queued(job, matching, out)
    elif job.phase is Phase.ENDED:
        words = _of_end(job)
    else:
        host, hint = job.batch_host, f"Please report the state {job.state!r} to the project."
        text = _PHASES[Phase.STARTING if job.is_prepared else job.phase].format(
            node=f"node {host}" if host else "a node", on=f" on {host}" if host else "", state=job.state or "none"
        )
        words = Words(text, hint=hint if job.phase is Phase.UNKNOWN else "")
    return Words(_STATES.get(job.state, words.sentence), words.advice.replace("{contact}", contact), words.hint)


def _queued(job: Job, matching: str, out: OutOfService) -> Words:
    words = meaning(job.reason)
    if out.clause:
        return replace(words, sentence=f"{'Waiting:' if out.all else words.sentence} {out.clause}.")
    return replace(words, sentence=f"All matching {matching} are in use.") if job.reason == "Resources" else words


def _of_end(job: Job) -> Words:
    if job.state == "DEADLINE":
        return _ENDS["deadline"]
    words = _ENDS[job.end or "ended"]
    if job.end is End.FAILED:
        words = _EXITS.get(job.exit_code) or replace(words, sentence=_of_exit_code(job.exit_code))
        if job.exit_code != NO_LOG and job.reason and not job.reason.startswith(_EXIT_REASONS):
            why = meaning(job.reason).sentence.removeprefix("Waiting: ")
            words = replace(words, sentence=f"The job failed. {why[0].upper()}{why[1:]}")
    elif job.end is End.TIME_LIMIT and job.time_limit:
        words = replace(words, sentence=f"The job reached its time limit of {duration(job.time_limit)}.")
    elif job.end is End.OUT_OF_MEMORY and job.memory_mib:
        words = replace(words, sentence=f"The job exceeded its memory limit of {memory(job.memory_mib)}.")
    return replace(words, hint=words.hint or (meaning(job.reason).hint if job.reason else ""))


def _of_exit_code(exit_code: str) -> str:
    code, _, signal = exit_code.partition(":")
    if signal not in ("", "0"):
        return f"The job failed: it was ended by signal {signal}."
    return f"The job failed with exit code {code}." if code not in ("", "0") else "The job failed."


SILENT = (
    "If the job's log is empty, or has only what your login profile prints, that profile ended the job before the "
    "server could start: look for exec or exit in ~/.bash_profile, ~/.bash_login or ~/.profile, and run these in "
    "interactive shells only. If they have none, a line of the batch script ended it: tell your administrator."
)
"""For a job that ended by itself before its server reported, with nothing of ours in its log."""


@dataclass(frozen=True)
class Account:
    """A user's account, as a job's environment needs it."""

    name: str
    home: str
    shell: str = "/bin/bash"
    uid: int | None = None
    """None if the hub's machine does not know the account."""


@lru_cache(maxsize=8)
def _name_of(uid: int) -> str:
    """The name of an account; asked once, since the hub waits for it."""
    with suppress(KeyError):  # in a container the uid may have no name
        return pwd.getpwuid(uid).pw_name
    return ""


def own_account() -> str:
    """The name of this process's account; empty for a uid without a name."""
    return _name_of(os.geteuid())


def job_owner(exec_prefix: str, username: str) -> str:
    """Return the account that owns a user's jobs; empty if ``exec_prefix`` does not tell."""
    if not exec_prefix.strip():
        return own_account()
    return username if "username" in exec_prefix else ""


def owner_number(exec_prefix: str, account: Account) -> int | None:
    """Return the uid of the account that owns a user's jobs; None if that is unknown."""
    if not exec_prefix.strip():
        return os.getuid()
    return account.uid if "username" in exec_prefix else None
