"""How many more people of a course fit on the cluster, by the hub's last snapshot of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.courses.check import check_course

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.courses.check import Site
    from jupyterhub_gpuspawner.hub.courses.book import HubCourse


@dataclass(frozen=True)
class SeatsLeft:
    """How many more servers fit at the same time."""

    fit: int
    problems: tuple[str, ...] = ()
    """What is wrong with a session to come, in sentences."""


def seats_left(found: HubCourse, site: Site, *, now: float) -> SeatsLeft | None:
    """The seats that are free in the session under way, or at the beginning of the next one.

    The check counts what jobs leave free at the beginning of a session; of one that is under way, what is free now.
    None where there is neither, or where nothing could be counted. ``now`` in seconds since the epoch.
    """
    moment = datetime.fromtimestamp(now, timezone.utc)
    under_way = found.session_at(moment)
    session = under_way or found.next_session(moment)
    if session is None or not found.people:
        return None
    report = next(iter(check_course(found.file, site, only=session.name)), None)
    if report is None:
        return None
    problems = () if under_way is not None else tuple(each.text for each in report.problems)
    return SeatsLeft(report.seats.fit, problems)
