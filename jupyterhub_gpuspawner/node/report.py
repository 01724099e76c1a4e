"""Port and report: the server's door, and the hub told of it.

Both are done in a child process (:mod:`~jupyterhub_gpuspawner.node.child`), since looking up a host name can wait for
ever; the parent needs no network code.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jupyterhub_gpuspawner.wire import NodeReport

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
    """Pick the server's port, put it into ``report``, deliver that; port 0 where there was none to be had."""
    output, finished = child.ask(lambda fd: _tell(fd, report, port_range, environ), deadline)
    port, service_url, failures, again = 0, None, [], not finished
    for line in output.splitlines():
        document = json.loads(line)
        port = document.get("port", port)
        service_url = document.get("service_url", service_url)
        failures += document.get("problems", ())
        again = document.get("again", again)
    if not finished:
        failures.append(f"Telling the hub was given up after {deadline:g} s.")
    if again and port:
        from jupyterhub_gpuspawner.node import messenger

        messenger.send_later(replace(report, port=port), environ)
        failures.append("The hub is told as soon as it can be, in the next ten minutes.")
    return Announcement(port, service_url, tuple(failures))


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
    from jupyterhub_gpuspawner.node import delivery, port

    number, service_url, problems = port.door(environ.get("JUPYTERHUB_SERVICE_URL", ""), port_range)
    say(port=number, service_url=service_url, problems=problems)
    folder = os.path.dirname(environ.get(LAUNCHER, ""))
    if os.path.basename(folder).startswith("gpuspawner."):  # the job's own, which goes with it
        port.remember(folder, number)
    placement = replace(report.placement, problems=(*report.placement.problems, *problems))
    failure, again = delivery.attempt(replace(report, port=number, placement=placement), environ)
    if failure:
        say(problems=[failure], again=again)
