"""Whether a hub reaches its login node: ssh's configuration, and the account there."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.commands import command_prefix, fixed_prefix, run
from jupyterhub_gpuspawner.slurm.login_node import SETTING, configuration_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.slurm.client import SlurmClient

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
    found: list[Finding] = []
    execs = command_prefix(settings.exec_prefix, "somebody")
    if configuration_query(execs) and not settings.wrapper_dir:
        found.append(
            ENVIRONMENT.error(
                EXEC,
                "ssh does not pass on the environment, so jobs would have no token and none of JupyterHub's variables.",
                "Install config/wrappers on the login node and set wrapper_dir.",
            )
        )
    queries = fixed_prefix(settings.query_prefix, where=SETTING)
    if not queries:
        return found
    asked = configuration_query(queries)
    if asked:
        found += of_configuration(await _configuration(asked), timeout=settings.slurm_timeout)
    return found + await _of_account(settings.connection().client)


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


def of_configuration(known: Mapping[str, str], *, timeout: float) -> list[Finding]:
    """What an ssh without questions and with one connection for all commands needs; ``known`` is from ``ssh -G``.

    ``timeout`` is the hub's, for a command, in seconds.
    """
    if not known:
        return []
    found = []
    if known.get("batchmode") != "yes":
        found.append(
            ASKS.warning(
                SETTING,
                "ssh may ask for a password or about a host key, and nobody would see the question.",
                "Set BatchMode yes.",
            )
        )
    if known.get("stricthostkeychecking") in ("false", "no", "off", "accept-new"):
        found.append(
            ANY_HOST.warning(
                SETTING,
                "ssh accepts a host key that it does not know, so another machine could pass for the login node.",
                "Set StrictHostKeyChecking yes, and put the key into UserKnownHostsFile.",
            )
        )
    if known.get("controlpath", "none") == "none":
        found.append(
            NOT_SHARED.warning(
                SETTING,
                "every command makes a connection of its own, which takes several times as long, and sshd refuses some "
                "of many at once (MaxStartups).",
                "Set ControlMaster auto, ControlPath and ControlPersist.",
            )
        )
    limit = known.get("connecttimeout", "none")
    if not limit.isdecimal() or float(limit) >= timeout:
        found.append(
            WAITS.warning(
                SETTING,
                f"ssh waits longer for a login node that is away than slurm_timeout ({timeout:g} s), so the log would "
                "not say why.",
                "Set ConnectTimeout to half of it.",
            )
        )
    return found


async def _of_account(client: SlurmClient) -> list[Finding]:
    try:
        account = await client.account()
    except SlurmUnavailable:  # reported with Slurm's version, by its sentence
        return []
    except GPUSpawnerError as error:
        return [ODD.error(SETTING, error.message, error.hint)]
    return [LOGIN_NODE.ok(SETTING, f"Slurm is asked as {account or 'an account without a name'}")]
