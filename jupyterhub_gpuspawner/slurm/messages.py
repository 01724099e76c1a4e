"""Error messages of Slurm's commands and of sudo, mapped to messages of this package. Pure.

Sources: Slurm 22.05, 24.11 and 26.05 as recorded on clusters, slurm_errno.c, sudo(8) and sudo-rs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import (
    ConfigError,
    GPUSpawnerError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.slurm.reason import meaning

_NEVER = r"(?!)"
"""A pattern that matches nothing."""


class _Row(NamedTuple):
    pattern: str
    """A pattern that the command's message matches."""
    ours: str
    hint: str


class _Silence(NamedTuple):
    ours: str
    hint: str
    error: str = _NEVER
    """Pattern for whole error texts (slurm_strerror, and strerror behind it)."""
    line: str = _NEVER
    """Pattern for whole lines of a command that never reached slurmctld, without the command's name."""

    @property
    def pattern(self) -> str:
        """Either of the two."""
        return "|".join(pattern for pattern in (self.error, self.line) if pattern != _NEVER)


_NO_ANSWER = (
    _Silence(
        "munge is not responding, or refuses the request",
        "Check munge on the hub's machine and on slurmctld's: both need the same key and synchronised clocks.",
        error=r"Protocol authentication error|Invalid authentication credential|Munge (?:en|de)code failed.*",
        line=r"Munge (?:en|de)code failed: .*|\w+: auth_g_\w+: \w+ has authentication error",
    ),
    _Silence(
        "Slurm's configuration was not found",
        "Install slurm.conf at its default path, or set SLURM_CONF for the hub; sudo passes it on only if "
        "env_keep names it.",
        line=r"(?:\w+: )?cannot stat file .*|Unable to process configuration file"
        r"|Could not establish a configuration source|ClusterName needs to be specified",
    ),
    _Silence(
        "slurmctld cannot be reached",
        "Check `scontrol ping`.",
        error=r"Unable to contact slurm controller(?: \(\w+ failure\))?",
    ),
    _Silence(
        "slurmdbd cannot be reached",
        "Check `sacctmgr ping`.",
        error=r"Unable to contact slurmdbd?.*|Problem talking to (?:the )?database",
        line=r"There is a problem talking to the database: .*|Problem talking to (?:the )?database",
    ),
    _Silence(
        "slurmdbd does not know where the cluster's slurmctld is",
        "slurmctld has been shut down, or req_cluster is not the name of a cluster: see `sacctmgr show cluster`.",
        line=r"'[^']*' can't be reached now, or it is an invalid entry for .*",
    ),
    _Silence(
        "slurmctld is not responding",
        "Check `scontrol ping` and slurmctld's log: munge refuses requests if keys or clocks differ.",
        error=r"Zero Bytes were transmitted or received",  # all that 22.05's commands say where munge refuses
    ),
    _Silence(
        "slurmctld is not responding",
        "Check `scontrol ping`.",
        error=r"Socket timed out on send/recv operation|Connection (?:refused|timed out|reset by peer)"
        r"|Transport endpoint is not connected|[Cc]ommunication (?:connection|send|receive|shutdown) failure"
        r"|Controller is in standby mode, try a different controller|Slurm backup controller in standby mode"
        r"|Unable to query jobs state",
    ),
    _Silence(
        "the versions of the hub's Slurm commands and of slurmctld are incompatible",
        "Install Slurm commands of slurmctld's version.",
        error=r"Incompatible versions? of client and server code|[^:]*[Pp]rotocol version[^:]*",
    ),
    _Silence(
        "slurmctld is not accepting jobs at the moment",
        "See slurmctld's log.",
        error=r"Resource temporarily unavailable|Slurm temporarily unable to accept job.*|Slurm job queue full.*"
        r"|Job creation temporarily disabled|I/O error writing script/environment to file",
    ),
)
_NO_CLUSTER = r"No cluster '[^']*' known by database"
_OUTCOME = re.compile(
    r"^(?:sbatch: error: Batch job submission failed|(?:sbatch: error: )?allocation failure): (?P<error>.*?)\s*$",
    re.MULTILINE,
)
"""sbatch's final message; with --test-only it comes without sbatch's name.

Lines before it may come from a job_submit plugin.
"""
_OWN_LINE = re.compile(r"^sbatch: (?:error|fatal): (?P<line>.*?)\s*$", re.MULTILINE)

_SUDO = (
    _Row(
        r"^sudo: .*(password|terminal is required|no tty present|authentication is required)|^Sorry, try again",
        "sudo asks for a password",
        "Allow the hub's account to run Slurm's commands without one (NOPASSWD in sudoers).",
    ),
    _Row(
        r"^sudo: unknown user|^sudo: user '.*' not found|^(sudo|runuser|su): user .* does not exist",
        "there is no such account on the hub's machine",
        "Each user of the hub needs a system account.",
    ),
    _Row(
        r"^(sudo: )?\S+ is not in the sudoers file"
        r"|^(sudo: |Sorry, ).*(is not allowed to (execute|run)|may not run sudo)"
        r"|^sudo: .*not allowed to (preserve|set) the|^(sudo(-rs)?: )?I'm sorry .*afraid I can't do that",
        "sudo does not allow it",
        "Compare the command with the sudoers file.",
    ),
    _Row(
        r"^sudo: .*: command not found|^sudo: unable to execute",
        "sudo cannot find the command",
        "Set slurm_bin_dir to the folder with Slurm's commands, wrapper_dir to that of the scripts.",
    ),
    _Row(
        r"^sudo: |^PAM |^runuser: |^su: |^setpriv: ",
        "the command of exec_prefix failed",
        "Run the command by hand as the hub's account.",
    ),
)


class Rejection(NamedTuple):
    """Why Slurm refused a job."""

    field: str
    """The profile field at fault; empty where that is not known."""
    clause: str
    """Without leading capital and final full stop; for a participant unless it is about a field of the hub's."""


_REJECTIONS = (
    (r"invalid partition specified: (?P<what>\S+)", "partition", "there is no partition {what}"),
    (r"Invalid partition name", "partition", "there is no such partition"),
    (r"Required partition not available", "partition", "the partition is closed (inactive or draining)"),
    (r"Requested partition configuration", "partition", "the partition cannot provide these resources at the moment"),
    (r"User's group not permitted", "partition", "you are not a member of any group that may use the partition"),
    (r"Invalid account", "account", "the account does not exist, or you are not allowed to use it in this partition"),
    (r"Invalid qos", "qos", "the QOS does not exist, or you are not allowed to use it"),
    (r"Requested reservation is invalid", "reservation", "there is no such reservation"),
    (r"Access denied to requested reservation", "reservation", "you are not allowed to use the reservation"),
    (
        r"Requested time limit is invalid",
        "time",
        "it asks for more time than the partition allows, or for no time at all",
    ),
    (r"Invalid --time\b", "time", "the time limit is not valid"),
    (r"Memory specification can not be satisfied", "memory", "no node of the partition has that much memory"),
    (r"Invalid --mem(-per-\w+)? ", "memory", "the amount of memory is not valid"),
    (r"CPU count per node can not be satisfied", "cpus", "no node of the partition has that many CPUs"),
    (r"More processors requested", "cpus", "it asks for more CPUs than the partition or its nodes allow"),
    (r"Invalid numeric value .* for --(ntasks|cpus-per-task)", "cpus", "the number of CPUs or tasks is not valid"),
    (
        r"Invalid generic resource|Invalid Trackable RESource",
        "gpus",
        "the cluster has no such generic resource: the GPU type is unknown, or the count is not a number",
    ),
    (r"Node count specification invalid", "nodes", "the partition does not allow this number of nodes"),
    (r"not a valid node count", "nodes", "the number of nodes is not valid"),
    (r"Invalid node name", "nodelist", "there is no such node"),
    (r"Invalid feature", "constraint", "no node has such a feature"),
    (r"Invalid license", "licenses", "there is no such licence"),
    (r"Job dependency problem", "dependency", "the job to wait for does not exist, or is not specified correctly"),
    (r"Invalid job array", "array", "the job array is too large, or not valid"),
    (rf"{_NO_CLUSTER}|can't be reached now", "clusters", "there is no such cluster"),
    (r"--uid only permitted by root", "uid", "only root may submit for somebody else with --uid"),
    (r"Invalid user id|User not found on host", "exec_prefix", "this account is not allowed to submit jobs here"),
    (
        r"Requested node configuration is not available",
        "gpus, cpus, memory, nodes",
        "no node of the partition has all the requested resources",
    ),
    (r"unrecognized option '(?P<what>[^']*)'", "script", "sbatch does not know the option {what}"),
    (r"option '(?P<what>[^']*)' \w+n't allow an argument", "script", "sbatch's option {what} takes no value"),
    (r"option '(?P<what>[^']*)' requires an argument", "script", "sbatch's option {what} needs a value"),
    (r"Batch script is empty", "script", "the batch script is empty"),
    (r"does not look like a batch script", "script", "the batch script does not begin with #! and an interpreter"),
    (r"DOS line breaks", "script", "the batch script has DOS line endings"),
    (r"NULL character", "script", "the batch script has a NUL character"),
    (r"Unable to open file", "script", "sbatch cannot read the batch script"),
    (
        r"allocation failure: Invalid time specified",  # only --test-only says it
        "reservation",
        "the reservation has not begun, or does not last that long",
    ),
    (r"Invalid --begin|Invalid time specification", "begin", "the start time is not valid"),
    (r"Invalid --(?P<what>[\w-]+) specification", "script", "sbatch does not understand the value of --{what}"),
    (r"Access/permission denied", "account", "you do not have permission to do this"),
)

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
    for pattern, field, ours in () if of_a_plugin else _REJECTIONS:
        match = re.search(pattern, stderr)
        if match is not None:
            return Rejection(field, ours.format(**match.groupdict()))
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
        for row in _SUDO:
            match = re.search(row.pattern, stderr, re.MULTILINE)
            if match is not None:
                line = stderr[stderr.rfind("\n", 0, match.start()) + 1 :].splitlines()[0].strip()
                return ConfigError(f"{command} was not run: {row.ours} ({line}).", where=where, hint=row.hint)
    silence = _why_silent(command, stderr)
    return SlurmUnavailable(f"{command} failed: {silence.ours}.", hint=silence.hint) if silence else None


_CHECK_SLURM = "Check `scontrol ping`, that slurm.conf can be found, and munge (`munge -n`)."


class TimedOut(SlurmUnavailable):
    """A command was ended since it did not respond in time; ``stderr`` is what it had printed until then."""

    def __init__(self, command: str, seconds: float, stderr: str, *, verbose: str = "") -> None:
        """``verbose``: messages of another command of Slurm's, which was asked why, with option ``-vv``."""
        silence = _why_silent(command, stderr) or _silence(verbose)
        why = f": {silence.ours}." if silence else f" and printed: {last_line(stderr)}" if stderr.strip() else "."
        text = f"{command} did not respond within {seconds:g} s{why}"
        super().__init__(text, hint=silence.hint if silence else _CHECK_SLURM)
        self.stderr = stderr


def _why_silent(command: str, stderr: str) -> _Silence | None:
    """The row of what the command says of a Slurm that gives it no answer."""
    return _silence_of_sbatch(stderr) if command == "sbatch" else _silence(stderr)


def _silence_of_sbatch(stderr: str) -> _Silence | None:
    """The row that matches if slurmctld gave sbatch no answer, judged by Slurm's own messages alone.

    The message of a job_submit plugin is printed as if it were sbatch's, followed by the outcome; a site's wrapper or
    cli_filter may print anything. So the outcome decides where there is one, otherwise whole lines known to be Slurm's.
    """
    outcomes = _OUTCOME.findall(stderr)
    if outcomes:
        return next((row for row in _NO_ANSWER if re.fullmatch(row.error, outcomes[-1])), None)
    lines = _OWN_LINE.findall(stderr)
    if any(re.match(_NO_CLUSTER, line) for line in lines):  # followed by the line of one that cannot be reached
        return None
    return next((row for row in _NO_ANSWER if any(re.fullmatch(row.line, line) for line in lines)), None)


def _silence(stderr: str) -> _Silence | None:
    """The same for a command that prints Slurm's own messages alone."""
    return next((row for row in _NO_ANSWER if re.search(row.pattern, stderr)), None)


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
