"""Whether Slurm answers, shows the hub its users' jobs, keeps their tokens, and is set up for its servers."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.check.questions import siblings
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.commands import command_prefix, fixed_prefix
from jupyterhub_gpuspawner.slurm.login_node import SETTING, configuration_query
from jupyterhub_gpuspawner.slurm.process import run
from jupyterhub_gpuspawner.slurm.snapshot import SlurmConfig
from jupyterhub_gpuspawner.words import duration, some

# Whether a hub reaches its login node: ssh's configuration, and the account there.

_SECONDS = 10.0
ENVIRONMENT = Code("ssh-loses-environment", "`exec_prefix` is an ssh, and there is no `wrapper_dir`.")
ASKS = Code("ssh-asks", "ssh may ask a question that nobody sees.")
ANY_HOST = Code("ssh-any-host-key", "ssh accepts the key of a host that it does not know.")
NOT_SHARED = Code("ssh-no-sharing", "ssh makes a connection for each command.")
WAITS = Code("ssh-waits", "ssh waits longer for a connection than the hub for an answer.")
LOGIN_NODE = Code("login-node", "The account that asks Slurm on the login node.")
ODD = Code("login-node-answer", "The login node's answer cannot be read.")


async def check_remote(context: Context) -> AsyncIterator[Finding]:
    """Look at the prefixes; nothing is found where neither is an ssh."""
    settings = context.spawner
    if configuration_query(command_prefix(settings.exec_prefix, "somebody")) and not settings.wrapper_dir:
        yield ENVIRONMENT.error(
            "exec_prefix",
            "ssh does not pass on the environment, so jobs would have no token and none of JupyterHub's variables.",
            "Install the scripts that `gpuspawner files DIR --wrappers` writes on the login node, and set wrapper_dir.",
        )
    prefix = fixed_prefix(settings.query_prefix, where=SETTING)
    if not prefix:
        return
    if query := configuration_query(prefix):
        for finding in ssh_findings(await _configuration(query), timeout=settings.slurm_timeout):
            yield finding
    try:
        account = await context.client.account()
    except SlurmUnavailable:  # reported with Slurm's version, by its sentence
        return
    except GPUSpawnerError as error:
        yield ODD.error(SETTING, error.message, error.hint)
        return
    yield LOGIN_NODE.ok(SETTING, f"Slurm is asked as {account or 'an account without a name'}")


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


def ssh_findings(configuration: Mapping[str, str], *, timeout: float) -> Iterator[Finding]:
    """What an ssh without questions and with one connection for all commands needs; empty: nothing is known.

    ``timeout`` is the hub's, for a command, in seconds.
    """
    if configuration and configuration.get("batchmode") != "yes":
        text = "ssh may ask for a password or about a host key, and nobody would see the question."
        yield ASKS.warning(SETTING, text, "Set BatchMode yes.")
    if configuration.get("stricthostkeychecking") in ("false", "no", "off", "accept-new"):
        yield ANY_HOST.warning(
            SETTING,
            "ssh accepts a host key that it does not know, so another machine could pass for the login node.",
            "Set StrictHostKeyChecking yes, and put the key into UserKnownHostsFile.",
        )
    if configuration and configuration.get("controlpath", "none") == "none":
        yield NOT_SHARED.warning(
            SETTING,
            "every command makes a connection of its own, which takes several times as long, and sshd refuses some of "
            "many at once (MaxStartups).",
            "Set ControlMaster auto, ControlPath and ControlPersist.",
        )
    limit = configuration.get("connecttimeout", "none")
    if configuration and (not limit.isdecimal() or float(limit) >= timeout):
        yield WAITS.warning(
            SETTING,
            f"ssh waits longer for a login node that is away than slurm_timeout ({timeout:g} s), so the log would not "
            "say why.",
            "Set ConnectTimeout to half of it.",
        )


# Slurm's answer: its version, its nodes, slurm.conf and slurmctld's clock.


SLURM = Code("slurm", "Slurm answers: its version, nodes and partitions.")
SILENT = Code("slurm-silent", "Slurm does not answer. What depends on its answer is not checked.")
UNREADABLE = Code("slurm-answer", "An answer of Slurm's cannot be read. What depends on it is not checked.")
HIDDEN = Code("jobs-hidden", "PrivateData hides the users' jobs from the hub's account.")
STORED = Code(
    "job-environment-stored",
    "Slurm's accounting keeps the environment of every job, in which each server finds its token.",
)
WHOLE_NODES = Code("whole-nodes", "Slurm gives out whole nodes alone (select/linear), and assigns no GPUs.")
LEFT = Code(
    "processes-left",
    "Slurm follows a job's processes by their process group (proctrack/pgid), which every kernel of a server leaves.",
)
ELSEWHERE = Code(
    "federation",
    "Slurm is in a federation, and servers' jobs may start on another of its clusters, where the hub does not look.",
)
CLOCK = Code("clock-differs", "The clocks of this machine and of slurmctld's differ by more than ten seconds.")
AT_MOST = 10.0
"""Seconds that are not reported; Slurm's time has whole seconds."""
NODES_HIDDEN = Code("nodes-hidden", "Slurm does not show nodes that are powered down (PrivateData without cloud).")


async def check_slurm(context: Context) -> AsyncIterator[Finding]:
    """Look at Slurm's answer."""
    if context.slurm_error is not None:
        yield unanswered(context.slurm_error)
    if context.snapshot is None:
        return
    listed = ", ".join(sorted(partition.name for partition in context.snapshot.partitions))
    yield SLURM.ok("Slurm", f"{context.version}, {len(context.snapshot.nodes)} nodes, partitions {listed}")
    if unread := dict.fromkeys(f"{of.kind} {of.name} {of.field}".rstrip() for of in context.snapshot.unread):
        text = f"the description of {some(list(unread))} cannot be read, so nothing is said to start now that needs it."
        yield UNREADABLE.warning("Slurm", text, "Report it to the package's maintainers, with Slurm's version.")
    if not context.spawner.exec_prefix.strip():
        return
    try:  # whether this account sees other users' jobs, as which servers are submitted
        if await context.client.sees_jobs_of():
            return
    except SlurmUnavailable:
        raise
    except GPUSpawnerError as error:
        yield HIDDEN.error("Slurm", f"cannot tell whether jobs are hidden (PrivateData): {error}")
        return
    name = await context.client.account() or "this account"
    yield HIDDEN.error(
        "Slurm",
        f"PrivateData hides the users' jobs from {name}: a hub that runs as {name} cannot tell whether they are "
        "pending, running or finished.",
        f"Make it an operator (sacctmgr add user {name} account=root adminlevel=operator, or modify user {name} set if "
        "Slurm has it already), or remove jobs from PrivateData.",
    )


def unanswered(error: SlurmUnavailable | SlurmOutputError) -> Finding:
    """The finding for a question to which Slurm has no answer, or one that cannot be read."""
    return (SILENT if isinstance(error, SlurmUnavailable) else UNREADABLE).error("Slurm", error.message, error.hint)


async def check_config(context: Context) -> AsyncIterator[Finding]:
    """Look at slurm.conf, and at slurmctld's clock: ``scontrol show config`` begins with its time."""
    if context.snapshot is None:
        return
    before = time.time()
    config = await context.client.config()
    for finding in slurm_conf_findings(config):
        yield finding
    if not context.spawner.req_cluster and (others := await siblings(context.client)):
        yield ELSEWHERE.error(
            "Slurm",
            f"{config.cluster_name} is in a federation with {some(others)}, so a server's job may start there, where "
            "the hub does not look: its start fails.",
            f'Set {context.setting("req_cluster")} = "{config.cluster_name}"; with wrapper_dir, SLURM_CLUSTERS in each '
            "script as well.",
        )
    if config.answered_at is not None:
        ahead = max(before - (config.answered_at + 1.0), config.answered_at - time.time())
        if ahead > AT_MOST:
            which = "ahead of" if config.answered_at > before else "behind"
            yield CLOCK.error(
                "Slurm",
                f"slurmctld's clock is {duration(round(ahead))} {which} this machine's, so pages show wrong times and "
                "starts are given up too early or too late.",
                "Synchronise both with the same time server (`chronyc tracking`, `timedatectl`).",
            )
    snapshot = context.snapshot
    hidden = [partition.name for partition in snapshot.partitions if snapshot.hides_nodes_of(partition)]
    if hidden and config.resume_timeout is not None and "cloud" not in config.private_data:
        yield NODES_HIDDEN.warning(
            "PrivateData",
            f"Slurm does not show nodes of partition {' and '.join(hidden)} while they are powered down, so forms "
            "cannot say when a server starts there, and no seats of courses are counted.",
            "Add cloud to PrivateData in slurm.conf.",
        )


def slurm_conf_findings(config: SlurmConfig) -> Iterator[Finding]:
    """What of slurm.conf lets others read a server's token, or a server's processes outlive its job."""
    if config.accounting and "job_env" in config.parameters.get("AccountingStoreFlags", "").lower().split(","):
        yield STORED.warning(
            "AccountingStoreFlags",
            "slurmdbd stores the environment of every job (job_env), with the token of each server in it: whoever can "
            "read it there, or a backup of its database, can use servers that are running.",
            "Remove job_env from AccountingStoreFlags in slurm.conf.",
        )
    if config.cpu_unit == "node":
        yield WHOLE_NODES.warning(
            "SelectType",
            "select/linear gives each server whole nodes, however little it requests, and assigns no GPUs: a server "
            "chooses among all of its node. It refuses a request for GPUs for which gres.conf has Cores= of a part of "
            "the node's cores.",
            "Set SelectType=select/cons_tres in slurm.conf; else remove Cores= from gres.conf.",
        )
    if (
        config.parameters.get("ProctrackType") == "proctrack/pgid"
    ):  # jupyter_client starts each kernel in a session of its own
        yield LEFT.warning(
            "ProctrackType",
            "proctrack/pgid ends only the processes of a job's process group. Each kernel of a server has its own, so "
            "kernels can outlive their job and keep its GPUs and memory.",
            "Set ProctrackType=proctrack/cgroup in slurm.conf.",
        )
