"""The dates of a course: single days and weekly rules, with their times in a zone and their reservation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from itertools import pairwise
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, model_validator

from jupyterhub_gpuspawner.profiles.resources import ReservationRule, as_rule
from jupyterhub_gpuspawner.profiles.schema import BadValue, Checked, Frozen, OneOrMany

SESSIONS_LIMIT = 400
"""Maximum number of sessions of a course."""
YEARS = (2000, 2999)
"""The first and the last year of a session: calendars and time zones cannot reckon at the ends of Python's."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


def _clock(value: object) -> time:
    match = re.fullmatch(r"([0-9]{1,2}):([0-9]{2})", str(value), re.ASCII)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise BadValue("is not a valid time of day: use for example 9:00 or 17:30", value)
    return time(int(match[1]), int(match[2]))


def _day(value: object) -> date:
    try:
        day = datetime.strptime(str(value), "%Y-%m-%d").date()  # noqa: DTZ007 - a day has no zone
    except ValueError:
        raise BadValue("is not a valid date: use for example 2026-03-02", value) from None
    if not YEARS[0] <= day.year <= YEARS[1]:
        raise BadValue(f"must be in the years {YEARS[0]} to {YEARS[1]}", value)
    return day


def _zone(value: object) -> str:
    try:
        return ZoneInfo(str(value)).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadValue("is not a time zone: use a name such as Europe/Brussels or UTC", value) from None


ClockTime = Annotated[time, Checked(_clock, {"type": "string", "examples": ["9:00"]})]
Day = Annotated[date, Checked(_day, {"type": "string", "format": "date"})]
Zone = Annotated[str, Checked(_zone, {"type": "string", "examples": ["Europe/Brussels"]})]


class SessionRule(Frozen):
    """One session on a date, or one each week between two dates."""

    date_: Day | None = Field(default=None, alias="date")
    """The day of a single session."""
    weekly: Annotated[tuple[Weekday, ...], OneOrMany] = ()
    """Days of the week, such as ``[monday, thursday]``; with ``first`` and ``last``."""
    first: Day | None = None
    """The first day on which a weekly session may be."""
    last: Day | None = None
    """The last one."""
    except_: tuple[Day, ...] = Field(default=(), alias="except")
    """Days without a session, such as holidays."""
    from_: ClockTime = Field(alias="from")
    """When it begins."""
    to: ClockTime
    """When it ends, on the same day."""
    reservation: Annotated[ReservationRule | None, BeforeValidator(as_rule)] = None
    """Slurm's reservation: a name, or a pattern such as ``ml-hpc-%u``. Default: that of the profile."""

    @model_validator(mode="after")
    def _consistent(self) -> SessionRule:
        if (self.date_ is None) == (not self.weekly):
            raise BadValue("must have either a date, or weekly with first and last")
        if self.weekly and (self.first is None or self.last is None):
            raise BadValue("a weekly session must have first and last")
        if self.first is not None and self.last is not None and self.last < self.first:
            raise BadValue("last must not be before first")
        if self.date_ is not None and (self.first or self.last or self.except_):
            raise BadValue("first, last and except belong to weekly sessions")
        if self.to <= self.from_:
            raise BadValue("to must be later than from")
        return self

    def days(self) -> Iterator[date]:
        """Each day with a session, in order."""
        if self.date_ is not None:
            yield self.date_
            return
        assert self.first is not None and self.last is not None  # noqa: S101, PT018 - _consistent
        wanted = {WEEKDAYS.index(name) for name in self.weekly}
        without = frozenset(self.except_)
        day = self.first
        while day <= self.last:
            if day.weekday() in wanted and day not in without:
                yield day
            day += timedelta(days=1)


@dataclass(frozen=True, order=True)
class CourseDate:
    """One session of a course."""

    start: datetime
    end: datetime
    name: str
    """Its date; with its time where a day has several sessions, such as ``2026-03-02T13:00``."""
    reservation: str | None = None
    """None: that of the profile."""


def dates_of(rules: Sequence[SessionRule], zone: tzinfo | None) -> tuple[CourseDate, ...]:
    """All sessions in the order of time; raises BadValue if they overlap, or are too many.

    Without a zone, times are those of this machine, with or without summer time as on the session's day.
    """
    moments: list[tuple[datetime, datetime, str | None]] = []
    for rule in rules:
        for day in rule.days():
            if len(moments) >= SESSIONS_LIMIT:
                raise BadValue(f"there are more than {SESSIONS_LIMIT} sessions")
            begin, end = (_at(day, clock, zone) for clock in (rule.from_, rule.to))
            if end.timestamp() <= begin.timestamp():
                raise BadValue(f"the change of the clock on {day.isoformat()} leaves no time between from and to")
            moments.append((begin, end, _reservation(rule, day)))
    moments.sort(key=lambda moment: moment[0])
    for (_, end, _), (begin, _, _) in pairwise(moments):
        if begin < end:
            raise BadValue(f"two sessions overlap on {begin.date().isoformat()}")
    days = Counter(begin.date() for begin, _, _ in moments)
    return tuple(
        CourseDate(begin, end, f"{begin:%Y-%m-%d}" if days[begin.date()] == 1 else f"{begin:%Y-%m-%dT%H:%M}", name)
        for begin, end, name in moments
    )


def _at(day: date, clock: time, zone: tzinfo | None) -> datetime:
    moment = datetime.combine(day, clock, tzinfo=zone)
    return moment if zone is not None else moment.astimezone()


def _reservation(rule: SessionRule, day: date) -> str | None:
    if rule.reservation is None:
        return None
    try:
        return rule.reservation.on(day)
    except LookupError as error:
        raise BadValue(str(error.args[0])) from None
