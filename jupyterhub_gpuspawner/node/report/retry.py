"""A process beside the server, from the launch on: it tells the hub the port, once the server listens there.

A port that is named before the server listens can be taken meanwhile by any user of the node, and the hub would take
that user's process for the server. So the kernel's table of sockets is looked at until the server is in it, and for a
while after. The same process brings what the hub could not be told at the launch: a hub may be down for a minute while
servers start, or wait itself for Slurm's answer about this very job.
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

    from jupyterhub_gpuspawner.node.report.listener import Look

PATIENCE = 600.0
"""Seconds after which a report that the hub does not take is given up."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries; the last one again and again."""
LOOKS = ((10.0, 0.05), (60.0, 0.1), (600.0, 0.5), (86400.0, 2.0))
"""Until so many seconds after the launch, the seconds between two looks at the port."""
AFTERWARDS = 120.0
"""Seconds for which the port is looked at once the hub knows it: by then the server is ready, or its start failed."""
_BETWEEN = 0.25
"""Seconds between two looks then."""
_WHOSE = 1.0
"""Seconds after which it is found out anew whose sockets these are, though they are the same."""


class Beside:
    """What is known of the server's port, and what the hub has yet to hear."""

    def __init__(self, report: NodeReport, port: int, environ: Mapping[str, str], server: int) -> None:
        """``server`` is the process that becomes, or has become, the server."""
        self.report, self.port, self.environ, self.server = report, port, environ, server
        self._sockets: list[object] | None = None
        self._whose: tuple[float, Look] | None = None

    def run(self, *, told: bool) -> None:
        """Look and tell until the server has ended, or the hub has had its port for a while.

        ``told`` is whether the hub has the report already, without the port.
        """
        from jupyterhub_gpuspawner.node.report import listener

        began = time.monotonic()
        letter = None if told else self.report
        due, gives_up, tries, told_at = began, began + PATIENCE, 0, 0.0
        last = before = listener.Look()
        while _lives(self.server) and time.monotonic() - began < LOOKS[-1][0]:
            now = time.monotonic()
            look = self.look()
            # twice the same: a server that listens on two addresses does so one after the other
            if look.state != listener.NOBODY and look == before and (look.state, look.uid) != (last.state, last.uid):
                last, letter = look, self.letter(look)
                due, gives_up, tries = now, now + PATIENCE, 0
            before = look
            if letter is not None and now >= due:
                again, known = self._deliver(letter)
                if known:
                    told_at = time.monotonic()
                elif not again and letter.port:
                    return
                if not again or time.monotonic() > gives_up:
                    letter = None
                due = time.monotonic() + PAUSES[min(tries, len(PAUSES) - 1)]
                tries += 1
            ready = letter is None and last.state == listener.OURS
            if ready and now - told_at > AFTERWARDS:
                return
            time.sleep(_BETWEEN if ready else next(pause for until, pause in LOOKS if now - began <= until))

    def _deliver(self, letter: NodeReport) -> tuple[bool, bool]:
        """Whether it may be tried again, and whether the hub knows."""
        from jupyterhub_gpuspawner.node.report import http

        signal.alarm(round(PATIENCE))  # a name may be looked up for ever
        failure, again = http.attempt(letter, self.environ)
        signal.alarm(0)
        return again, failure is None

    def look(self) -> Look:
        """Who listens at the port; where the kernel does not tell, whether anybody does."""
        from jupyterhub_gpuspawner.node.report import listener
        from jupyterhub_gpuspawner.node.report import port as ports

        try:
            sockets = listener.listening(self.port)
            if self._whose is not None and sockets == self._sockets and time.monotonic() < self._whose[0] + _WHOSE:
                return self._whose[1]
            look = listener.whose(sockets, self.server, self.environ.get("JUPYTERHUB_API_TOKEN", ""))
        except (OSError, ValueError, IndexError):
            there = ports.answers(self.port, self.environ.get("JUPYTERHUB_SERVICE_URL", ""))
            return listener.Look(listener.OURS, listener.UNSEEN) if there else listener.Look()
        self._sockets, self._whose = list(sockets), (time.monotonic(), look)
        return look

    def letter(self, look: Look) -> NodeReport:
        """The report of what was seen."""
        from jupyterhub_gpuspawner.node.report import listener

        if look.state == listener.OURS:
            unseen = f"Who listens at port {self.port} cannot be seen on this node."
            problems: tuple[str, ...] = (unseen,) if look.seen == listener.UNSEEN else ()
            return self._with(problems, self.port, Door(look.seen, look.addresses[:64]))
        whose = "another process of this user" if look.uid == os.geteuid() else f"another user (uid {look.uid})"
        return self._with((f"Port {self.port} was taken by {whose} of this node.",), 0, Door(listener.TAKEN))

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
