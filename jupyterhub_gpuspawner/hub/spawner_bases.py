"""The spawners of JupyterHub, batchspawner and wrapspawner that ours are made of, with types.

None of these packages has annotations. Type checkers see the classes below instead, with those attributes and methods
that this package uses, so that an attribute which does not exist is an error. At run time these are the real classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from jupyterhub.objects import Server
    from jupyterhub.orm import Spawner as SpawnerRow
    from jupyterhub.user import User
    from traitlets.config import LoggingConfigurable

    class Spawner(LoggingConfigurable):
        """Starts, polls and stops one single-user server (jupyterhub.spawner)."""

        cert_paths: dict[str, str]
        cmd: list[str]
        default_url: str
        environment: dict[str, Any]
        handler: Any
        http_timeout: int
        hub: Any
        internal_ssl: bool
        name: str
        notebook_dir: str
        orm_spawner: SpawnerRow | None
        pending: str | None
        poll_interval: int
        port: int
        ready: bool
        server: Server | None
        start_timeout: int
        user: User
        user_options: Any
        _log_name: str

        async def start(self) -> Any: ...
        async def stop(self, now: bool = False) -> Any: ...
        async def poll(self) -> int | None: ...
        def progress(self) -> AsyncIterator[dict[str, Any]]: ...
        def poll_and_notify(self) -> asyncio.Future[int | None]: ...
        def add_poll_callback(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None: ...
        def get_args(self) -> list[str]: ...
        def get_env(self) -> dict[str, str]: ...
        def get_state(self) -> dict[str, Any]: ...
        def load_state(self, state: dict[str, Any]) -> None: ...
        def clear_state(self) -> None: ...
        async def get_url(self) -> str: ...
        async def move_certs(self, paths: dict[str, str]) -> dict[str, str]: ...

    class LocalProcessSpawner(Spawner):
        """Runs the server as a process on the hub's machine (jupyterhub.spawner)."""

    class BatchSpawnerBase(Spawner):
        """Runs the server as a job of a batch system (batchspawner)."""

        batch_script: Any
        batch_submit_cmd: Any
        exec_prefix: Any
        req_epilogue: str
        req_partition: str
        req_prologue: str

    class SlurmSpawner(BatchSpawnerBase):
        """Runs the server as a Slurm job (batchspawner)."""

    class ProfilesSpawner(Spawner):
        """Lets the user choose the spawner from a list (wrapspawner)."""

        child_profile: str
        child_spawner: Any
        profiles: Any

else:
    from batchspawner import BatchSpawnerBase, SlurmSpawner
    from jupyterhub.spawner import LocalProcessSpawner, Spawner
    from wrapspawner import ProfilesSpawner

__all__ = ["BatchSpawnerBase", "LocalProcessSpawner", "ProfilesSpawner", "SlurmSpawner", "Spawner"]
