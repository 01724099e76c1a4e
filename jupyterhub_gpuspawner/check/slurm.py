"""Whether Slurm answers, shows the hub its users' jobs, keeps their tokens to itself, and ends their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmOutputError, SlurmUnavailable

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.slurm.parse.scontrol import SlurmConfig

SLURM = Code("slurm", "Slurm answers: its version, nodes and partitions.")
SILENT = Code("slurm-silent", "Slurm does not answer. What depends on its answer is not checked.")
UNREADABLE = Code("slurm-answer", "An answer of Slurm's cannot be read. What depends on it is not checked.")
HIDDEN = Code("jobs-hidden", "PrivateData hides the users' jobs from the hub's account.")
STORED = Code(
    "job-environment-stored",
    "Slurm's accounting keeps the environment of every job, in which each server finds its token.",
)
LEFT = Code(
    "processes-left",
    "Slurm follows a job's processes by their process group (proctrack/pgid), which every kernel of a server leaves.",
)


async def check_slurm(context: Context) -> list[Finding]:
    """Look at Slurm's answer."""
    if context.slurm_error is not None:
        return [unanswered(context.slurm_error)]
    if context.snapshot is None:
        return []
    listed = ", ".join(sorted(partition.name for partition in context.snapshot.partitions))
    slurm = SLURM.ok("Slurm", f"{context.version}, {len(context.snapshot.nodes)} nodes, partitions {listed}")
    found = [slurm, *await _of_rights(context)]
    try:
        config = await context.client.config()
    except SlurmOutputError as error:
        return [*found, unanswered(error)]
    return [*found, *of_accounting(config), *of_processes(config)]


def unanswered(error: SlurmUnavailable | SlurmOutputError) -> Finding:
    """The finding for a question to which Slurm has no answer, or one that cannot be read."""
    return (SILENT if isinstance(error, SlurmUnavailable) else UNREADABLE).error("Slurm", error.message, error.hint)


def of_accounting(config: SlurmConfig) -> list[Finding]:
    """Whether slurmdbd stores what only a server itself may know."""
    if not config.accounting or "job_env" not in config.accounting_stores:
        return []
    return [
        STORED.warning(
            "AccountingStoreFlags",
            "slurmdbd stores the environment of every job (job_env), with the token of each server in it: whoever can "
            "read it there, or a backup of its database, can use servers that are running.",
            "Remove job_env from AccountingStoreFlags in slurm.conf.",
        )
    ]


def of_processes(config: SlurmConfig) -> list[Finding]:
    """Whether a server's processes can outlive its job; jupyter_client starts each kernel in a session of its own."""
    if not config.tracks_process_groups:
        return []
    return [
        LEFT.warning(
            "ProctrackType",
            "proctrack/pgid ends only the processes of a job's process group. Each kernel of a server has its own, so "
            "kernels can outlive their job and keep its GPUs and memory.",
            "Set ProctrackType=proctrack/cgroup in slurm.conf.",
        )
    ]


async def _of_rights(context: Context) -> list[Finding]:
    """Whether this account sees other users' jobs, if servers are submitted as other users."""
    if not context.slurm_site.exec_prefix.strip():
        return []
    try:
        if await context.client.sees_jobs_of():
            return []
    except SlurmUnavailable:
        raise
    except GPUSpawnerError as error:
        return [HIDDEN.error("Slurm", f"cannot tell whether jobs are hidden (PrivateData): {error}")]
    name = await context.client.account() or "this account"
    return [
        HIDDEN.error(
            "Slurm",
            f"PrivateData hides the users' jobs from {name}: a hub that runs as {name} cannot tell whether they are "
            "pending, running or finished.",
            f"Make it an operator (sacctmgr modify user {name} set adminlevel=operator), or remove jobs from "
            "PrivateData.",
        )
    ]
