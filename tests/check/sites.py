"""Sites for tests of the check: a configuration, and a recorded cluster in front of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check import machine, run_as, settings, submit
from jupyterhub_gpuspawner.check.finding import DEFAULTS, Context, Options
from jupyterhub_gpuspawner.check.questions import AccountingNames
from jupyterhub_gpuspawner.check.run import checks_of, context_of, findings
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.accounting import WALL, Limits
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.process import Answer
from jupyterhub_gpuspawner.slurm.snapshot import SlurmConfig
from jupyterhub_gpuspawner.units import format_walltime
from tests.snapshots import recorded_snapshot

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.errors import GPUSpawnerError
    from jupyterhub_gpuspawner.site.configuration import Site
    from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

HEAD = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.cleanup_servers = False
c.Authenticator.allow_all = True
c.GPUSlurmSpawner.slurm_bin_dir = "/no/such/folder"
c.GPUSlurmSpawner.req_homedir = "/home/{username}"
"""


class RecordedSlurm(Installation):
    """Slurm's commands about accounting and licences, and ``sbatch --test-only``; the others are not installed."""

    def __init__(
        self, accounting: AccountingNames | GPUSpawnerError | None, trial: str | GPUSpawnerError | None
    ) -> None:
        super().__init__(bin_dir="/no/such/folder")
        self._accounting, self._trial = accounting, trial
        self.tried: list[str] = []
        """The scripts of trials."""

    async def run(self, command: str, *arguments: str, **how: Any) -> Answer:
        """A recorded answer, or the fault with which Slurm is asked."""
        asked = " ".join((command, *arguments))
        if asked == "sbatch --test-only":
            self.tried.append(how["stdin"])
            return Answer(command, 0, "", _answer(self._trial))
        if asked.startswith("sacctmgr -n -P show "):
            names = _answer(self._accounting)
            assert isinstance(names, AccountingNames)
            of_users = {
                "format=account,user,partition,qos,defaultqos,maxwall,maxtres": [
                    f"{name}|ada|||||" for name in sorted(names.accounts)
                ],
                "format=user,defaultaccount": [],
                "format=name,flags,maxwall,maxtres": [f"{name}|||" for name in names.qos or ()],
            }
            if arguments[-1] in of_users:
                return Answer(command, 0, "".join(f"{row}\n" for row in of_users[arguments[-1]]), "")
            rows = (
                [*names.accounts]
                if " assoc " in asked
                else map(_qos_row, *zip(*(names.qos or {}).items(), strict=True))
            )
            return Answer(command, 0, "".join(f"{row}\n" for row in rows), "")
        answers = {"scontrol show licenses -o": "LicenseName=matlab Total=2\n", "scontrol show federation": ""}
        if asked in answers:
            return Answer(command, 0, answers[asked], "")
        return await super().run(command, *arguments, **how)


def _qos_row(name: str, limits: Limits) -> str:
    tres = ",".join(f"{tres}={amount:g}" for (_, tres), amount in limits.items() if tres)
    return f"{name}|{tres}|{format_walltime(int(limits[WALL] * 60)) if WALL in limits else ''}"


class RecordedClient:
    """A Slurm client whose answers are given."""

    def __init__(
        self,
        *,
        accounting: AccountingNames | GPUSpawnerError | None = None,
        trial: str | GPUSpawnerError | None = None,
    ) -> None:
        """``trial`` is what ``sbatch --test-only`` prints."""
        self.installation = RecordedSlurm(accounting, trial)
        """No twin can be made of a recorded cluster."""
        enforced = {"associations", *(["qos"] if getattr(accounting, "qos", None) is not None else [])}
        self._config = SlurmConfig(accounting=True, accounting_enforced=frozenset(enforced))
        if accounting is None:
            self._config = SlurmConfig()

    async def config(self) -> SlurmConfig:
        """A site with the accounting that is given."""
        return self._config

    async def sees_jobs_of(self) -> bool:
        """Whether jobs are hidden: no."""
        return True


def _answer(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def context(
    folder: Path,
    lines: str,
    *,
    snapshot: ClusterSnapshot | None = None,
    client: RecordedClient | None = None,
    options: Options = DEFAULTS,
) -> Context:
    """The context of some lines of configuration in front of the recorded cluster of Slurm 22.05."""
    config = folder / "jupyterhub_config.py"
    config.write_text(f"{HEAD}c.JupyterHub.db_url = 'sqlite:///{folder}/hub.sqlite'\n{lines}\n")
    return context_in(config, snapshot=snapshot, client=client, options=options)


def context_in(
    config: Path,
    *,
    snapshot: ClusterSnapshot | None = None,
    client: RecordedClient | None = None,
    options: Options = DEFAULTS,
) -> Context:
    """The context of a configuration in front of a cluster, at the time of its snapshot."""
    cluster = snapshot or recorded_snapshot("22.05")
    site_context = asyncio.run(context_of(load_site(config), options))
    return replace(
        site_context,
        client=client or RecordedClient(),  # type: ignore[arg-type]
        snapshot=cluster,
        slurm_error=None,
        version="22.05.8",
        now=datetime.fromtimestamp(cluster.taken_at, timezone.utc),
    )


OF_THE_HUB = (settings.check_names, run_as.check_wrappers, run_as.check_prefix, submit.check_submit)
OF_PROFILES = [check for check in checks_of(None) if check not in OF_THE_HUB and check.__module__ != machine.__name__]


def findings_in(where: Context) -> list[Finding]:
    """Everything that the check finds in profiles, courses and Slurm; the hub's machine is not a recorded one."""
    return list(asyncio.run(findings(where, OF_PROFILES)))


def of_configuration(site: Site) -> list[Finding]:
    """Everything that the check finds in a configuration without a cluster, the hub's machine left out."""

    async def run_checks() -> list[Finding]:
        return list(await findings(await context_of(site), OF_PROFILES))

    return asyncio.run(run_checks())
