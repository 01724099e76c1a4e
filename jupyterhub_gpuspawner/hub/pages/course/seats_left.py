"""How many more people of a course fit on the cluster, by the hub's last snapshot of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.check import check_course, request_of
from jupyterhub_gpuspawner.courses.rehearsal import check_session
from jupyterhub_gpuspawner.errors import RequestError

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.courses.check import Site
    from jupyterhub_gpuspawner.hub.courses.book import HubCourse


@dataclass(frozen=True)
class SeatsLeft:
    """How many more servers fit at the same time."""

    fit: int
    problems: tuple[str, ...] = ()
    """What else is wrong with the session, in sentences."""


def seats_left(found: HubCourse, site: Site, *, now: float) -> SeatsLeft | None:
    """The seats that are free for the rest of the session under way, or at the beginning of the next one.

    None where there is neither, or where nothing could be counted. ``now`` in seconds since the epoch.
    """
    moment = datetime.fromtimestamp(now, timezone.utc)
    course, session = found.course, found.session_at(moment)
    if course is None or not found.people:
        return None
    if session is not None:
        rest = replace(session, start=moment.astimezone(session.start.tzinfo))
        try:
            request = request_of(course, rest, site, found.people[0])
        except RequestError as error:
            return SeatsLeft(0, (str(error),))
        return SeatsLeft(check_session(rest, request.resources, site.snapshot, found.people).seats.fit)
    session = found.next_session(moment)
    if session is None:
        return None
    report = next(iter(check_course(found.file, site, only=session.name)), None)
    return None if report is None else SeatsLeft(report.seats.fit, tuple(each.text for each in report.problems))
