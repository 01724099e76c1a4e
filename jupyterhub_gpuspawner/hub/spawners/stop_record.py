"""Stopping a server: the start that is cancelled first, and what the card says afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin, last_start
from jupyterhub_gpuspawner.hub.spawners.server import Server, keeps_ending, life_of
from jupyterhub_gpuspawner.records.cause import Stopper, stopped_by

CANCELLED = 10.0
"""Seconds after which a cancelled start is no longer waited for; as long as a Slurm command may take."""
POLL_SECONDS = 0.05


async def cancel_start(spawner: Any) -> None:
    """Cancel a start that is pending, and wait for it to end.

    The server must be stopped next if it is active then: JupyterHub leaves the job of a cancelled start as it is.
    """
    start = last_start(spawner)
    if start is not None:
        start.cancel()
    for _ in range(round(CANCELLED / POLL_SECONDS)):
        if spawner.pending != "spawn":
            return
        await asyncio.sleep(POLL_SECONDS)


async def stop_server(spawner: Any, record: Ending | None, stop: Callable[[], Awaitable[bool]]) -> bool:
    """Stop a server that runs, or cancel its start with its job; False if it still runs afterwards.

    From then on its card says what ``record`` says; None where its spawner keeps no ending.
    A server that has ended by itself keeps its own ending. ``stop`` stops what is active, through JupyterHub, and
    returns whether that was done.
    """
    if spawner.pending == "spawn":
        keep_stop(spawner, record)
        await cancel_start(spawner)
    # as in JupyterHub's own handler: poll_and_notify() cleans up after a server that has died
    if spawner.ready and await spawner.poll_and_notify() is not None:
        return True
    if not spawner.active or spawner.pending:
        return True
    keep_stop(spawner, record)
    stopped = False
    try:
        stopped = await stop()
    finally:
        if not stopped:
            keep_stop(spawner, None)
    return stopped


def stopper_of(requester: Any, owner: Any, parsed_scopes: Mapping[str, object]) -> Stopper:
    """As what the requester of a stop acts, who has the right to it: a user or a service of the hub."""
    if requester.kind == "service":
        return Stopper.SERVICE
    if requester.name == owner.name:
        return Stopper.OWNER
    return Stopper.ADMIN if is_admin(parsed_scopes) else Stopper.INSTRUCTOR


def stop_record(server: Server, *, at: float, by: str = "", stopper: Stopper = Stopper.OWNER) -> Ending:
    """What the card says after this server was stopped at ``at``; ``by`` is the person, where it is not its user."""
    text = words.stopped(
        server_title(server), job_id=server.job_id, gpus=gpus_of(server), by=by, waited=server.waits_in_line
    )
    return Ending(text, job_id=server.job_id, at=at, stopped=True, cause=stopped_by(stopper))


def keep_stop(spawner: Any, record: Ending | None) -> None:
    """Have the spawner keep how it was stopped, in its state, until the next start; None takes that back."""
    if keeps_ending(spawner):
        spawner.ending = record


def note_stopper(spawner: Any, stopper: Stopper) -> None:
    """Have the session's record say who asked JupyterHub itself to stop the server; its card does not change."""
    life = life_of(spawner)
    if life is not None:
        life.stopper = stopper


def gpus_of(server: Server) -> int:
    """The number of GPUs that a server's job holds."""
    placement = server.placement
    if placement is None:
        return 0
    return len(placement.gpus) + sum(len(node.gpus) for node in placement.other_nodes)


def server_title(server: Server) -> str:
    """The heading of the server's card."""
    return words.title(server.name, server.display_name, server.profile_name)
