"""Made-up servers of a course, for a hub whose pages are looked at with many participants in every state.

A hub's configuration imports this module and calls :func:`install`. The servers are those of the file, a JSON object
``{"user": "state"}``, which is read again at each look. Everything else of the hub is real, and so are the servers of
other people.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.extensions.courses import actions
from jupyterhub_gpuspawner.hub.job.cause import end_of_job, job_ended_in_start
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.slurm.estimate import QueuePosition
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

BEGAN = time.time()
LOG = """Loading modules GCC/13.3.0 CUDA/12.6.0
Lmod has detected the following error: The following module(s) are unknown: "CUDA/12.6.0"
The set-up of the server failed with exit code 1."""


def server(user: str, state: str, number: int) -> Server:
    """A server in this state; ``number`` varies its node and GPU."""
    ends = datetime.fromtimestamp(BEGAN + 7200, timezone.utc).isoformat()
    placement = PlacementDocument(
        job_id=str(4000 + number), node=f"g{number // 4 + 1}", gpus=(PlacedGpu(number % 4),), ends_at=ends
    )
    if state == "running":
        return Server(user, ready=True, job_id=placement.job_id or "", placement=placement)
    if state == "starting":
        job = Job("1", Phase.RUNNING, batch_host=placement.node)
        return Server(user, pending="spawn", job=job, start=StartFacts("1", job=job))
    if state in ("waiting", "stuck"):
        job = Job("2", Phase.QUEUED, reason="Resources" if state == "waiting" else "BadConstraints")
        position = QueuePosition(number, 9, "gpu", people=number % 3, starts_at=BEGAN + 1200)
        return Server(
            user, pending="spawn", job=job, start=StartFacts("2", job=job, matching="GPUs", queue_position=position)
        )
    if state == "failed":
        job = Job("3", Phase.ENDED, state="FAILED", exit_code="1:0", end=End.FAILED)
        died = Ending(job_ended_in_start(job.end), at=BEGAN, job_id="3", job=job)
        return Server(user, ending=replace(died, log="/home/x/jupyterhub.log", lines=LOG))
    if state == "ended":
        job = Job("4", Phase.ENDED, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
        return Server(user, ending=Ending(end_of_job(job.end), at=BEGAN, job_id="4", job=job))
    if state == "stopping":
        return Server(user, pending="stop", ready=True)
    return Server(user)


def install(file: str) -> None:
    """Have the pages of courses show the servers of this file; of people who are not in it, those that there are."""
    real = vars(actions)["servers_of"]

    def servers_of(users: Iterable[Any], people: Collection[str], **options: bool) -> Iterator[Server]:
        states = json.loads(Path(file).read_text())
        for number, (user, state) in enumerate(states.items()):
            if user in people:
                course = "course-deep-learning" if user.startswith("train") else "course-large"
                yield replace(server(user, state, number), last_profile=course)
        yield from real(users, frozenset(people) - states.keys(), **options)

    vars(actions)["servers_of"] = servers_of
