"""Find jobs with this hub's mark, and tell whose server each may belong to. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.identity import parse_tag, start_of, start_of_name
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jupyterhub_gpuspawner.hub.start.records import RecordedStart
    from jupyterhub_gpuspawner.jobs.identity import JobIdentity
    from jupyterhub_gpuspawner.jobs.status import JobStatus

ALIVE = (Phase.QUEUED, Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True)
class Orphan:
    """A job without a server, and the recorded start that submitted it."""

    job: JobStatus
    start: RecordedStart

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.job.job_id


def marked(jobs: Iterable[JobStatus], *, hub: str, mark: str, name_template: str) -> Iterator[tuple[JobStatus, str]]:
    """Yield the jobs that have not ended and carry the hub's mark, each with the id of its start.

    The id begins with the mark. It is in the job's comment or, if a plugin has replaced that, in the job's name.
    """
    for job in jobs:
        names = parse_tag(job.tag)
        if job.phase not in ALIVE or (names is not None and names[0] != hub):
            continue
        start_id = start_of(job.tag) if names is not None else start_of_name(name_template, job.name)
        if start_id.startswith(f"{mark}-"):
            yield job, start_id


def owned(job: JobStatus, start: RecordedStart, owner: Callable[[str], JobIdentity]) -> bool:
    """Whether the job may belong to the server of ``start``: the user's account owns it, and its comment fits.

    ``owner`` returns who owns a user's jobs, as far as that is known.
    """
    names = parse_tag(job.tag)
    return owner(start.user).owns(job) is not False and (names is None or names[1:] == (start.user, start.server))
