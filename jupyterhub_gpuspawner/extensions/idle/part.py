"""What the card of a server and JupyterLab show of its being idle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jupyterhub_gpuspawner.extensions.idle import words
from jupyterhub_gpuspawner.extensions.idle.fields import IdleAction
from jupyterhub_gpuspawner.extensions.idle.servers import IdleServers, idle_server
from jupyterhub_gpuspawner.hub.extension import Letter, Place, ServerPart
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState
from jupyterhub_gpuspawner.slurm.estimate import utc

USEFUL_SECONDS = 1800.0
"""For how long it is tried to send to a user that a server is idle."""


@dataclass(frozen=True)
class IdleNotice:
    """That a server is idle, on its card and in the session document."""

    said: str
    """Since when it is; ``{time}`` stands for :attr:`since`."""
    since: str | None
    """ISO 8601, UTC."""
    follows: str
    """What follows; ``{time}`` stands for :attr:`stops_at`."""
    stops_at: str | None
    """ISO 8601, UTC; None where it will not be stopped."""
    warnings: int
    """How often it has been warned; each time it is shown anew."""
    keeps: str
    """What *Keep* does, or why it does nothing."""
    can_keep: bool


def idle_notice(spawner: Any, server: Server) -> IdleNotice | None:
    """What the user of a server is told about its being idle; None where it is not, or they are not told."""
    idle = idle_server(spawner, server)
    if idle is None or not idle.is_announced:
        return None
    verdict = idle.verdict
    stops_at = verdict.due_at if idle.rule.action is IdleAction.STOP else None
    return IdleNotice(
        said=words.NOT_USED if idle.gpus else words.NOT_USED_CORES,
        since=utc(verdict.since) if verdict.since is not None else None,
        follows=words.what_follows(gpus=idle.gpus, stops=idle.rule.action is IdleAction.STOP),
        stops_at=utc(stops_at) if stops_at is not None else None,
        warnings=verdict.warnings,
        keeps=words.keeps(idle.rule.keep_by, idle.keeps_left),
        can_keep=idle.keeps_left > 0,
    )


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """The part of any server: it says over REST that there is nothing to tell, and is then not on the card."""
    notice = idle_notice(spawner, server)
    template = "idle_card.html" if notice is not None and server.state is ServerState.RUNNING else ""
    yield ServerPart(
        "idle", Place.NOTICE, template, notice, repr(notice), document={"idle": asdict(notice) if notice else None}
    )


def letters(settings: Mapping[str, Any], now: float) -> Iterator[Letter]:
    """That a server is idle, once for each time in which it is; to a user who asked for it."""
    for (user, name), idle in state_of(settings).of(IdleServers).items():
        if idle.is_announced and idle.verdict.since is not None:
            title = f"Server {name}" if name else words.DEFAULT_SERVER
            yield Letter(
                user,
                f"idle {idle.job_id} {idle.verdict.since:.0f}",
                subject=words.IS_IDLE.format(title=title),
                text=words.letter(title, stops=idle.rule.action is IdleAction.STOP),
                until=now + USEFUL_SECONDS,
                server=name,
            )
