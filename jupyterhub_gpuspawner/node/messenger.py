"""A report that the hub could not be given yet, brought to it later: by a process beside the server, for ten minutes.

A hub may be down for a minute while servers start, or wait itself for Slurm's answer about this very job. The server is
not kept waiting for that, but without its report it would never be reached.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, NoReturn

from jupyterhub_gpuspawner.node import delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.wire import NodeReport

PATIENCE = 600.0
"""Seconds after which it is given up."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries; the last one again and again."""


def send_later(report: NodeReport, environ: Mapping[str, str]) -> None:
    """Leave the report to a process that ends with this one, whatever this one has become by then.

    Raises OSError where the system gives no process.
    """
    server = os.getpid()
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        # the server gets no child that it does not know of: init (or slurmstepd) will have it
        os.setsid()
        if os.fork() == 0:
            _carry(report, environ, server)
    finally:
        os._exit(0)


def _carry(report: NodeReport, environ: Mapping[str, str], server: int) -> NoReturn:
    try:
        _let_go()
        signal.alarm(round(PATIENCE))  # a name may be looked up for ever
        ends_at = time.monotonic() + PATIENCE
        tries = 0
        while _lives(server) and time.monotonic() < ends_at:
            failure, again = delivery.attempt(report, environ)
            if failure is None or not again:
                break
            time.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1
    finally:
        os._exit(0)


def _let_go() -> None:
    """Hold neither the job's log nor anything else that the server or its job may want to close."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, 1024)
    os.chdir("/")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
