"""A process beside the server that reports its port to the hub, once the server listens on it.

If the port were reported earlier, any user of the node could take it in the meantime, and the hub would take that
user's process for the server. So this process polls the kernel's table of sockets until the server is in it, and for a
while afterwards. It also delivers a report that could not be sent at the launch: the hub may be down for a minute while
servers start, or may itself be waiting for Slurm's answer about this very job.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.wire.documents import Door, NodeReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.node.report.port import PortOwner

PATIENCE = 600.0
"""Seconds after which a report that the hub does not accept is dropped."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries; the last one is repeated."""
POLL_SECONDS = ((10.0, 0.05), (60.0, 0.1), (600.0, 0.5), (86400.0, 2.0))
"""Pairs: until so many seconds after the launch, the seconds between two checks of the port."""
_LONGEST = 2.0
"""Seconds between two checks at most, however much a check costs."""
AFTERWARDS = 120.0
"""Seconds for which the port is checked after it was reported: by then the server is ready, or its start failed."""
_BETWEEN = 0.25
"""Seconds between two checks in that time."""
_WHOSE = 1.0
"""Seconds after which the owner of unchanged sockets is determined again, unless the server itself holds them."""
_SHARE = 0.005
"""The part of a core that one server's checks may take: many servers may be starting on a node."""


class PortReporter:
    """Watches the server's port, and delivers reports until the hub knows it."""

    def __init__(self, report: NodeReport, port: int, environ: Mapping[str, str], server: int) -> None:
        """``server`` is the pid of the process that becomes, or has become, the server."""
        self.report, self.port, self.environ, self.server = report, port, environ, server
        self._sockets: list[object] | None = None
        self._whose: tuple[float, PortOwner] | None = None

    def run(self, *, is_reported: bool) -> None:
        """Check the port and report until the server has ended, or the hub has known the port for a while.

        ``told`` is whether the hub already has the report, without the port.
        """
        from jupyterhub_gpuspawner.node.report import port

        began = time.monotonic()
        letter = None if is_reported else self.report
        due, gives_up, tries, reported_at = began, began + PATIENCE, 0, 0.0
        last = before = port.PortOwner()
        while _lives(self.server) and time.monotonic() - began < POLL_SECONDS[-1][0]:
            now, cost = time.monotonic(), time.process_time()
            owner = self.port_owner()
            cost = time.process_time() - cost
            # only if it is the same twice: a server opens several addresses one after the other
            if owner.state != port.NOBODY and owner == before and (owner.state, owner.uid) != (last.state, last.uid):
                last, letter = owner, self.letter(owner)
                due, gives_up, tries = now, now + PATIENCE, 0
            before = owner
            if letter is not None and now >= due:
                retry, is_final = self._deliver(letter)
                if is_final:
                    reported_at = time.monotonic()
                elif not retry and letter.port:
                    return
                if not retry or time.monotonic() > gives_up:
                    letter = None
                due = time.monotonic() + PAUSES[min(tries, len(PAUSES) - 1)]
                tries += 1
            ready = letter is None and last.state == port.OURS
            if ready and now - reported_at > AFTERWARDS:
                return
            pause = _BETWEEN if ready else next(pause for until, pause in POLL_SECONDS if now - began <= until)
            time.sleep(min(max(pause, cost / _SHARE), _LONGEST))

    def _deliver(self, letter: NodeReport) -> tuple[bool, bool]:
        """Send the report; returns whether another try may succeed, and whether the hub accepted it."""
        from jupyterhub_gpuspawner.node.report import http

        signal.alarm(round(PATIENCE))  # looking up a name may take forever
        failure, retry = http.attempt(letter, self.environ)
        signal.alarm(0)
        return retry, failure is None

    def port_owner(self) -> PortOwner:
        """Who listens on the port; if the kernel does not show that, whether anyone does."""
        from jupyterhub_gpuspawner.node.report import port
        from jupyterhub_gpuspawner.node.report import port as ports

        try:
            sockets = port.listening(self.port)
            if self._whose is not None and sockets == self._sockets:
                read_at, owner = self._whose
                # an inode is one socket: as long as it is the same one, the server has it
                if owner.seen == port.PROCESS or time.monotonic() < read_at + _WHOSE:
                    return owner
            port_owner = port.whose(sockets, self.server, self.environ.get("JUPYTERHUB_API_TOKEN", ""))
        except (OSError, ValueError, IndexError):
            there = ports.answers(self.port, self.environ.get("JUPYTERHUB_SERVICE_URL", ""))
            return port.PortOwner(port.OURS, port.UNSEEN) if there else port.PortOwner()
        self._sockets, self._whose = list(sockets), (time.monotonic(), port_owner)
        return port_owner

    def letter(self, owner: PortOwner) -> NodeReport:
        """The report of what was found at the port."""
        from jupyterhub_gpuspawner.node.report import port

        if owner.state == port.OURS:
            unseen = f"This node does not show which process listens on port {self.port}."
            problems: tuple[str, ...] = (unseen,) if owner.seen == port.UNSEEN else ()
            return self._with(problems, self.port, Door(owner.seen, owner.addresses[:64]))
        whose = "another process of this user" if owner.uid == os.geteuid() else f"another user (uid {owner.uid})"
        return self._with((f"Port {self.port} was taken by {whose} of this node.",), 0, Door(port.OTHERS))

    def _with(self, problems: tuple[str, ...], port: int, door: Door) -> NodeReport:
        placement = self.report.placement
        placement = replace(placement, problems=(*placement.problems, *problems))
        return replace(self.report, port=port, placement=placement, door=door)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
