"""Which jobs carry the hub's mark, and whose server each can be of. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.comment import parse_tag, start_of, start_of_name
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jupyterhub_gpuspawner.hub.start.records import RecordedStart
    from jupyterhub_gpuspawner.jobs.identity import JobIdentity
    from jupyterhub_gpuspawner.jobs.status import JobStatus

ALIVE = (Phase.QUEUED, Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True)
class Orphan:
    """A job that no server belongs to, and whose start says whose it was."""

    job: JobStatus
    start: RecordedStart

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.job.job_id


def marked(jobs: Iterable[JobStatus], *, hub: str, mark: str, name_template: str) -> Iterator[tuple[JobStatus, str]]:
    """Those of ``jobs`` that are alive and carry the hub's mark, each with the id of its start.

    The comment has both; where a plugin has replaced it, the job's name has the start's id.
    """
    for job in jobs:
        names = parse_tag(job.tag)
        if job.phase not in ALIVE or (names is not None and names[0] != hub):
            continue
        start_id = start_of(job.tag) if names is not None else start_of_name(name_template, job.name)
        if start_id.startswith(f"{mark}-"):
            yield job, start_id


def owned(job: JobStatus, start: RecordedStart, owner: Callable[[str], JobIdentity]) -> bool:
    """Whether the job can be of that server: its owner is the user's account, and its comment names no other server.

    ``owner`` is whose jobs a user's servers are, as far as that can be told.
    """
    names = parse_tag(job.tag)
    return owner(start.user).owns(job) is not False and (names is None or names[1:] == (start.user, start.server))
