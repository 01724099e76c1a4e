"""Port and first report: a port for the server, and the hub told of the placement.

Both are done in a child process (:mod:`~jupyterhub_gpuspawner.node.child`), since looking up a host name can wait for
ever; the parent needs no network code. The port itself is told by a process beside the server, once the server listens
there (:mod:`~jupyterhub_gpuspawner.node.report.retry`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.wire.documents import Door

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyterhub_gpuspawner.wire.documents import NodeReport

LAUNCHER = "GPUSPAWNER_LAUNCHER"
DEADLINE = 20.0
"""Seconds for the port and all tries of the report together."""


@dataclass(frozen=True)
class Announcement:
    """The port that was picked, what to call the server's URL now, and what went wrong."""

    port: int = 0
    service_url: str | None = None
    problems: tuple[str, ...] = ()


def announce(
    report: NodeReport, *, port_range: tuple[int, int] | None, environ: Mapping[str, str], deadline: float = DEADLINE
) -> Announcement:
    """Pick the server's port, deliver ``report``, have the port told later; port 0 where there was none to be had."""
    output, finished = child.ask(lambda fd: _tell(fd, report, port_range, environ), deadline)
    port, service_url, failures, again = 0, None, [], not finished
    placement = report.placement
    for line in output.splitlines():
        document = json.loads(line)
        if "port" in document:  # what is wrong with it
            placement = replace(placement, problems=(*placement.problems, *document["problems"]))
        port = document.get("port", port)
        service_url = document.get("service_url", service_url)
        failures += document.get("problems", ())
        again = document.get("again", again)
    if not finished:
        failures.append(f"Telling the hub was given up after {deadline:g} s.")
    if port and environ.get("JUPYTERHUB_API_URL"):
        if again:
            failures.append("The hub is told as soon as it can be, in the next ten minutes.")
        server, report = os.getpid(), replace(report, placement=placement)
        child.leave(lambda: _accompany(report, port, environ, server, told=not again))
    return Announcement(port, service_url, tuple(failures))


def _accompany(report: NodeReport, port: int, environ: Mapping[str, str], server: int, *, told: bool) -> None:
    from jupyterhub_gpuspawner.node.report import retry

    retry.Beside(report, port, environ, server).run(told=told)


def _tell(fd: int, report: NodeReport, port_range: tuple[int, int] | None, environ: Mapping[str, str]) -> None:
    """The child's part: the port first, so that it holds even if the report takes too long."""

    def say(**document: object) -> None:
        os.write(fd, json.dumps(document).encode() + b"\n")

    try:
        _announce(say, report, port_range, environ)
    except Exception as error:  # noqa: BLE001 - told to the parent, which goes on without
        say(problems=[f"Telling the hub failed: {type(error).__name__}: {error}"])


def _announce(
    say: Callable[..., None], report: NodeReport, port_range: tuple[int, int] | None, environ: Mapping[str, str]
) -> None:
    from jupyterhub_gpuspawner.node.report import http, port

    number, service_url, problems = port.door(environ.get("JUPYTERHUB_SERVICE_URL", ""), port_range)
    folder = os.path.dirname(environ.get(LAUNCHER, ""))
    lost = 0
    if os.path.basename(folder).startswith("gpuspawner."):  # the job's own, which goes with it
        lost = port.remembered(folder)
        port.remember(folder, number)
    if lost:
        problems.append(f"Another process took port {lost} before the server listened there; this is a second try.")
    say(port=number, service_url=service_url, problems=problems)
    placement = replace(report.placement, problems=(*report.placement.problems, *problems))
    door = Door("taken") if lost else None
    failure, again = http.attempt(replace(report, placement=placement, door=door), environ)
    if failure:
        say(problems=[failure], again=again)
