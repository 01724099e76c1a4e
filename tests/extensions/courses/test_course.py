"""A course's file, and what is wrong with one."""

from __future__ import annotations

import time
import tracemalloc
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from icalendar import Calendar

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.courses.course import (
    Course,
    CourseDate,
    People,
    Roster,
    calendar,
    natural,
    parse_course,
    parse_people,
    people,
    read_course,
)
from jupyterhub_gpuspawner.profiles.schema import BadValue, dotted

DEEP_LEARNING = """
name: Deep learning
instructors: [ada, grace]
roster: train[001-050]
profile: {slug: k80, options: {gpus: 1}}
zone: Europe/Brussels
sessions:
  - {date: 2026-03-02, from: 9:00, to: 17:00, reservation: ml-hpc-%u}
  - {weekly: [tuesday, thursday], first: 2026-03-03, last: 2026-03-12, except: [2026-03-05], from: 13:30, to: 17:00}
start_ahead: 10min
materials: {git: https://github.com/example/course, open: week1/start.ipynb}
message: Bring your own questions.
"""


def course(text: str, **changes: Any) -> Course:
    """The course of a file, with some fields replaced."""
    return parse_course({**read_course(text).value, **changes}, dotted)


def test_a_course_has_its_sessions_in_its_own_zone() -> None:
    """Single days and weekly rules together, in the order of time; a pattern names each day's reservation."""
    zone = ZoneInfo("Europe/Brussels")

    def session(day: int, begin: tuple[int, int], reservation: str | None = None) -> CourseDate:
        start, end = datetime(2026, 3, day, *begin, tzinfo=zone), datetime(2026, 3, day, 17, tzinfo=zone)
        return CourseDate(start, end, f"2026-03-{day:02}", reservation)

    assert course(DEEP_LEARNING).dates == (
        session(2, (9, 0), "ml-hpc-1"),
        session(3, (13, 30)),
        session(10, (13, 30)),
        session(12, (13, 30)),
    )


def test_a_session_across_the_change_to_summer_time_keeps_its_clock() -> None:
    """9:00 is 8:00 UTC on the Saturday, and 7:00 UTC on the Monday after."""
    rule = {
        "weekly": ["saturday", "monday"],
        "first": "2026-03-28",
        "last": "2026-03-30",
        "from": "9:00",
        "to": "10:00",
    }
    dates = course(DEEP_LEARNING, sessions=[rule]).dates

    assert [date.start.astimezone(timezone.utc).hour for date in dates] == [8, 7]


def test_without_a_zone_sessions_have_the_machines_with_its_summer_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """9:00 in Brussels is 8:00 UTC in winter and 7:00 UTC in summer, whenever the file is read."""
    monkeypatch.setenv("TZ", "Europe/Brussels")
    time.tzset()
    try:
        days = [{"date": day, "from": "9:00", "to": "10:00"} for day in ("2026-01-12", "2026-07-13")]
        dates = course(DEEP_LEARNING, zone=None, sessions=days).dates
        assert [date.start.astimezone(timezone.utc).hour for date in dates] == [8, 7]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_two_sessions_of_one_day_have_their_times_in_their_names() -> None:
    """So that each can be named on the command line."""
    rules = [{"date": "2026-03-02", "from": f"{hour}:00", "to": f"{hour + 3}:00"} for hour in (9, 13)]

    assert [date.name for date in course(DEEP_LEARNING, sessions=rules).dates] == [
        "2026-03-02T09:00",
        "2026-03-02T13:00",
    ]


DAY = {"date": "2026-03-02", "from": "9:00", "to": "17:00"}
WEEKLY = {"weekly": ["monday"], "first": "2026-03-02", "last": "2026-03-30", "from": "9:00", "to": "10:00"}
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no session": ({"sessions": []}, "sessions: must have at least one session"),
    "no profile": ({"profile": []}, "profile: must be one profile, or a list of at most 8"),
    "the second of several profiles": (
        {"profile": ["k80", {"slug": "k80", "gpus": -1}]},
        "profile[1].gpus: must be a whole number from 0 to 1024",
    ),
    "the profile of a session": (
        {"sessions": [{**DAY, "profile": {"slug": "k80", "cpus": 0}}]},
        "sessions[0].profile.cpus: must be a whole number from 1 to 65536",
    ),
    "ends before it begins": (
        {"sessions": [{**DAY, "to": "8:00"}]},
        "sessions[0]: to must be later than from",
    ),
    "no time of day": (
        {"sessions": [{**DAY, "from": "9"}]},
        "sessions[0].from: is not a valid time of day: use for example 9:00 or 17:30",
    ),
    "no date": (
        {"sessions": [{**DAY, "date": "2 March"}]},
        "sessions[0].date: is not a valid date: use for example 2026-03-02",
    ),
    "weekly without end": (
        {"sessions": [{**WEEKLY, "last": None}]},
        "sessions[0]: a weekly session must have first and last",
    ),
    "last before first": (
        {"sessions": [{**WEEKLY, "last": "2026-03-01"}]},
        "sessions[0]: last must not be before first",
    ),
    "two at once": (
        {"sessions": [DAY, {**DAY, "from": "16:00", "to": "18:00"}]},
        "two sessions overlap on 2026-03-02",
    ),
    "the change of the clock swallows it": (
        {"sessions": [{"date": "2026-03-29", "from": "2:30", "to": "3:15"}]},
        "the change of the clock on 2026-03-29 leaves no time between from and to",
    ),
    "a century": (
        {"sessions": [{**WEEKLY, "weekly": ["monday", "friday"], "last": "2126-03-02"}]},
        "there are more than 400 sessions",
    ),
    "an unknown zone": (
        {"zone": "Europe/Atlantis"},
        "zone: is not a time zone: use a name such as Europe/Brussels or UTC",
    ),
    "nobody": ({"roster": {}}, "roster: must name people: names, groups, or a file"),
    "markup for a name": (
        {"roster": ["<b>ada</b>"]},
        "roster.names[0]: must be a user name, or names with a range such as train[001-050]",
    ),
    "a million people": (
        {"roster": "a[1-1000000]"},
        "roster.names: names more than 2000 people",
    ),
    "too many in several ranges": (
        {"roster": ["ada", "a[1-1000]", "b[1-1000]"]},
        "roster.names: names more than 2000 people",
    ),
    "a name as long as a book": (
        {"roster": f"{'a' * 200_000}[1-2000]"},
        "roster.names[0]: must be a user name, or names with a range such as train[001-050]",
    ),
    "everybody teaches": (
        {"instructors": ["g[1-2000]"] * 300},
        "instructors.users: names more than 100 people",
    ),
    "everybody's groups": (
        {"roster": {"groups": [f"g{number}" for number in range(101)]}},
        "roster.groups: names more than 100 groups",
    ),
    "a file elsewhere": (
        {"roster": {"file": "../people.csv"}},
        "roster.file: must be the name of a CSV file beside the course's file",
    ),
    "two files": ({"roster": ["a.csv", "b.csv"]}, "roster: names more than one CSV file"),
    "nobody teaches": ({"instructors": []}, "instructors: must name a user or a group"),
    "code": (
        {"profile": {"slug": "k80", "command": "sh"}},
        "profile.command: no such field; fields are cpus, gpus, memory, options, slug, time",
    ),
    "a number that is none": (
        {"profile": {"slug": "k80", "cpus": "many"}},
        "profile.cpus: must be a whole number from 1 to 65536",
    ),
    "an unknown rule": (
        {"outside_sessions": "maybe"},
        "outside_sessions: must be 'no' or 'without_reservation'",
    ),
    "an address to steal from": (
        {"materials": {"git": "file:///etc/passwd"}},
        "materials.git: must be an https address of a git repository whose name begins with a letter or a digit",
    ),
    "materials that would become settings of the server": (
        {"materials": {"git": "https://example.org/.jupyter"}},
        "materials.git: must be an https address of a git repository whose name begins with a letter or a digit",
    ),
    "materials that would, behind a query": (
        {"materials": {"git": "https://example.org/.ssh?x/y"}},
        "materials.git: must be an https address of a git repository whose name begins with a letter or a digit",
    ),
    "materials outside of the home folder": (
        {"materials": {"git": "https://example.org/a/.."}},
        "materials.git: must be an https address of a git repository whose name begins with a letter or a digit",
    ),
    "a path out of the repository": (
        {"materials": {"git": "https://example.org/x", "open": "../../.ssh"}},
        "materials.open: must be a path in the repository, without ..",
    ),
    "a number for a duration": (
        {"start_ahead": 10},
        "start_ahead: is not a duration: use for example 90s, 10min or 2h",
    ),
}


@pytest.mark.parametrize(("changes", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_mistake_is_told_with_its_field(changes: dict[str, Any], message: str) -> None:
    """The sentence quotes nothing of the file."""
    with pytest.raises(ConfigError) as error:
        course(DEEP_LEARNING, **changes)

    assert str(error.value) == message


@pytest.mark.parametrize("field", ["roster", "instructors"])
def test_names_are_counted_before_they_are_made(field: str) -> None:
    """The names of one of these ranges alone would take several megabytes."""
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=r"names more than \d+ people"):
            course(DEEP_LEARNING, **{field: ["g[1-65000]"] * 20})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 1 << 20


ROSTERS = {
    "a list with a range, in brackets": "roster: [student[1-3], latecomer]",
    "the same over several lines": "roster:\n  [student[1-2], student3,\n  latecomer] # not student[4-5]",
    "the same in a table": "roster: {names: [student[1-3], latecomer]}",
    "a list below": "roster:\n- student[1-3]\n- latecomer",
    "one text": "roster: student[1-3], latecomer",
    "one text without commas": "roster: student[1-3] latecomer",
    "quoted": "roster: ['student[1-3]', \"latecomer\"]",
}


@pytest.mark.parametrize("line", ROSTERS.values(), ids=ROSTERS.keys())
def test_a_roster_is_written_as_people_write_lists(line: str) -> None:
    """Also where YAML would begin a list of its own at the second bracket."""
    text = DEEP_LEARNING.replace("roster: train[001-050]", line)
    assert course(text).roster == Roster(names=("student1", "student2", "student3", "latecomer"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("people.csv", Roster(file="people.csv")),
        (["people.csv", "latecomer"], Roster(file="people.csv", names=("latecomer",))),
    ],
)
def test_a_csv_file_alone_is_the_rosters_file(value: object, expected: Roster) -> None:
    """And nobody's name; others may be listed beside it."""
    assert course(DEEP_LEARNING, roster=value).roster == expected


def test_what_yaml_cannot_read_stays_an_error() -> None:
    """With the line at which reading stopped; only names with a range are put in quotes, and on a few lines alone."""
    messages = []
    for text in ("roster: [ada[1-2] ben, cleo]", "roster: [ada[1-2]", f"roster: [{'a[1-2],' * 9}\n" * 20):
        with pytest.raises(ConfigError) as error:
            read_course(text, "ml.yaml")
        messages.append(str(error.value).partition(" ")[0])
    assert messages == ["ml.yaml:1:", "ml.yaml:2:", "ml.yaml:"]


def test_a_roster_counts_everybody_once() -> None:
    """Names, ranges, groups and a file; a group that the hub does not have is named."""
    roster = Roster.model_validate({"names": ["ada", "t[08-10]"], "groups": ["guests", "nobodies"]})

    assert people(roster, ["zoe", "ada"], {"guests": {"t09", "kim10", "kim2"}}) == People(
        ("ada", "t08", "t09", "t10", "kim2", "kim10", "zoe"), ("nobodies",)
    )


def test_names_are_ordered_as_people_count() -> None:
    """Numbers by value, letters without regard to case, and every name has a place."""
    names = ["train10", "Train2", "train3", "7", "_x", "a", "ü9"]
    assert sorted(names, key=natural) == ["7", "_x", "a", "Train2", "train3", "train10", "ü9"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ada\ngrace\n", ("ada", "grace")),
        ("\ufeffName;Username\nAda Lovelace;ada\n;\nGrace;grace\n", ("ada", "grace")),
        ('username,mail\nada,"a,b@example.org"\nada,x\n', ("ada",)),
        ("name\tusername\r\nA\tada\r\n", ("ada",)),
        ("Name,Login\nAda Lovelace,ada\n", ("ada",)),
        ("First name,User_Name,User\nAda,ada,7\n", ("ada",)),
        ("", ()),
    ],
)
def test_a_spreadsheets_csv_is_read_as_it_is_exported(text: str, expected: tuple[str, ...]) -> None:
    """With commas, semicolons or tabs, a byte order mark, empty lines, with or without a header."""
    assert parse_people(text) == expected


def test_a_line_without_a_user_name_is_named() -> None:
    """By its number, without its content."""
    with pytest.raises(BadValue, match=r"^line 2 has no valid user name in column 1$"):
        parse_people("ada\n<script>\n")


NOW = datetime(2026, 2, 1, tzinfo=timezone.utc)


def test_each_session_is_an_event_in_its_own_zone() -> None:
    """With the instructor's message and the reservation; the zone's rules are part of the file."""
    ical = Calendar.from_ical(calendar("deep", course(DEEP_LEARNING), hub="hub.example.org", now=NOW))
    events = [
        (
            str(event["uid"]),
            event.decoded("dtstart").isoformat(),
            event.decoded("dtend") - event.decoded("dtstart"),
            str(event["description"]),
        )
        for event in ical.walk("VEVENT")
    ]

    assert events[:2] == [
        (
            "deep-2026-03-02@hub.example.org",
            "2026-03-02T09:00:00+01:00",
            timedelta(hours=8),
            "Bring your own questions.\nSlurm reservation: ml-hpc-1",
        ),
        (
            "deep-2026-03-03@hub.example.org",
            "2026-03-03T13:30:00+01:00",
            timedelta(hours=3, minutes=30),
            "Bring your own questions.",
        ),
    ]
    assert [str(zone["tzid"]) for zone in ical.walk("VTIMEZONE")] == ["Europe/Brussels"]


def test_an_event_of_a_course_without_a_zone_is_in_utc_and_keeps_its_identity() -> None:
    """Of two sessions on a day each is moved by itself; abbreviations such as CET are no zones to a calendar."""

    def events(*hours: str) -> dict[str, str]:
        days = [{"date": "2026-03-02", "from": hour, "to": f"{hour[:-2]}50"} for hour in hours]
        text = calendar("deep", course(DEEP_LEARNING, zone=None, sessions=days), hub="hub", now=NOW)
        return {str(event["uid"]): str(event.decoded("dtstart")) for event in Calendar.from_ical(text).walk("VEVENT")}

    def utc(hour: int) -> str:
        return str(datetime(2026, 3, 2, hour).astimezone(timezone.utc))

    assert events("9:00") == {"deep-2026-03-02@hub": utc(9)}
    assert events("9:00", "13:00") == {"deep-2026-03-02@hub": utc(9), "deep-2026-03-02-2@hub": utc(13)}
    assert events("9:00", "14:00") == {"deep-2026-03-02@hub": utc(9), "deep-2026-03-02-2@hub": utc(14)}
