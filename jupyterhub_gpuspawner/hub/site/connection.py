"""The hub's connection to Slurm, shared by all servers: one client, one watcher and one view of the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.shared_view import AllocationsView, ClusterView, OperatorView, SharedView
from jupyterhub_gpuspawner.hub.site.unread import UnreadRecords
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.command_settings import LoginNodeAccounts
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.watcher import ACTIVE_INTERVAL, REST_INTERVAL, JobWatcher


@dataclass(frozen=True)
class ConnectionSettings:
    """Spawners with equal settings share a connection. Times are in seconds."""

    bin_dir: str = ""
    wrapper_dir: str = ""
    query_prefix: tuple[str, ...] = ()
    timeout: float = 10.0
    limit: int = 8
    active_interval: float = ACTIVE_INTERVAL
    rest_interval: float = REST_INTERVAL


@dataclass(frozen=True, eq=False)
class Connection:
    """One client (with its limit of commands at once), one watcher (one ``squeue`` for all jobs), and views."""

    client: SlurmClient
    watcher: JobWatcher
    cluster: ClusterView
    allocations: AllocationsView
    operator: OperatorView
    shows_jobs: SharedView[bool]
    """Whether Slurm shows this account the jobs of others."""
    accounts: LoginNodeAccounts | None = None
    """Accounts as the cluster knows them; None where this machine does."""

    @property
    def silent(self) -> bool:
        """Slurm is not responding: to the last question about the cluster, or to a later one about the hub's jobs."""
        latest, since = self.cluster.latest, self.watcher.unanswered_since
        return self.cluster.silent or (since is not None and (latest is None or since > latest.taken_at))


_CONNECTIONS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ConnectionSettings, Connection]] = WeakKeyDictionary()


def connection(settings: ConnectionSettings) -> Connection:
    """Return the connection of this event loop for these settings, which is made on first use."""
    known = _CONNECTIONS.setdefault(asyncio.get_running_loop(), {})
    if settings not in known:
        installation = Installation(
            bin_dir=settings.bin_dir,
            wrapper_dir=settings.wrapper_dir,
            query_prefix=settings.query_prefix,
            timeout=settings.timeout,
            limit=settings.limit,
            observe=metrics.slurm_command,
        )
        client = SlurmClient(installation, report=UnreadRecords().report)
        watcher = JobWatcher(client, active_interval=settings.active_interval, rest_interval=settings.rest_interval)
        # a page that gets no answer has the watcher ask at once, so that all pages say the same
        view = ClusterView(client.snapshot, on_silence=watcher.ask_soon)
        operator = OperatorView(client.may_extend)
        shows_jobs = SharedView(client.sees_jobs_of)
        accounts = LoginNodeAccounts(installation) if settings.query_prefix else None
        allocations = AllocationsView(client.allocations)
        known[settings] = Connection(client, watcher, view, allocations, operator, shows_jobs, accounts)
    return known[settings]
