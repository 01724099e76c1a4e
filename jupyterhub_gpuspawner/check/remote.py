"""Whether a hub reaches its login node: ssh's configuration, the account there, and the addresses of nodes."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.report.reach import resolved
from jupyterhub_gpuspawner.slurm.login_node.query import SETTING
from jupyterhub_gpuspawner.slurm.login_node.ssh import configuration_query
from jupyterhub_gpuspawner.slurm.process import run
from jupyterhub_gpuspawner.slurm.run_as import command_prefix, fixed_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jupyterhub_gpuspawner.hub.site.connection import Connection
    from jupyterhub_gpuspawner.slurm.client import SlurmClient

    Line = TypeVar("Line")

EXEC = "exec_prefix"
NODES = 8
"""Nodes whose addresses are tried."""
_SECONDS = 10.0


class RemoteSettings(Protocol):
    """The settings of a spawner."""

    query_prefix: str
    exec_prefix: str
    wrapper_dir: str
    slurm_timeout: float

    def connection(self) -> Connection:
        """The hub's connection to Slurm."""


@dataclass(frozen=True)
class Answer:
    """What was found about one setting."""

    name: str
    """The kind, lower case with hyphens."""
    where: str
    """The setting."""
    text: str
    right: str = ""
    """What would be right."""
    severity: str = "warning"
    """``ok``, ``warning`` or ``error``."""

    def finding(self, line: Callable[..., Line]) -> Line:
        """As a line of the check."""
        text = f"{self.text} {self.right}".rstrip()
        return line(self.where, text, ok=self.severity != "error", warning=self.severity == "warning")


async def of_login_node(settings: RemoteSettings) -> list[Answer]:
    """What is wrong with the way to the login node; empty where no prefix is an ssh. Raises nothing of Slurm's."""
    found: list[Answer] = []
    execs = command_prefix(settings.exec_prefix, "somebody")
    if configuration_query(execs) and not settings.wrapper_dir:
        found.append(_LOSES_ENVIRONMENT)
    queries = fixed_prefix(settings.query_prefix, where=SETTING)
    if not queries:
        return found
    asked = configuration_query(queries)
    if asked:
        found += of_configuration(await _configuration(asked), timeout=settings.slurm_timeout)
    return found + await _of_account(settings.connection().client)


_LOSES_ENVIRONMENT = Answer(
    "ssh-loses-environment",
    EXEC,
    "ssh does not pass on the environment, so jobs would have no token and none of JupyterHub's variables.",
    "Install config/wrappers on the login node and set wrapper_dir.",
    "error",
)


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


def of_configuration(known: Mapping[str, str], *, timeout: float) -> list[Answer]:
    """What an ssh without questions and with one connection for all commands needs; ``known`` is from ``ssh -G``.

    ``timeout`` is the hub's, for a command, in seconds.
    """
    if not known:
        return []
    found = []
    if known.get("batchmode") != "yes":
        found.append(
            Answer(
                "ssh-asks",
                SETTING,
                "ssh may ask for a password or about a host key, and nobody would see the question.",
                "Set BatchMode yes.",
            )
        )
    if known.get("stricthostkeychecking") in ("false", "no", "off", "accept-new"):
        found.append(
            Answer(
                "ssh-any-host-key",
                SETTING,
                "ssh accepts a host key that it does not know, so another machine could pass for the login node.",
                "Set StrictHostKeyChecking yes, and put the key into UserKnownHostsFile.",
            )
        )
    if known.get("controlpath", "none") == "none":
        found.append(
            Answer(
                "ssh-no-sharing",
                SETTING,
                "every command makes a connection of its own, which takes several times as long, and sshd refuses some "
                "of many at once (MaxStartups).",
                "Set ControlMaster auto, ControlPath and ControlPersist.",
            )
        )
    limit = known.get("connecttimeout", "none")
    if not limit.isdecimal() or float(limit) >= timeout:
        found.append(
            Answer(
                "ssh-waits",
                SETTING,
                f"ssh waits longer for a login node that is away than slurm_timeout ({timeout:g} s), so the log would "
                "not say why.",
                "Set ConnectTimeout to half of it.",
            )
        )
    return found


async def _of_account(client: SlurmClient) -> list[Answer]:
    try:
        account = await client.account()
    except SlurmUnavailable:  # reported with Slurm's version, by its sentence
        return []
    except GPUSpawnerError as error:
        return [Answer("login-node-answer", SETTING, str(error), severity="error")]
    found = [
        Answer("login-node", SETTING, f"Slurm is asked as {account or 'an account without a name'}", severity="ok")
    ]
    try:
        return found + await _of_addresses(client)
    except GPUSpawnerError:
        return found


async def _of_addresses(client: SlurmClient) -> list[Answer]:
    """Nodes that the login node knows by a name that this machine does not."""
    names = sorted(node.name for node in (await client.snapshot()).nodes)
    some = names[:: max(1, len(names) // NODES)][:NODES]
    unknown = [name for name in some if not await resolved(await client.address(name))]
    if not unknown:
        return []
    return [
        Answer(
            "node-unresolved",
            "nodes",
            f"this machine cannot resolve the addresses of {', '.join(unknown)}, so the hub would not reach servers "
            "there.",
            "Give it the cluster's resolver or /etc/hosts, or set NodeAddr in slurm.conf to IP addresses.",
            "error",
        )
    ]
