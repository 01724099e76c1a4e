"""Look each minute which servers are idle: tell their users, stop them where their profile says so, and record it.

One pass looks at all running servers, in memory. What has changed is written in one transaction of the hub's database;
JupyterHub's times of activity are read in one query, where a profile asks for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from tornado.httpclient import HTTPError
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.idle import words
from jupyterhub_gpuspawner.extensions.idle.fields import IDLE, Idle, IdleAction, IdleRule, idle_rule
from jupyterhub_gpuspawner.extensions.idle.policy import IdleServer, Span, State, has_gpus
from jupyterhub_gpuspawner.extensions.idle.servers import IdleServers
from jupyterhub_gpuspawner.extensions.idle.times import RESTORED_SECONDS, IdleTime, IdleTimes
from jupyterhub_gpuspawner.extensions.usage.use import Use, usage_of
from jupyterhub_gpuspawner.hub.job.cause import Kind
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name, stop_single_user
from jupyterhub_gpuspawner.hub.site.background import DAY_SECONDS, every
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.site.tables import timestamp
from jupyterhub_gpuspawner.hub.spawners.offers import occasion_of
from jupyterhub_gpuspawner.hub.spawners.server import (
    Server,
    gpus_of,
    has_job,
    server_of,
    site_of,
    stop_record,
    with_profiles,
)
from jupyterhub_gpuspawner.hub.spawners.stopping import stop_server
from jupyterhub_gpuspawner.profiles.offered import Occasion
from jupyterhub_gpuspawner.tasks import in_background

# The idle policy for each profile of a hub, and when the occasions of its servers are in session.


@dataclass(frozen=True)
class Rules:
    """The policy for each profile of a hub, and for what occasions others are offered, as they are now."""

    site: IdleRule
    profiles: Mapping[str, IdleRule]
    """By slug."""
    occasion: Callable[[str], Occasion | None]
    """For what a profile is offered, by its slug."""

    def rule(self, profile: str) -> IdleRule:
        """The policy for the servers of an admin's profile; the site's for one that is offered no longer."""
        return self.profiles.get(profile, self.site)

    def session(self, profile: str, now: float) -> tuple[bool, float]:
        """Whether a session of the profile's occasion is under way, and when its last one has ended; 0: never."""
        occasion = self.occasion(profile)
        sessions = occasion.sessions if occasion is not None else ()
        is_under_way = any(session.start <= now < session.end for session in sessions)
        return is_under_way, max((session.end for session in sessions if session.end <= now), default=0.0)

    @property
    def ask_for_activity(self) -> bool:
        """Whether one of them depends on JupyterHub's times of activity."""
        return any(rule.kernel is not None for rule in (self.site, *self.profiles.values()))


def rules_of(settings: Mapping[str, Any]) -> Rules:
    """The policy of the hub with these tornado settings."""
    site: Any = site_of(settings)
    offering, idle, profiles = with_profiles(site), Idle(**site.idle), dict[str, IdleRule]()
    with suppress(ConfigError):  # told where the profiles are read
        offered = offering.source.profiles() if offering is not None else ()
        profiles = {profile.slug: idle_rule(IDLE.of(profile), idle) for profile in offered}
    return Rules(idle_rule(None, idle), profiles, cache(partial(occasion_of, settings)))


POLL_SECONDS = 60.0
"""Seconds between two passes."""
ROW_AFTER = 600.0
"""Seconds without use after which they are written to the database."""


class IdleWatch:
    """Judges the running servers of a hub."""

    def __init__(self, app: JupyterHub) -> None:
        self._app = app
        self._times = IdleTimes(app.db)
        self._servers = state_of(app.tornado_settings).of(IdleServers)
        self._stored: dict[tuple[str, str, str], IdleTime] | None = None
        """Idle times of before the hub's restart, which have not been taken up yet."""
        self._over: list[IdleTime] = []
        """Those that are over, and open in the database: nothing else knows of them."""
        self._keeps: dict[tuple[str, str, str], int] = {}
        self._stopping: set[tuple[str, str]] = set()

    def run_once(self, now: float | None = None) -> None:
        """One pass. Raises SQLAlchemyError; nothing is stopped then."""
        now = time.time() if now is None else now
        if self._stored is None:
            self._keeps = self._times.keeps()
            self._stored = {(row.user, row.server, row.job_id): row for row in self._times.to_take_up()}
        if self._stored:
            servers = (server_of(spawner, with_start=False) for spawner in self._with_jobs())
            jobs = {(server.user, server.name, server.job_id) for server in servers}
            # others ended while the hub was down
            left = [key for key, row in self._stored.items() if key not in jobs or row.seen <= now - RESTORED_SECONDS]
            self._over.extend(self._stored.pop(key) for key in left)
        rules = rules_of(self._app.tornado_settings)
        activity = self._activity() if rules.ask_for_activity else {}
        looked, due = set(), []
        rows: dict[tuple[str, str], IdleTime] = {}
        for spawner, server in self._running():
            key = (server.user, server.name)
            before = self._servers.of_job(*key, server.job_id) or self._first(server)
            idle = _looked_at(before, server, usage_of(spawner), rules, activity, now)
            if before.row is not None and idle.row is None:
                self._over.append(before.row)
            row = _row(server, idle)
            if row is not None and row != idle.row:
                rows[key] = row
            _log(spawner, before, idle, row)
            self._servers[key] = idle
            looked.add(key)
            if idle.verdict.state is State.DUE and idle.rule.action is IdleAction.STOP:
                due.append((key, spawner))
        # one that is being stopped may run on: what is known of it stays until its stop has succeeded
        stopping = {(spawner.user.name, spawner.name) for spawner in self._with_jobs() if spawner.pending == "stop"}
        self._over.extend(_close_ended(self._servers, looked | stopping, now))
        self._write(rows)
        for key, spawner in due:
            if key not in self._stopping:
                self._stopping.add(key)
                in_background(self._stop(key, spawner))

    def _write(self, rows: Mapping[tuple[str, str], IdleTime]) -> None:
        """Write the rows of servers, and close those that are over; what fails is written with the next pass."""
        if not rows and not self._over:
            return
        written = self._times.write([*rows.values(), *(replace(row, over=True) for row in self._over)])
        self._over.clear()
        for key, row in zip(rows, written):  # noqa: B905 - those that are over follow
            self._servers[key] = replace(self._servers[key], row=row)

    def _with_jobs(self) -> Iterator[Any]:
        """The spawners of all servers with a job."""
        return (spawner for user in self._app.users.values() for spawner in user.spawners.values() if has_job(spawner))

    def _running(self) -> Iterator[tuple[Any, Server]]:
        for spawner in list(self._with_jobs()):
            if spawner.ready and not spawner.pending:
                server = server_of(spawner, with_start=False)
                if server.placement is not None:
                    yield spawner, server

    def _first(self, server: Server) -> IdleServer:
        """A server that is looked at for the first time; with what is known of it from before the hub's restart."""
        assert server.placement is not None
        key = (server.user, server.name, server.job_id)
        row = (self._stored or {}).pop(key, None)
        first = IdleServer(server.job_id, has_gpus(server.placement), keeps_before=self._keeps.pop(key, 0))
        if row is None:
            return first
        return replace(
            first,
            unused=Span(row.since, row.seen, most=row.most, held_mib=row.held_mib),
            row=row,
            keeps=row.keeps,
            keeps_before=first.keeps_before - row.keeps,
            kept=row.kept,
            told_at=row.told_at,
        )

    def _activity(self) -> dict[tuple[str, str], float]:
        """When the servers of this hub were last active, in seconds since the epoch, by user and server."""
        wanted = (
            select(orm.User.name, orm.Spawner.name, orm.Spawner.last_activity)
            .join(orm.Spawner, orm.Spawner.user_id == orm.User.id)
            .where(orm.Spawner.server_id.is_not(None), orm.Spawner.last_activity.is_not(None))
        )
        return {(user, server): timestamp(at) for user, server, at in self._app.db.execute(wanted)}

    async def _stop(self, key: tuple[str, str], spawner: Any) -> None:
        """Stop a server that is due, unless JupyterHub's proxy has seen activity of it that the hub did not know of."""
        try:
            idle = self._servers.get(key)
            if idle is None or (idle.rule.kernel is not None and await self._was_active(spawner)):
                return
            idle = self._servers.get(key)  # its user may have kept it meanwhile
            if idle is None or idle.verdict.state is not State.DUE or not spawner.ready or spawner.pending:
                return
            await self._end(key, spawner, idle)
        finally:
            self._stopping.discard(key)

    async def _was_active(self, spawner: Any) -> bool:
        try:
            await self._app.update_last_activity()
            activity = self._activity()
        except (OSError, HTTPError, SQLAlchemyError) as error:
            roll_back(self._app.db)
            get_logger().warning("%s is idle and is stopped later: %s", log_name(spawner), type(error).__name__)
            return True
        server = server_of(spawner, with_start=False)
        idle = self._servers.of_job(server.user, server.name, server.job_id)
        if idle is None or server.placement is None or not server.ready:
            return True
        rules = rules_of(self._app.tornado_settings)
        looked = _looked_at(idle, server, usage_of(spawner), rules, activity, time.time())
        return looked.verdict.state is not State.DUE

    async def _end(self, key: tuple[str, str], spawner: Any, idle: IdleServer) -> None:
        server, now = server_of(spawner, with_start=False), time.time()
        record = idle_record(server, idle, at=now)
        get_logger().warning("Stopping the server of %s: %s", log_name(spawner), _described(idle, gpus_of(server)))
        try:
            if not await stop_server(spawner, record, lambda: stop_single_user(self._app.proxy, spawner.user, spawner)):
                return
        except Exception:  # noqa: BLE001 - the next pass tries again
            get_logger().exception("The idle server of %s could not be stopped", log_name(spawner))
            return
        self._servers.pop(key, None)
        if idle.row is not None:
            self._over.append(replace(idle.row, seen=now, stopped=True))
            try:
                self._write({})
            except SQLAlchemyError as error:
                get_logger().warning("That %s was stopped is not recorded yet: %s", log_name(spawner), fault(error))


def idle_record(server: Server, idle: IdleServer, *, at: float) -> Ending:
    """What the card says of a server that the policy has stopped."""
    record = stop_record(server, at=at, stopper=Kind.IDLE)
    return replace(record, why=f"because it was idle: {_described(idle, gpus_of(server))}")


def _looked_at(
    before: IdleServer,
    server: Server,
    usage: Sequence[Use],
    rules: Rules,
    activity: Mapping[tuple[str, str], float],
    now: float,
) -> IdleServer:
    assert server.placement is not None
    in_session, ended = rules.session(server.profile, now)
    return before.evaluated(
        usage,
        server.placement,
        rules.rule(server.admin_profile),
        now=now,
        last_activity=activity.get((server.user, server.name)),
        in_session=in_session,
        session_ended=ended,
    )


def _row(server: Server, idle: IdleServer) -> IdleTime | None:
    """The row of a server's idle time; None while it is too short to matter."""
    unused, due = idle.unused, idle.verdict.state is State.DUE
    if idle.verdict.state is State.EXEMPT:
        return idle.row
    if unused is None or not (idle.row or idle.is_announced or due or unused.seen - unused.since >= ROW_AFTER):
        return None
    return IdleTime(
        user=server.user,
        server=server.name,
        profile=server.profile,
        job_id=server.job_id,
        gpus=gpus_of(server),
        since=idle.verdict.since or unused.since,
        seen=unused.seen,
        most=unused.most,
        held_mib=unused.held_mib,
        due_at=idle.row.due_at if idle.row and idle.row.due_at else idle.verdict.due_at if due else None,
        action=idle.rule.action.value,
        told_at=idle.told_at,
        keeps=idle.keeps,
        kept=idle.kept,
        id=idle.row.id if idle.row else None,
    )


def _close_ended(servers: IdleServers, looked: Collection[tuple[str, str]], now: float) -> Iterator[IdleTime]:
    """The rows of servers that no longer run, which are forgotten."""
    for key in servers.keys() - looked:
        gone = servers.pop(key)
        if gone.row is not None:
            idle = gone.verdict.state in (State.IDLE, State.WARNED, State.DUE)
            yield replace(gone.row, seen=now if idle else gone.row.seen)


def _log(spawner: Any, before: IdleServer, after: IdleServer, row: IdleTime | None) -> None:
    if row is None:
        return
    text = _described(after, row.gpus)
    if after.is_announced and not before.is_announced:
        get_logger().info("The user of %s is told: %s", log_name(spawner), text)
    elif row.due_at is not None and (before.row is None or before.row.due_at is None):
        get_logger().info("The server of %s is idle: %s", log_name(spawner), text)


def _described(idle: IdleServer, gpus: int) -> str:
    unused = idle.unused or Span(0.0, 0.0)
    since = idle.verdict.since or unused.since
    return words.idle_in_words(gpus=gpus, idle_for=unused.seen - since, most=unused.most, held_mib=unused.held_mib)


def begin_idle(app: JupyterHub) -> None:
    """Begin the watch."""
    if site_of(app.tornado_settings) is not None:
        every(app, POLL_SECONDS, IdleWatch(app).run_once, "The search for idle servers")
        every(app, DAY_SECONDS, IdleTimes(app.db).forget_old, "The deletion of old idle times")
