"""What only the check asks Slurm: accounts and QOS, licences, and the other clusters of a federation.

Each raises SlurmUnavailable if Slurm gives no answer, and SlurmOutputError if the answer is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.accounting import Limits, limits_of, rows, sacctmgr_show
from jupyterhub_gpuspawner.slurm.accounts import has_all_rights
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.scontrol import parse_licenses

_QOS = ("name", "maxtres", "maxwall")


class AccountingNames(NamedTuple):
    """What the jobs of a cluster can be charged to."""

    accounts: frozenset[str]
    qos: Mapping[str, Limits] | None
    """What each allows one job (MaxWall and MaxTRES of sacctmgr(1)), by name; None where they are not enforced."""


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
    slurm, cluster = client.installation, ("where", f"cluster={config.cluster_name}")
    text = await sacctmgr_show(slurm, "assoc", ["account"], *cluster, "user=")
    accounts = frozenset(row["account"].lower() for row in rows(text, ["account"])) - {""}
    qos = None
    if "qos" in config.accounting_enforced:
        text = await sacctmgr_show(slurm, "qos", _QOS)
        qos = {row["name"].lower(): limits_of(row) for row in rows(text, _QOS)}
    return AccountingNames(accounts, qos)


async def siblings(client: SlurmClient) -> tuple[str, ...]:
    """The other clusters of the cluster's federation; empty where it is in none (``scontrol show federation``)."""
    text = (await client.installation.run("scontrol", "show", "federation")).output()
    return tuple(sorted(re.findall(r"^Sibling:\s*([^:\s]+):", text, re.MULTILINE)))


async def licenses(client: SlurmClient) -> dict[str, int]:
    """How many there are of each licence, in use or not (``scontrol show licenses``)."""
    return parse_licenses((await client.installation.run("scontrol", "show", "licenses", "-o")).output())
