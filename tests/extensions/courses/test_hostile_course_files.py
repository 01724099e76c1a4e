"""Course files that somebody has spoilt, on purpose or not: nobody else's course, and no start, suffers from them."""

from __future__ import annotations

import csv
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.extensions.courses.book import CourseBook, HubPeople
from jupyterhub_gpuspawner.extensions.courses.offers import faults_of
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from tests.extensions.courses.test_course_card import settings_with

PROFILES = [{"display_name": "K80", "slug": "k80", "slurm": {"gpus": 1, "cpus": 4, "time": "2:00:00"}}]
VALID_FILE = """
name: A course
instructors: carl
roster: ada
profile: k80
sessions: [{date: 2999-03-04, from: 9:00, to: 17:00}]
"""
FIELDS = (
    "fields are instructors, materials, message, name, outside_sessions, profile, roster, sessions, start_ahead, "
    "unvisited_after, zone"
)
NO_ZONE = "zone: is not a time zone: use a name such as Europe/Brussels or UTC"
HOSTILE: dict[str, tuple[dict[str, str], str]] = {
    "every Friday for ever": (
        {"sessions": "[{weekly: [friday], first: 2026-03-06, last: 9999-12-31, from: 9:00, to: 17:00}]"},
        "bad.yaml:6: sessions[0].last: must be in the years 2000 to 2999",
    ),
    "the last days of all": (
        {"sessions": "[{weekly: [friday], first: 9999-12-30, last: 9999-12-31, from: 9:00, to: 17:00}]"},
        "bad.yaml:6: sessions[0].first: must be in the years 2000 to 2999. Also wrong: bad.yaml:6: sessions[0].last.",
    ),
    "the first day of all, started ahead": (
        {"sessions": "[{date: 0001-01-01, from: 0:00, to: 0:30}]", "start_ahead": "9999h", "zone": "Asia/Tokyo"},
        "bad.yaml:6: sessions[0].date: must be in the years 2000 to 2999",
    ),
    "a name of 131,073 characters": (
        {"roster": "{file: people.csv}"},
        "people.csv: line 2 is not a row of a CSV file",
    ),
    "a heading of 131,073 characters": (
        {"roster": "{file: heading.csv}"},
        "heading.csv: line 1 is not a row of a CSV file",
    ),
    "a roster that is no text": ({"roster": "{file: binary.csv}"}, "bad.yaml:4: roster.file: the file is not UTF-8"),
    "a list for a name": ({"name": "[[[[]]]]"}, "bad.yaml:2: name: must be text: put it in quotes"),
    "a table for a course": ({"sessions": "{a: {b: {c: d}}}"}, "bad.yaml:6: sessions: must be a list"),
    "a number of hundreds of digits": ({"start_ahead": "9" * 400}, "bad.yaml:7: a number is too large"),
    "odd characters": (
        {"name": '"\\0\\ud800"'},
        "bad.yaml:2: while parsing a quoted scalar, found invalid Unicode character escape code",
    ),
    "a zone outside of the zones": ({"zone": "../../../etc/passwd"}, f"bad.yaml:7: {NO_ZONE}"),
    "a zone that is a folder": ({"zone": "Europe"}, f"bad.yaml:7: {NO_ZONE}"),
    "a key that is a number": (
        {"1": "2"},
        f"bad.yaml:7: no such field; {FIELDS}",
    ),
    "a key as long as a page": ({"a" * 1000: "2"}, f"bad.yaml:7: no such field; {FIELDS}"),
    "an alias of itself": (
        {"name": "&a [*a]"},
        "bad.yaml:2: tables and lists are nested more than 50 deep",
    ),
}


def people_of_hub(_groups: Any) -> HubPeople:
    """A hub without groups, whose authenticator fails at one name."""

    def user_name(name: str) -> str:
        if name == "mallory":
            raise LookupError(name)
        return name

    return HubPeople({}, user_name=user_name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a good course, and the rosters that the bad ones name."""
    (tmp_path / "good.yaml").write_text(VALID_FILE)
    (tmp_path / "people.csv").write_text(f"username\n{'a' * 131_073}\n")
    (tmp_path / "heading.csv").write_text(f"{'a' * 131_073}\nada\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00ada")
    return tmp_path


def spoilt(**fields: str) -> str:
    """The good course's file with some fields replaced."""
    lines = dict(line.partition(": ")[::2] for line in VALID_FILE.strip().splitlines()) | fields
    return "\n" + "".join(f"{name}: {value}\n" for name, value in lines.items())


async def faults_and_offers(folder: Path) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The faults of each course, and what a participant of both is offered when she starts a server."""
    site = GPUProfilesSpawner(profiles=PROFILES, config=Config())
    book = CourseBook(str(folder), people_of_hub, lambda files: faults_of(site, files))
    user = SimpleNamespace(name="ada", groups=[], settings=settings_with(book))
    spawner = GPUProfilesSpawner(profiles=PROFILES, config=Config(), user=user)
    await spawner.refresh_profiles()
    return {course.slug: course.faults for course in book.courses()}, [profile.slug for profile in spawner.offered()]


@pytest.mark.parametrize(("fields", "fault"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_spoilt_file_is_a_fault_of_its_own_course_alone(
    fields: dict[str, str], fault: str, folder: Path
) -> None:
    """The other course is offered as ever."""
    csv.field_size_limit(131_072)  # Python's default, which another library may have raised in this process
    (folder / "bad.yaml").write_text(spoilt(**fields))

    assert await faults_and_offers(folder) == ({"bad": (fault,), "good": ()}, ["k80", "course-good"])


async def test_a_name_at_which_the_sites_authenticator_fails_is_a_fault_of_its_own_course_alone(folder: Path) -> None:
    """An authenticator may be a site's own, and ask a service of its own."""
    (folder / "bad.yaml").write_text(spoilt(roster="[ada, mallory]"))

    assert await faults_and_offers(folder) == (
        {"bad": ("The people of the course are not known (LookupError).",), "good": ()},
        ["k80", "course-good"],
    )


@pytest.mark.parametrize("broken", ["folder.read_course", "offers.course_profile"])
async def test_whatever_goes_wrong_with_a_file_belongs_to_it(
    broken: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what nobody has thought of; the text of such an error may quote the file, so only its type is told."""
    (folder / "bad.yaml").write_text(spoilt(name="Unthinkable"))
    module, _, name = broken.rpartition(".")
    path = f"jupyterhub_gpuspawner.extensions.courses.{module}.{name}"
    whole = pytest.importorskip(f"jupyterhub_gpuspawner.extensions.courses.{module}").__dict__[name]

    def fail(first: Any, *rest: Any, **more: Any) -> Any:
        if "Unthinkable" in str(first):
            raise ArithmeticError("Unthinkable")
        return whole(first, *rest, **more)

    monkeypatch.setattr(path, fail)
    faults, offered = await faults_and_offers(folder)

    assert (faults["good"], offered) == ((), ["k80", "course-good"])
    assert [fault.endswith("(ArithmeticError)") for fault in faults["bad"]] == [True]


async def test_without_a_thread_the_courses_last_read_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the hub's unit has reached TasksMax: no page and no start fails, and the fault is told."""
    book = CourseBook(str(folder), people_of_hub)
    first = await book.refresh(0)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)

    assert (first, await book.refresh(0), [course.slug for course in book.courses()], str(book.fault)) == (
        True,
        False,
        ["good"],
        f"{folder}: the folder cannot be read: this process has too many threads; the courses last read go on",
    )


async def test_no_start_fails_because_the_courses_cannot_be_read(tmp_path: Path) -> None:
    """Whatever the error: the hub logs it, and the courses read last are offered."""

    class Broken(CourseBook):
        async def refresh(self, max_age: float = 0.0) -> bool:
            raise RuntimeError(f"can't start new thread {max_age}")

    user = SimpleNamespace(name="ada", groups=[], settings=settings_with(Broken(str(tmp_path), people_of_hub)))
    spawner = GPUProfilesSpawner(profiles=PROFILES, config=Config(), user=user)

    await spawner.refresh_profiles()

    assert [profile.slug for profile in spawner.offered()] == ["k80"]


K80 = [{"display_name": "K80", "slug": "k80", "slurm": {"gpus": 1, "cpus": 4}}]
COURSE = """
name: A course
instructors: ada
roster: train[1-2]
profile: {{slug: k80, cpus: {cpus}}}
sessions: [{{date: 2999-03-04, from: 9:00, to: 17:00}}]
"""


def no_groups(groups: Collection[str]) -> HubPeople:
    """A hub without users, whose groups are empty."""
    return HubPeople(dict.fromkeys(groups, ()))


async def test_a_course_that_exceeds_its_profile_is_told_to_its_instructors_until_it_is_mended(tmp_path: Path) -> None:
    """With file, line, field and bound; the other course is offered all the while."""
    spawner = GPUProfilesSpawner(profiles=K80, config=Config())
    book = CourseBook(str(tmp_path), no_groups, partial(faults_of, spawner))
    (tmp_path / "good.yaml").write_text(COURSE.format(cpus=4))
    (tmp_path / "wide.yaml").write_text(COURSE.format(cpus=8))
    user = SimpleNamespace(name="train1", groups=[], settings=settings_with(book))
    participant = GPUProfilesSpawner(profiles=K80, config=Config(), user=user)

    async def faults_and_profiles() -> tuple[dict[str, tuple[str, ...]], list[str]]:
        await book.refresh(0)
        return {course.slug: course.faults for course in book.courses()}, [
            profile.slug for profile in participant.offered()
        ]

    wrong = "wide.yaml:5: profile.cpus: must be at most 4, as profile k80 allows"
    assert await faults_and_profiles() == ({"good": (), "wide": (wrong,)}, ["k80", "course-good"])

    (tmp_path / "wide.yaml").write_text(COURSE.format(cpus=2))

    assert await faults_and_profiles() == ({"good": (), "wide": ()}, ["k80", "course-good", "course-wide"])


def test_outside_of_a_hub_there_are_no_courses() -> None:
    """As for `gpuspawner check`: the hub's profiles alone."""
    spawner = GPUProfilesSpawner(profiles=K80, config=Config())

    assert [profile.slug for profile in spawner.offered()] == ["k80"]
    assert spawner.profile_errors() == ()
