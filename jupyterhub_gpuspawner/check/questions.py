"""What only the check asks Slurm: accounts and QOS, licences, and the other clusters of a federation.

Each raises SlurmUnavailable if Slurm gives no answer, and SlurmOutputError if the answer is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.accounts import has_all_rights
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.scontrol import parse_licenses
from jupyterhub_gpuspawner.units import parse_walltime


class QosLimits(NamedTuple):
    """What a QOS allows one job (MaxWall and MaxTRES of sacctmgr(1)); None: it has no such limit."""

    seconds: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    nodes: int | None = None


class AccountingNames(NamedTuple):
    """What the jobs of a cluster can be charged to."""

    accounts: frozenset[str]
    qos: Mapping[str, QosLimits] | None
    """By name; None where Slurm does not enforce them."""


async def accounting_names(client: SlurmClient) -> AccountingNames | None:
    """The accounts and QOS of this cluster, in lower case; None where Slurm enforces no accounting.

    Raises ConfigError if PrivateData hides them from this account.
    """
    config = await client.config()
    if not config.accounting or not config.accounting_enforced:
        return None
    hidden = not config.private_data.isdisjoint(("accounts", "users"))
    if hidden and not await has_all_rights(client.installation, config):
        raise ConfigError(
            "PrivateData hides the associations and QOS of others from this account.",
            hint="Run the command as root or as an operator.",
        )
    of_accounts = ("assoc", "where", f"cluster={config.cluster_name}", "user=", "format=Account")
    accounts = frozenset(row[0].strip().lower() for row in await _sacctmgr(client, *of_accounts))
    qos = None
    if "qos" in config.accounting_enforced:
        rows = await _sacctmgr(client, "qos", "format=Name,MaxTRES,MaxWall")
        qos = {row[0].strip().lower(): _qos_limits(row) for row in rows}
    return AccountingNames(accounts, qos)


async def _sacctmgr(client: SlurmClient, *what: str) -> list[list[str]]:
    """The rows of a list of slurmdbd's that begin with a name."""
    text = (await client.installation.run("sacctmgr", "-n", "-P", "show", *what)).output()
    return [row for row in (line.split("|") for line in text.splitlines()) if row[0]]


def _qos_limits(row: Sequence[str]) -> QosLimits:
    """The limits of a row with name, MaxTRES and MaxWall; what is not understood is no limit."""
    _, tres, wall = (*row, "", "")[:3]
    counts = {name: int(count) for name, count in re.findall(r"([^,=]+)=([0-9]+)(?=,|$)", tres)}
    seconds = None
    with suppress(ValueError):
        seconds = parse_walltime(wall)
    return QosLimits(seconds, counts.get("cpu"), counts.get("gres/gpu"), counts.get("node"))


async def siblings(client: SlurmClient) -> tuple[str, ...]:
    """The other clusters of the cluster's federation; empty where it is in none (``scontrol show federation``)."""
    text = (await client.installation.run("scontrol", "show", "federation")).output()
    return tuple(sorted(re.findall(r"^Sibling:\s*([^:\s]+):", text, re.MULTILINE)))


async def licenses(client: SlurmClient) -> dict[str, int]:
    """How many there are of each licence, in use or not (``scontrol show licenses``)."""
    return parse_licenses((await client.installation.run("scontrol", "show", "licenses", "-o")).output())
