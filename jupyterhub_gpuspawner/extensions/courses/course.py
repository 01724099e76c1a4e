"""A course as its file describes it. An instructor writes it, so it is a user's word and holds no code and no path."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.document import Document, NotYAML, read_document
from jupyterhub_gpuspawner.profiles.profile import SLUG
from jupyterhub_gpuspawner.profiles.resources import ReservationRule, as_rule
from jupyterhub_gpuspawner.profiles.schema import (
    TEXT_LIMIT,
    BadValue,
    Checked,
    Duration,
    Frozen,
    Memory,
    OneOrMany,
    Prose,
    Text,
    Time,
    matching,
    validated,
    whole,
)
from jupyterhub_gpuspawner.units import TooManyNames, expand_nodelist

# The dates of a course: single days and weekly rules, with their times in a zone and their reservation.

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


class ChosenProfile(Frozen):
    """A profile of the admin's, with values for its options; numbers may be lowered further.

    No number may exceed what the profile allows with these options, and a number that the profile leaves to Slurm
    cannot be set.
    """

    slug: Annotated[str, matching(SLUG, "the slug of a profile")]
    """The profile. A slug alone stands for a table with this field."""
    options: dict[str, str | int | float] = Field(default_factory=dict)
    """Values of the profile's options, as a participant could choose them; of an option that sets a field of
    ``environment``, one of its listed choices. The others have their default values."""
    gpus: Annotated[int, whole(0, 1024)] | None = None
    """GPUs of each participant."""
    cpus: Annotated[int, whole(1, 65536)] | None = None
    """CPUs of each participant."""
    memory: Memory | None = None
    """Memory of each participant, in MiB, or with K, M, G or T."""
    time: Time | None = None
    """Time limit of each server, in sbatch's formats (a bare number is minutes). In a session it is lowered so that the
    server ends with the session; without a reservation only where ``outside_sessions`` is ``no``."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"slug": value} if isinstance(value, str) else value


PROFILES_LIMIT = 8
"""Maximum number of profiles of a session."""


def _several(value: object) -> object:
    """One profile, or several in a list."""
    profiles = value if isinstance(value, list) else [value]
    if not 0 < len(profiles) <= PROFILES_LIMIT:
        raise BadValue(f"must be one profile, or a list of at most {PROFILES_LIMIT}")
    return profiles


ChosenProfiles = Annotated[tuple[ChosenProfile, ...], BeforeValidator(_several)]


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
    profiles: ChosenProfiles = Field(default=(), alias="profile")
    """The profile of this session, or several in a list. Default: the course's."""

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
        assert self.first is not None and self.last is not None  # noqa: PT018 - _consistent
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
    profiles: tuple[ChosenProfile, ...] = field(default=(), compare=False)
    """In the order in which their seats are filled."""
    profiles_at: tuple[str | int, ...] = field(default=("profile",), compare=False)
    """Their path in the course's file."""


def dates_of(rules: Sequence[SessionRule], zone: tzinfo | None) -> tuple[CourseDate, ...]:
    """All sessions in the order of time; raises BadValue if they overlap, or are too many.

    Without a zone, times are those of this machine, with or without summer time as on the session's day.
    """
    moments: list[tuple[datetime, datetime, str | None, int]] = []
    for number, rule in enumerate(rules):
        for day in rule.days():
            if len(moments) >= SESSIONS_LIMIT:
                raise BadValue(f"there are more than {SESSIONS_LIMIT} sessions")
            begin, end = (_at(day, clock, zone) for clock in (rule.from_, rule.to))
            if end.timestamp() <= begin.timestamp():
                raise BadValue(f"the change of the clock on {day.isoformat()} leaves no time between from and to")
            moments.append((begin, end, _reservation(rule, day), number))
    moments.sort(key=lambda moment: moment[0])
    for (_, end, *_), (begin, *_) in pairwise(moments):
        if begin < end:
            raise BadValue(f"two sessions overlap on {begin.date().isoformat()}")
    days = Counter(begin.date() for begin, *_ in moments)
    return tuple(
        CourseDate(
            begin,
            end,
            f"{begin:%Y-%m-%d}" if days[begin.date()] == 1 else f"{begin:%Y-%m-%dT%H:%M}",
            reservation,
            rules[number].profiles,
            ("sessions", number, "profile"),
        )
        for begin, end, reservation, number in moments
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


# The people of a course: names, ranges such as ``train[001-050]``, JupyterHub groups, or a CSV file.

PEOPLE_LIMIT = 2000
"""Maximum number of people whom a roster names, and of those in its file."""
INSTRUCTORS_LIMIT = 100
"""Maximum number of instructors whom a course names."""
GROUPS_LIMIT = 100
"""Maximum number of groups in a roster, and of groups of instructors."""
USERNAME_COLUMNS = (
    *("username", "user name", "user", "login", "login name", "user id", "uid", "account"),
    *("netid", "net id", "sis login id"),
)
"""Headers under which exported lists have user names, in the order of preference; ``_`` and ``-`` count as spaces."""
_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")
_CSV = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}\.csv")
_SEPARATORS = re.compile(r"[\s,]+")
_DIGITS = re.compile(r"([0-9]+)")


def _names(value: object) -> str:
    names = _expanded(value, PEOPLE_LIMIT)
    if not names or any(_NAME.fullmatch(name) is None for name in names):
        raise BadValue("must be a user name, or names with a range such as train[001-050]", value)
    return _listed(value)


def _listed(value: object) -> str:
    """Names and ranges as people write them, with commas alone between them."""
    return _SEPARATORS.sub(",", str(value).strip()).strip(",")


def _expanded(value: object, limit: int) -> tuple[str, ...]:
    """The names of one text; empty if it is none. Raises TooManyNames."""
    if isinstance(value, (bool, dict, list)) or len(str(value)) > TEXT_LIMIT:
        return ()
    try:
        return expand_nodelist(_listed(value), limit=limit)
    except TooManyNames:
        raise
    except ValueError:
        return ()


def _at_most(limit: int) -> Callable[[object], object]:
    """Refuses a list of names and ranges as soon as there are more than ``limit``, before the rest is looked at."""

    def count(value: object) -> object:
        left = limit
        for item in value if isinstance(value, list) else ():
            try:
                left -= max(1, len(_expanded(item, left)))
            except TooManyNames:
                left = -1
            if left < 0:
                raise BadValue(f"names more than {limit} people")
        return value

    return count


def _few_groups(value: object) -> object:
    if isinstance(value, list) and len(value) > GROUPS_LIMIT:
        raise BadValue(f"names more than {GROUPS_LIMIT} groups")
    return value


def _every_name(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for text in value for name in expand_nodelist(text)))


UserNames = Annotated[
    str, Checked(_names, {"type": "string", "examples": ["ada", "train[001-050]", "train[001-050], ada"]})
]
FileName = Annotated[str, matching(_CSV.pattern, "the name of a CSV file beside the course's file")]
# pydantic calls the last of the validators before a value first
RosterNames = Annotated[
    tuple[UserNames, ...], BeforeValidator(_at_most(PEOPLE_LIMIT)), OneOrMany, AfterValidator(_every_name)
]
"""Every name in a list of names and ranges, each once."""
InstructorNames = Annotated[
    tuple[UserNames, ...], BeforeValidator(_at_most(INSTRUCTORS_LIMIT)), OneOrMany, AfterValidator(_every_name)
]
Groups = Annotated[tuple[Text, ...], BeforeValidator(_few_groups), OneOrMany]


class Roster(Frozen):
    """The people of a course; a name that occurs twice counts once."""

    names: RosterNames = ()
    """User names, and ranges such as ``train[001-050]``. Names, or a list of names, alone stand for a table with this
    field; a name that ends in ``.csv`` among them stands for ``file``."""
    groups: Groups = ()
    """JupyterHub groups: all their members."""
    file: FileName | None = None
    """A CSV file in the same folder, with a user name on each line."""
    column: Text | None = None
    """The header of the column with the user names. Default: the first of ``username``, ``user name``, ``user``,
    ``login``, ``login name``, ``user id``, ``uid``, ``account``, ``netid``, ``net id`` and ``sis login id``. Without
    such a header it is the first column."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        """Names alone stand for ``names``, and one that is a CSV file's for ``file``."""
        if not isinstance(value, (str, list)):
            return value
        items = value if isinstance(value, list) else [value]
        files = [item for item in items if isinstance(item, str) and _CSV.fullmatch(item)]
        if len(files) > 1:
            raise BadValue("names more than one CSV file")
        return {"names": [item for item in items if item not in files], "file": files[0]} if files else {"names": value}

    @model_validator(mode="after")
    def _somebody(self) -> Roster:
        if not (self.names or self.groups or self.file):
            raise BadValue("must name people: names, groups, or a file")
        return self


@dataclass(frozen=True)
class People:
    """The user names of a roster, and the groups that do not exist."""

    names: tuple[str, ...] = ()
    unknown_groups: tuple[str, ...] = ()


def people(roster: Roster, listed: Collection[str], groups: Mapping[str, Collection[str]]) -> People:
    """Everybody on the roster, in its order. ``listed``: the names in its file; ``groups``: the hub's, with members."""
    names = dict.fromkeys(roster.names)
    for group in roster.groups:
        names.update(dict.fromkeys(sorted(groups.get(group, ()), key=natural)))
    names.update(dict.fromkeys(listed))
    return People(tuple(names), tuple(group for group in roster.groups if group not in groups))


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """A sort key by which ``train2`` comes before ``train10``."""
    parts = (part for part in _DIGITS.split(name.lower()) if part)
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)


def parse_people(text: str, column: str | None = None) -> tuple[str, ...]:
    """The user names in a CSV file; raises BadValue, which names the line and quotes nothing.

    They are in the column with this header, by default one of :data:`USERNAME_COLUMNS`, or else in the first column.
    Separators are commas, semicolons or tabs, whichever the first line has. A line without a name is skipped.
    """
    lines = text.lstrip("\ufeff").splitlines()
    rows = csv.reader(lines, delimiter=max(",;\t", key=(lines[0] if lines else "").count))
    wanted = [_header(column)] if column is not None else USERNAME_COLUMNS
    position, names = -1, dict[str, None]()
    try:
        for row in rows:
            if position < 0:  # the first one
                header = [_header(cell) for cell in row]
                named = [header.index(name) for name in wanted if name in header]
                position = named[0] if named else 0
                if named:
                    continue
            name = row[position].strip() if position < len(row) else ""
            if not name:
                continue
            if _NAME.fullmatch(name) is None:
                raise BadValue(f"line {rows.line_num} has no valid user name in column {position + 1}")
            names[name] = None
            if len(names) > PEOPLE_LIMIT:
                raise BadValue(f"the file names more than {PEOPLE_LIMIT} people")
    except csv.Error:  # such as a cell of more than 128 KiB
        raise BadValue(f"line {rows.line_num} is not a row of a CSV file") from None
    return tuple(names)


def _header(cell: str) -> str:
    """A header in lower case, with a space between its words."""
    return " ".join(re.split(r"[\s_-]+", cell.strip().lower()))


class Instructors(Frozen):
    """Who teaches the course."""

    users: InstructorNames = ()
    """User names. A name or a list of names alone stands for a table with this field."""
    groups: Groups = ()
    """JupyterHub groups."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        """A name or a list of names stands for ``users``."""
        return {"users": value} if isinstance(value, (str, list)) else value

    @model_validator(mode="after")
    def _somebody(self) -> Instructors:
        if not (self.users or self.groups):
            raise BadValue("must name a user or a group")
        return self


class Materials(Frozen):
    """What nbgitpuller fetches into the participant's home folder; it must be installed where the servers run."""

    git: Annotated[
        str,
        # nbgitpuller clones into a folder of this name: never into .jupyter or .ssh
        matching(
            r"https://[A-Za-z0-9.-]+(?::[0-9]+)?/(?:[A-Za-z0-9_.~+%@-]+/)*[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}/?",
            "an https address of a git repository whose name begins with a letter or a digit",
        ),
    ]
    """The repository; it must be readable without a password."""
    branch: Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}", "the name of a branch")] = "main"
    """Its branch."""
    open: Annotated[
        str, matching(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./ -]{0,400}", "a path in the repository, without ..")
    ] = ""
    """The file or folder to open."""

    @property
    def pull_path(self) -> str:
        """The path on the server at which nbgitpuller fetches the materials and then opens them in JupyterLab.

        It clones into a folder with the repository's name in the server's root folder. Its own name for that folder
        would end in ``.git`` where the address does.
        """
        folder = self.git.rstrip("/").rpartition("/")[2].removesuffix(".git")
        opened = "/".join(part for part in (folder, self.open.strip("/")) if part)
        query = {
            "repo": self.git,
            "branch": self.branch,
            "targetpath": folder,
            "urlpath": f"lab/tree/{quote(opened)}",
        }
        return f"/git-pull?{urlencode(query, quote_via=quote)}"


class Course(Frozen):
    """One course."""

    name: Prose
    """Its title, as participants read it."""
    instructors: Instructors
    roster: Roster
    profiles: ChosenProfiles = Field(alias="profile")
    """What each participant's server is; of several in a list the first that has a seat left, or else the last."""
    sessions: tuple[SessionRule, ...]
    """When the course takes place; sessions must not overlap."""
    zone: Zone | None = None
    """Time zone of the sessions. Default: the hub's."""
    start_ahead: Duration | None = None
    """How long before each session the servers of the roster are started. Default: they are not."""
    unvisited_after: Duration = 1800
    """A server started ahead that nobody has opened this long after the session's start is stopped. Default: 30min;
    kept in seconds."""
    outside_sessions: Literal["no", "without_reservation"] = "no"
    """Whether participants may start a server of the course between its sessions, and before the first: ``no``, or
    ``without_reservation``, on what the profile uses otherwise."""
    materials: Materials | None = None
    """What each participant's server fetches and opens first, with nbgitpuller."""
    message: Prose | None = None
    """What participants read on the course's card."""

    @field_validator("sessions")
    @classmethod
    def _any(cls, value: tuple[SessionRule, ...]) -> tuple[SessionRule, ...]:
        if not value:
            raise BadValue("must have at least one session")
        return value

    @model_validator(mode="after")
    def _sessions_do_not_overlap(self) -> Course:
        _ = self.dates
        return self

    @cached_property
    def dates(self) -> tuple[CourseDate, ...]:
        """All sessions, in the order of time; a course may have hundreds, and a hub many courses."""
        dates = dates_of(self.sessions, ZoneInfo(self.zone) if self.zone is not None else None)
        return tuple(
            date if date.profiles else replace(date, profiles=self.profiles, profiles_at=("profile",)) for date in dates
        )


_RANGE = re.compile(r"(?<![^\s,\[])([\w.@+-]+(?:\[[0-9, -]{1,400}\][\w.@+-]*)+)(?=\s*(?:[,\]#]|$))", re.ASCII)
"""A name with a range in a list in brackets."""
QUOTED_LINES = 10
"""Maximum number of lines of a file on which such names are put in quotes: each costs a reading of the file."""


def read_course(text: str, name: str = "text") -> Document:
    """The YAML document of a course in the file ``name``; raises ConfigError with file and line.

    Names such as ``train[1-12]`` in a list in brackets, where YAML has no such names, are taken to be in quotes:
    everybody writes ``[train[1-12], ada]``.
    """
    for _ in range(QUOTED_LINES):
        try:
            return read_document(text, name)
        except NotYAML as fault:
            lines = text.split("\n")
            line = lines[fault.line] if 0 <= fault.line < len(lines) else ""
            if not any(match.start() < fault.column < match.end() for match in _RANGE.finditer(line)):
                raise
            lines[fault.line] = _RANGE.sub(r'"\1"', line)
            text = "\n".join(lines)
    raise ConfigError("put names with a range, such as train[1-12], in quotes", where=name)


def parse_course(value: Any, where: Callable[[Sequence[str | int]], str]) -> Course:
    """A course; raises ConfigError for its first fault, located by ``where``, without quoting the file."""
    return validated(Course, value, lambda path: where(_as_written(value, path)), quoting=False)


def _as_written(document: Any, path: Sequence[str | int]) -> tuple[str | int, ...]:
    """The path of a field in a course's file, where one profile may stand for a list of one."""
    steps: list[str | int] = []
    for step in path:
        if isinstance(step, int) and steps[-1:] == ["profile"] and not isinstance(document, list):
            continue
        steps.append(step)
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            document = None
    return tuple(steps)


def calendar(slug: str, course: Course, *, hub: str, now: datetime) -> str:
    """The course's dates as iCalendar (RFC 5545): one event for each.

    ``hub`` names the hub, so that two hubs' events are not taken for the same; ``now`` is the time of the file. An
    event keeps its UID when its times change, so that a calendar replaces it: that is the session's day, with a number
    from the second one of a day on. Times of a course without a zone are in UTC. Raises ConfigError.
    """
    try:
        from icalendar import Calendar, Event  # takes long, and no hub needs it
    except ImportError:
        raise ConfigError(
            "a calendar needs icalendar.", hint="pip install icalendar, which is the extra `calendar` of this package."
        ) from None

    document = Calendar()
    document.add("prodid", "-//jupyterhub-gpuspawner//courses//EN")
    document.add("version", "2.0")
    document.add("name", course.name)
    of_day = Counter[date]()
    for course_date in course.dates:
        day = course_date.start.date()
        of_day[day] += 1
        number = f"-{of_day[day]}" if of_day[day] > 1 else ""
        event = Event()
        event.add("uid", f"{slug}-{day.isoformat()}{number}@{hub}")
        event.add("dtstamp", now)
        for name, moment in (("dtstart", course_date.start), ("dtend", course_date.end)):
            event.add(name, moment if course.zone is not None else moment.astimezone(timezone.utc))
        event.add("summary", course.name)
        about = [course.message] if course.message else []
        if course_date.reservation:
            about.append(f"Slurm reservation: {course_date.reservation}")
        if about:
            event.add("description", "\n".join(about))
        document.add_component(event)
    document.add_missing_timezones()
    text: str = document.to_ical().decode()
    return text
