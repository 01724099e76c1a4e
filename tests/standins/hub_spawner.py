"""A server of ours in a hub that has no Slurm: its job, and what JupyterHub says of it, are what a test sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.slurm.job import Job


class HubSpawner(GPUProfilesSpawner):
    """The spawner of one server of a user."""

    name: str = ""
    pending: str | None = None
    ready: bool = False
    server: Any = None

    def __init__(self, user: Any, name: str = "", job: Job | None = None, **facts: Any) -> None:
        super().__init__(config=Config(), user=user)
        self.name = name
        if job is not None:
            self.watch.job_id = job.job_id
            self.watch._watch = SimpleNamespace(status=job, stale=False)  # type: ignore[assignment]
        self.ended.keep(facts.pop("ending", None))
        for fact, value in facts.items():
            setattr(self, fact, value)

    def connection(self, _settings: object = None) -> Any:
        """It knows nothing of a cluster."""
        view = SimpleNamespace(latest=None)
        return SimpleNamespace(view=view, watcher=SimpleNamespace(last_answer=None))
