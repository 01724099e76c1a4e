"""Raising the time limit of a running job: command line, standard input of the script, and answers. Pure.

Slurm lets a user lower the limit of a job; only root, SlurmUser and operators may raise it (scontrol(1), TimeLimit).
"""

from __future__ import annotations

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.slurm.commands import Answer, fixed_prefix
from jupyterhub_gpuspawner.slurm.messages import failure, is_forbidden, is_over, last_line

EXTEND = "extend"
"""The script of ``wrapper_dir`` that raises a limit as a Slurm operator."""
SETTING = "extend_prefix"
"""The setting with the prefix that runs it."""
MINUTES_AT_MOST = 1440
"""Minutes that are added at once at most; the script has the same limit."""
_NO_INPUT = "extend: the input is not a job id and a number of minutes"
_OF_ANOTHER_HUB = "extend: this is not a running job of this hub"


def operator_prefix(text: str) -> tuple[str, ...]:
    """``extend_prefix`` as words; raises ConfigError. It has no fields: one account extends all servers."""
    return fixed_prefix(text, where=SETTING, hint="Name the account of a Slurm operator, such as sudo -n -u slurm.")


def update_arguments(job_id: str, minutes: int) -> tuple[str, ...]:
    """The arguments of scontrol; a sum, so that a limit that an admin has just raised is never lowered."""
    return "update", f"JobId={job_id}", f"TimeLimit=+{minutes}"


def script_input(job_id: str, minutes: int) -> str:
    """The standard input of the script."""
    return f"{job_id} {minutes}\n"


def refuses_nothing(answer: Answer) -> None:
    """Raise ConfigError unless this is the script's answer to an empty standard input."""
    if _NO_INPUT in answer.stderr:
        return
    raise failure(EXTEND, answer.stderr, where=SETTING) or ConfigError(
        f"The script `extend` does not run: {last_line(answer.stderr or answer.stdout)}.",
        where=SETTING,
        hint="Install config/wrappers/extend in wrapper_dir, and run it as an account that is not root.",
    )


def refused(command: str, job_id: str, answer: Answer) -> GPUSpawnerError | None:
    """The error for a failed answer of scontrol or the script; None if the job has ended."""
    if is_over(answer.stderr):
        return None
    error = failure(command, answer.stderr, where=SETTING)
    if error is not None:
        return error
    hint = "The command must run as a Slurm operator."
    if _OF_ANOTHER_HUB in answer.stderr:
        hint = "HUB in the script must be this hub's hub_name, and the job must have the comment that the hub gave it."
    elif not is_forbidden(answer.stderr):
        hint = "See slurmctld's log."
    return ConfigError(
        f"The time limit of job {job_id} was not raised: {last_line(answer.stderr)}.",
        where=SETTING,
        hint=hint,
        for_user="The hub could not extend this server: it is not set up correctly.",
    )
