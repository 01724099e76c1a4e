"""The child's part of announcing a server: pick its port, and deliver the first report to the hub.

It runs in a child process, because looking up a host name has no time limit of its own, and because the launcher itself
then needs no network code (:func:`jupyterhub_gpuspawner.node.launch.announce`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.report import http, port
from jupyterhub_gpuspawner.wire.documents import Door

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.node.child import Say
    from jupyterhub_gpuspawner.wire.documents import NodeReport

LAUNCHER = "GPUSPAWNER_LAUNCHER"
"""Environment variable with the path of the launcher's archive, which lies in the job's own folder."""


def deliver(say: Say, report: NodeReport, port_range: tuple[int, int] | None, environ: Mapping[str, str]) -> None:
    """Say the port first, so that it counts even if the report takes too long; then post the report.

    What is said: ``port``, ``service_url`` and ``problems``; then, if the hub did not take the report, ``problems`` and
    ``again``, which is whether the report may be sent again later.
    """
    number, service_url, problems = port.door(environ.get("JUPYTERHUB_SERVICE_URL", ""), port_range)
    folder = os.path.dirname(environ.get(LAUNCHER, ""))
    lost = 0
    if os.path.basename(folder).startswith("gpuspawner."):  # the job's own folder, removed with the job
        lost = port.remembered(folder)
        port.remember(folder, number)
    if lost:
        problems.append(
            f"Another process took port {lost} before the server listened there; the server was "
            "started again on another port."
        )
    say(port=number, service_url=service_url, problems=problems)
    placement = replace(report.placement, problems=(*report.placement.problems, *problems))
    door = Door("taken") if lost else None
    failure, again = http.attempt(replace(report, placement=placement, door=door), environ)
    if failure:
        say(problems=[failure], again=again)
