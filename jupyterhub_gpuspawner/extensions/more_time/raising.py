"""Raises the time limits of running jobs: by scontrol, or by the script ``extend`` as a Slurm operator.

Slurm lets a user lower a limit; only root, SlurmUser and operators may raise it (scontrol(1), TimeLimit).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub.site.connection import Cluster, SharedView
from jupyterhub_gpuspawner.slurm.accounts import has_all_rights
from jupyterhub_gpuspawner.slurm.client import SlurmClient, checked_job_id
from jupyterhub_gpuspawner.slurm.commands import fixed_prefix
from jupyterhub_gpuspawner.slurm.messages import failure, is_forbidden, is_over, last_line
from jupyterhub_gpuspawner.slurm.process import Answer

EXTEND = "extend"
"""The script of ``wrapper_dir`` that raises a limit as a Slurm operator."""
EXTEND_PREFIX = "extend_prefix"
"""The setting with the prefix that runs it."""
_NO_INPUT = "extend: the input is not a job id and a number of minutes"
_OF_ANOTHER_HUB = "extend: this is not a running job of this hub"


def operator_prefix(text: str) -> tuple[str, ...]:
    """``extend_prefix`` as words; raises ConfigError. It has no fields: one account extends all servers."""
    return fixed_prefix(
        text, where=EXTEND_PREFIX, hint="Name the account of a Slurm operator, such as sudo -n -u slurm."
    )


async def raise_limit(client: SlurmClient, job_id: str, minutes: int, *, prefix: Sequence[str] = ()) -> bool:
    """Add minutes to the time limit of a running job; False if the job has ended.

    ``prefix`` runs the script ``extend`` as an operator; without it, scontrol runs as the hub's own account. Slurm
    checks an operator's limit against none of its own, so that is up to the caller. Raises ConfigError if the command
    is not permitted, or cannot be run, SlurmUnavailable and SlurmOutputError as every method of the client does. After
    SlurmUnavailable the limit may have been raised all the same.
    """
    slurm = client.installation
    if prefix:
        text = f"{checked_job_id(job_id)} {minutes}\n"
        answer = await slurm.run(EXTEND, wrapper=EXTEND, prefix=prefix, stdin=text, where=EXTEND_PREFIX)
    else:  # a sum, so that a limit that an admin has just raised is never lowered
        answer = await slurm.run("scontrol", "update", f"JobId={checked_job_id(job_id)}", f"TimeLimit=+{minutes}")
    if answer.code == 0:
        return True
    if is_over(answer.stderr):
        return False
    raise _not_raised(job_id, answer)


def _not_raised(job_id: str, answer: Answer) -> GPUSpawnerError:
    """The error for a failed answer of scontrol or the script about a job that runs."""
    error = failure(answer.command, answer.stderr, where=EXTEND_PREFIX)
    if error is not None:
        return error
    hint = "The command must run as a Slurm operator."
    if _OF_ANOTHER_HUB in answer.stderr:
        hint = "HUB in the script must be this hub's hub_name, and the job must have the comment that the hub gave it."
    elif not is_forbidden(answer.stderr):
        hint = "See slurmctld's log."
    return ConfigError(
        f"The time limit of job {job_id} was not raised: {last_line(answer.stderr)}.",
        where=EXTEND_PREFIX,
        hint=hint,
        for_user="The hub could not extend this server: it is not set up correctly.",
    )


async def may_raise(client: SlurmClient, prefix: Sequence[str] = ()) -> bool:
    """Whether Slurm lets this account raise time limits: root, SlurmUser and operators may.

    With ``prefix``, whether the script ``extend`` runs, which is given nothing to do; what Slurm allows its account,
    and of which hub it extends servers, is not known then. Raises ConfigError if it does not run.
    """
    slurm = client.installation
    if not prefix:
        # the script `query`, which query_prefix runs, changes nothing
        return not slurm.query_prefix and await has_all_rights(slurm, await client.config())
    answer = await slurm.run(EXTEND, wrapper=EXTEND, prefix=prefix, where=EXTEND_PREFIX)
    if _NO_INPUT in answer.stderr:
        return True
    raise failure(EXTEND, answer.stderr, where=EXTEND_PREFIX) or ConfigError(
        f"The script `extend` does not run: {last_line(answer.stderr or answer.stdout)}.",
        where=EXTEND_PREFIX,
        hint="`gpuspawner files DIR --wrappers` writes it; wrapper_dir is DIR/wrappers. Run it as an account that is "
        "not root.",
    )


def rights(cluster: Cluster) -> SharedView[bool]:
    """Whether the hub's own account may raise time limits there, which all servers of the cluster share."""
    return SharedView(partial(may_raise, cluster.client), log=cluster.watcher.log)
