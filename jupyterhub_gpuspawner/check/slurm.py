"""Whether Slurm answers, shows the hub its users' jobs, keeps their tokens to itself, and ends their processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import command_prefix, fixed_prefix, run
from jupyterhub_gpuspawner.slurm.login_node import SETTING, configuration_query
from jupyterhub_gpuspawner.slurm.scontrol import SlurmConfig

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
    findings = [slurm, *await _of_rights(context)]
    try:
        config = await context.client.config()
    except SlurmOutputError as error:
        return [*findings, unanswered(error)]
    return [*findings, *of_accounting(config), *of_processes(config)]


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


# Whether a hub reaches its login node: ssh's configuration, and the account there.

EXEC = "exec_prefix"
_SECONDS = 10.0
ENVIRONMENT = Code("ssh-loses-environment", "`exec_prefix` is an ssh, and there is no `wrapper_dir`.")
ASKS = Code("ssh-asks", "ssh may ask a question that nobody sees.")
ANY_HOST = Code("ssh-any-host-key", "ssh accepts the key of a host that it does not know.")
NOT_SHARED = Code("ssh-no-sharing", "ssh makes a connection for each command.")
WAITS = Code("ssh-waits", "ssh waits longer for a connection than the hub for an answer.")
LOGIN_NODE = Code("login-node", "The account that asks Slurm on the login node.")
ODD = Code("login-node-answer", "The login node's answer cannot be read.")


async def check_remote(context: Context) -> list[Finding]:
    """Look at the prefixes; nothing is found where neither is an ssh."""
    settings = context.slurm_site
    findings: list[Finding] = []
    execs = command_prefix(settings.exec_prefix, "somebody")
    if configuration_query(execs) and not settings.wrapper_dir:
        findings.append(
            ENVIRONMENT.error(
                EXEC,
                "ssh does not pass on the environment, so jobs would have no token and none of JupyterHub's variables.",
                "Install config/wrappers on the login node and set wrapper_dir.",
            )
        )
    queries = fixed_prefix(settings.query_prefix, where=SETTING)
    if not queries:
        return findings
    query = configuration_query(queries)
    if query:
        findings += of_configuration(await _configuration(query), timeout=settings.slurm_timeout)
    return findings + await _of_account(settings.connection().client)


async def _configuration(command: Sequence[str]) -> Mapping[str, str]:
    """ssh's configuration for the destination; empty if it cannot be had, which the connection will show."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    path = shutil.which(command[0], path=environment["PATH"])
    if path is None:
        return {}
    try:
        answer = await run((path, *command[1:]), name="ssh", environment=environment, timeout=_SECONDS)
    except (OSError, GPUSpawnerError):
        return {}
    return {key: value for key, _, value in (line.partition(" ") for line in answer.stdout.splitlines())}


def of_configuration(configuration: Mapping[str, str], *, timeout: float) -> list[Finding]:
    """What an ssh without questions and with one connection for all commands needs; ``known`` is from ``ssh -G``.

    ``timeout`` is the hub's, for a command, in seconds.
    """
    if not configuration:
        return []
    findings = []
    if configuration.get("batchmode") != "yes":
        findings.append(
            ASKS.warning(
                SETTING,
                "ssh may ask for a password or about a host key, and nobody would see the question.",
                "Set BatchMode yes.",
            )
        )
    if configuration.get("stricthostkeychecking") in ("false", "no", "off", "accept-new"):
        findings.append(
            ANY_HOST.warning(
                SETTING,
                "ssh accepts a host key that it does not know, so another machine could pass for the login node.",
                "Set StrictHostKeyChecking yes, and put the key into UserKnownHostsFile.",
            )
        )
    if configuration.get("controlpath", "none") == "none":
        findings.append(
            NOT_SHARED.warning(
                SETTING,
                "every command makes a connection of its own, which takes several times as long, and sshd refuses some "
                "of many at once (MaxStartups).",
                "Set ControlMaster auto, ControlPath and ControlPersist.",
            )
        )
    limit = configuration.get("connecttimeout", "none")
    if not limit.isdecimal() or float(limit) >= timeout:
        findings.append(
            WAITS.warning(
                SETTING,
                f"ssh waits longer for a login node that is away than slurm_timeout ({timeout:g} s), so the log would "
                "not say why.",
                "Set ConnectTimeout to half of it.",
            )
        )
    return findings


async def _of_account(client: SlurmClient) -> list[Finding]:
    try:
        account = await client.account()
    except SlurmUnavailable:  # reported with Slurm's version, by its sentence
        return []
    except GPUSpawnerError as error:
        return [ODD.error(SETTING, error.message, error.hint)]
    return [LOGIN_NODE.ok(SETTING, f"Slurm is asked as {account or 'an account without a name'}")]
