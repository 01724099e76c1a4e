"""Times in one form: ``11:38 CET``, ``23 Nov 2026, 11:38 CET``, ``in 20 min, 11:38 CET``, ``23 Nov 2026``.

The hub writes them in its own time zone, with the zone's name. ``static/times.js`` replaces them by the time in the
browser's zone and language.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import date, datetime, timezone

from jupyterhub_gpuspawner.words import day, duration, moment

NOW = "now"
AHEAD = "in {duration}"
PAST = "{duration} ago"
AWAY = "The hub is not responding. The page shows the last known state, and goes on by itself."
SIGNED_OUT = "The page shows the last known state: your sign-in has ended. Reload the page to sign in again."


def parse_time(when: float | str | datetime) -> datetime:
    """The same moment in the hub's zone, from seconds since the epoch or ISO 8601, in UTC if that names no zone.

    Raises ValueError for other text.
    """
    if isinstance(when, (int, float)):
        return datetime.fromtimestamp(when, timezone.utc).astimezone()
    at = datetime.fromisoformat(when.replace("Z", "+00:00")) if isinstance(when, str) else when
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone()


def iso(when: float | str | date) -> str:
    """For ``<time datetime>``: ISO 8601, in full seconds; a day as such, without a time."""
    if isinstance(when, date) and not isinstance(when, datetime):
        return when.isoformat()
    return parse_time(when).isoformat(timespec="seconds")


def hub_now() -> str:
    """The hub's time, in ISO 8601 with milliseconds; the clock of a browser may be minutes off."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def clock(when: float | str | date, *, now: float | None = None) -> str:
    """``11:38 CET``; with the date where that is not today. A day is ``23 Nov 2026``."""
    if isinstance(when, date) and not isinstance(when, datetime):
        return day(when)
    at, today = parse_time(when), parse_time(time.time() if now is None else now)
    return f"{at:%H:%M %Z}" if at.date() == today.date() else moment(at)


def relative(when: float | str | datetime, *, now: float | None = None) -> str:
    """``in 20 min``, ``5 min ago``; ``now`` within five seconds."""
    seconds = parse_time(when).timestamp() - (time.time() if now is None else now)
    if abs(seconds) < 5:
        return NOW
    return (AHEAD if seconds > 0 else PAST).format(duration=duration(abs(seconds)))


def both(when: float | str | datetime, *, now: float | None = None) -> str:
    """``in 20 min, 11:38 CET``."""
    return f"{relative(when, now=now)}, {clock(when, now=now)}"


SILENT = "Slurm is not responding at the moment. This is as of {time}."
NEVER = "Slurm has not responded to this hub yet."
SILENT_ON = "Slurm on {clusters} is not responding at the moment. What is shown of it is as of {time}."
NEVER_ON = "Slurm on {clusters} has not responded to this hub yet."


def silence(*, since_the_start: bool, more: str = "", clusters: Collection[str] = ()) -> str:
    """The sentence, followed by what holds on this page; ``since_the_start``: there has been no answer yet.

    ``clusters`` are those that are silent, where there are several.
    """
    if clusters:
        text = (NEVER_ON if since_the_start else SILENT_ON).replace("{clusters}", " and ".join(clusters))
    else:
        text = NEVER if since_the_start else SILENT
    return f"{text} {more}".strip()
