"""Error messages of Slurm's commands, of sudo and of ssh, mapped to messages of this package.

The table is ``messages.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.slurm.reason import meaning, table
from jupyterhub_gpuspawner.slurm.text import NEVER


@dataclass(frozen=True)
class Row:
    """What a message means, of one that matches a pattern."""

    message: str
    """A clause."""
    hint: str
    pattern: str = NEVER
    error: str = NEVER
    """For whole error texts (slurm_strerror, and strerror behind it)."""
    line: str = NEVER
    """For whole lines of a command that never reached slurmctld, without the command's name."""
    name: str = ""
    """A stable name of the kind."""
    lasting: bool = False
    """Whether it stays so until an admin changes something."""


class Rejection(NamedTuple):
    """Why Slurm refused a job."""

    field: str
    """The profile field at fault; empty where that is not known."""
    clause: str
    """Without leading capital and final full stop; for a participant unless it is about a field of the hub's."""


def _row(texts: Mapping[str, Any]) -> Row:
    row: dict[str, Any] = {key: "|".join(value) if isinstance(value, list) else value for key, value in texts.items()}
    either = "|".join(row[key] for key in ("error", "line") if key in row)
    return Row(**{"pattern": either or NEVER, **row})


_TABLE = table(__file__)
SILENCES, PREFIXES, _SSH = ([_row(texts) for texts in _TABLE[part]] for part in ("silences", "prefixes", "ssh"))
REJECTIONS = {row["pattern"]: Rejection(row["field"], row["clause"]) for row in _TABLE["rejections"]}
"""By pattern; the clause has fields in braces for the groups of the pattern."""

_NO_CLUSTER = r"No cluster '[^']*' known by database"
_OUTCOME = re.compile(
    r"^(?:sbatch: error: Batch job submission failed|(?:sbatch: error: )?allocation failure): (?P<error>.*?)\s*$",
    re.MULTILINE,
)
"""sbatch's final message; with --test-only it comes without sbatch's name.

Lines before it may come from a job_submit plugin.
"""
_OWN_LINE = re.compile(r"^sbatch: (?:error|fatal): (?P<line>.*?)\s*$", re.MULTILINE)

_POLICY = "Job violates accounting/QOS policy"
_LIMIT = re.compile(r"error: ((?:QOS|Assoc|Max)\w+)\s*$", re.MULTILINE)
_PREFIX = re.compile(
    r"^(?:sbatch: )?(?:error: |fatal: )?(?:lua: )?(?:Batch job submission failed: |allocation failure: )?", re.MULTILINE
)
_OF_A_PROFILE = frozenset(
    ("partition", "account", "qos", "reservation", "time", "memory", "cpus", "gpus", "nodes", "constraint")
)
_OF_THE_HUB = frozenset(("script", "exec_prefix", "uid", "clusters", "array", "begin", "dependency"))
"""Fields that no participant has heard of."""
_NOT_VALID = "Slurm did not accept this server as the hub asked for it"
_PLUGINS_OUTCOME = "Unspecified error"
"""SLURM_ERROR: the outcome when a job_submit plugin refused the job."""
_FILTERS_OUTCOME = "cli_filter plugin terminated with error"
"""The last line when a cli_filter plugin refused the job, which slurmctld never saw."""
_NOISE = re.compile(rf"Unspecified error|{_FILTERS_OUTCOME}|Try .*--help.*|")
_ERROR_LINE = re.compile(r"^(?:sbatch: )?error: .*", re.MULTILINE)
"""A line that sbatch prints as an error, as it does each line of a plugin that refuses."""
_NEW_SENTENCE = re.compile(r"(?<=\w)\n(?=[A-Z])")
"""The end of a line that lacks the full stop before the next one."""


def rejection(stderr: str) -> Rejection:
    """The field at fault and a clause for the user, from sbatch's message; that message itself where no row matches.

    The message of a plugin (job_submit, cli_filter) is always passed on, since it was written for the user.
    """
    if _POLICY in stderr:
        limit = _LIMIT.search(stderr)
        sentence = meaning(limit[1]).sentence if limit else "A limit of the account or the QOS has been reached."
        clause = sentence.removeprefix("Waiting: ").partition(", so it will never start")[0].rstrip(".")
        return Rejection("account, qos", clause[0].lower() + clause[1:])
    outcomes = _OUTCOME.findall(stderr)
    of_a_plugin = outcomes[-1] == _PLUGINS_OUTCOME if outcomes else _FILTERS_OUTCOME in _OWN_LINE.findall(stderr)
    for pattern, row in REJECTIONS.items() if not of_a_plugin else ():
        match = re.search(pattern, stderr)
        if match is not None:
            return row._replace(clause=row.clause.format(**match.groupdict()))
    refusal = "\n".join(_ERROR_LINE.findall(stderr)) if of_a_plugin else ""  # without what a cli_filter announces
    lines = (line.strip() for line in _PREFIX.sub("", refusal or stderr).splitlines())
    own = "\n".join(line for line in lines if not _NOISE.fullmatch(line))
    return Rejection("", _NEW_SENTENCE.sub(". ", own).replace("\n", " ")[:500].rstrip(".") or "sbatch gave no reason")


def rejected(stderr: str) -> SubmitRejected:
    """The error for a job that sbatch rejected."""
    reason = rejection(stderr)
    hint = f"Check `{reason.field}` in the profile." if reason.field else ""
    message = f"Slurm refused the job: {reason.clause}."
    field = f"slurm.{reason.field}" if reason.field in _OF_A_PROFILE else ""
    clause = _NOT_VALID if reason.field in _OF_THE_HUB else reason.clause
    return SubmitRejected(
        message,
        stderr=stderr.strip(),
        hint=hint,
        field=field,
        for_user=f"{clause[:1].upper()}{clause[1:].rstrip('.')}.",
    )


def failure(command: str, stderr: str, *, where: str = "exec_prefix") -> GPUSpawnerError | None:
    """SlurmUnavailable if the command got no answer, ConfigError if sudo stopped it; None for any other error.

    ``where`` is the setting with the prefix of the command.
    """
    if not re.search(rf"^{re.escape(command)}: ", stderr, re.MULTILINE):  # else it ran, and sudo only printed a warning
        for row in PREFIXES:
            match = re.search(row.pattern, stderr, re.MULTILINE)
            if match is not None:
                line = stderr[stderr.rfind("\n", 0, match.start()) + 1 :].splitlines()[0].strip()
                return ConfigError(f"{command} was not run: {row.message} ({line}).", where=where, hint=row.hint)
    silence = _why_silent(command, stderr)
    return SlurmUnavailable(f"{command} failed: {silence.message}.", hint=silence.hint) if silence else None


class TimedOut(SlurmUnavailable):
    """A command was ended since it did not respond in time; ``stderr`` is what it had printed until then."""

    def __init__(self, command: str, seconds: float, stderr: str) -> None:
        silence = _why_silent(command, stderr)
        why = f": {silence.message}." if silence else f" and printed: {last_line(stderr)}" if stderr.strip() else "."
        ping = "sacctmgr ping" if command == "sacctmgr" else "scontrol ping"
        hint = silence.hint if silence else f"Check `{ping}`, that slurm.conf can be found, and munge (`munge -n`)."
        super().__init__(f"{command} did not respond within {seconds:g} s{why}", hint=hint)
        self.stderr = stderr


def _why_silent(command: str, stderr: str) -> Row | None:
    """The row of what the command says of a Slurm that gives it no answer."""
    return _silence_of_sbatch(stderr) if command == "sbatch" else _silence(stderr)


def _silence_of_sbatch(stderr: str) -> Row | None:
    """The row that matches if slurmctld gave sbatch no answer, judged by Slurm's own messages alone.

    The message of a job_submit plugin is printed as if it were sbatch's, followed by the outcome; a site's wrapper or
    cli_filter may print anything. So the outcome decides where there is one, otherwise whole lines known to be Slurm's.
    """
    outcomes = _OUTCOME.findall(stderr)
    if outcomes:
        return next((row for row in SILENCES if re.fullmatch(row.error, outcomes[-1])), None)
    lines = _OWN_LINE.findall(stderr)
    if any(re.match(_NO_CLUSTER, line) for line in lines):  # followed by the line of one that cannot be reached
        return None
    return next((row for row in SILENCES if any(re.fullmatch(row.line, line) for line in lines)), None)


def _silence(stderr: str) -> Row | None:
    """The same for a command that prints Slurm's own messages alone."""
    return next((row for row in SILENCES if re.search(row.pattern, stderr)), None)


class LoginNodeUnreachable(SlurmUnavailable):
    """ssh did not run the command, or lost the connection."""

    def __init__(self, command: str, stderr: str) -> None:
        reason = ssh_reason(stderr)
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if re.search(reason.pattern, line)), "no message")
        super().__init__(
            f"{command} has no answer: {reason.message} ({last[:200]}).",
            hint=reason.hint,
            for_user="The hub cannot reach Slurm: it is not set up correctly." if reason.lasting else "",
        )


def ssh_reason(stderr: str) -> Row:
    """Why ssh did not run a command, from its messages; the last row is of any."""
    return next(row for row in _SSH if re.search(row.pattern, stderr))


_UNKNOWN_JOB = re.compile("Invalid job id specified|already complet|already finished")
_FORBIDDEN = re.compile("Access/permission denied|Invalid user id|User not found on host")


def is_forbidden(stderr: str) -> bool:
    """Whether Slurm refuses a command about a job to this account."""
    return _FORBIDDEN.search(stderr) is not None


def not_cancelled(job_id: str, stderr: str) -> ConfigError | None:
    """The error for a job that this account may not cancel; None for any other message."""
    if not is_forbidden(stderr):
        return None
    return ConfigError(
        f"scancel is not allowed to cancel job {job_id}: {last_line(stderr)}.",
        where="exec_prefix",
        hint="It must run the command as the owner of the job.",
    )


def is_over(stderr: str) -> bool:
    """Whether Slurm reports that the job does not exist or has ended."""
    return _UNKNOWN_JOB.search(stderr) is not None


def last_line(stderr: str) -> str:
    """The last line that is not empty, for a failure that no table knows."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"
