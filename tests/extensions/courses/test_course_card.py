"""The card of a course on the form: who sees it, where, and what it says."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup
from sqlalchemy.exc import SQLAlchemyError
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.extensions.courses import EXTENSION as COURSES
from jupyterhub_gpuspawner.extensions.courses.book import BookOfHub
from jupyterhub_gpuspawner.extensions.courses.course_profile import WITHOUT_RESERVATION
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.hub.choose.offer import FORM_REQUEST, FormRequest
from jupyterhub_gpuspawner.hub.choose.page import render_form
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from tests.extensions.courses.test_course import course

PROFILES = [
    {"display_name": "Test", "slug": "test", "kind": "local"},
    {"display_name": "Usual", "slug": "usual", "kind": "local", "default": True, "description": "As always."},
    {"display_name": "Staff", "slug": "staff", "kind": "local", "allow": {"groups": ["staff"]}},
]


WITH_COURSES = HubExtensions(installed().only(["courses", *COURSES.needs]))
"""The extensions of a hub with courses."""


@dataclass
class Enrolled:
    """A course of the hub, with its people."""

    file: CourseFile
    people: Collection[str] = ("train1", "train2")
    instructors: Collection[str] = ("ada",)
    instructor_groups: Collection[str] = ("teachers",)
    takes_additions: bool = True


@dataclass
class Book:
    """The courses of a hub."""

    entries: list[Any] = field(default_factory=list)
    refreshed: int = 0
    fails: bool = False

    def courses(self) -> list[Any]:
        """All courses."""
        return self.entries

    async def refresh(self) -> bool:
        """Count how often it is asked to; raises where the database is away."""
        self.refreshed += 1
        if self.fails:
            raise SQLAlchemyError("gone")
        return True


def lesson(hours: float, name: str = "A lesson", slug: str = "lesson", **changes: Any) -> Enrolled:
    """A course whose session of two hours begins so many hours from now."""
    begin = datetime.now(timezone.utc) + timedelta(hours=hours)
    start = begin.replace(hour=12, minute=0, second=0, microsecond=0)
    zone = f"Etc/GMT{begin.hour - 12:+d}"  # where it is about noon
    text = f"""
name: {name}
instructors: ada
roster: train[1-2]
profile: usual
zone: {zone}
sessions: [{{date: {start:%Y-%m-%d}, from: "12:{begin:%M}", to: "14:{begin:%M}", reservation: ml}}]
"""
    return Enrolled(CourseFile(slug, course(text, **changes)))


def settings_with(book: Any) -> dict[str, Any]:
    """The tornado settings of a hub with the extension and these courses."""
    state = HubState()
    state.keep(WITH_COURSES)
    state.of(BookOfHub).book = book
    return {KEY: state}


def spawner(book: Book | None, user: str, groups: Collection[str] = (), **more: Any) -> GPUProfilesSpawner:
    """The spawner of a user of a hub with these courses."""
    settings = settings_with(book) if book is not None else {}
    of = SimpleNamespace(
        name=user, groups=[SimpleNamespace(name=group) for group in groups], settings=settings, spawners={}
    )
    return GPUProfilesSpawner(profiles=PROFILES, user=of, config=Config(), **more)


async def cards(book: Book | None, user: str, groups: Collection[str] = ()) -> dict[str, str]:
    """The text of each profile on a user's form, in order: ``>`` before the selected, ``x`` before a disabled."""
    page = BeautifulSoup(await render_form(spawner(book, user, groups)), "html.parser")
    texts = {}
    for card in page.select(".gs-choice"):
        radio = card.select_one("[type=radio]")
        assert radio is not None
        mark = ">" if radio.has_attr("checked") else "x" if radio.has_attr("disabled") else ""
        texts[mark + str(radio["value"])] = " ".join(card.get_text(" ").split())
    return texts


@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        ("train1", (), [">course-lesson", "test", "usual"]),
        ("ada", (), [">course-lesson", "test", "usual"]),
        ("kim", ("teachers",), [">course-lesson", "test", "usual"]),
        ("kim", ("staff",), ["test", ">usual", "staff"]),
    ],
)
async def test_a_course_comes_first_for_its_people_and_its_instructors(
    user: str, groups: Collection[str], expected: list[str]
) -> None:
    """It is selected while its session is on; nobody else sees it."""
    assert list(await cards(Book([lesson(-1)]), user, groups)) == expected


async def test_before_its_session_a_course_is_disabled_and_says_when_it_begins() -> None:
    """The usual profile is selected."""
    texts = await cards(Book([lesson(2)]), "train1")

    assert list(texts) == ["xcourse-lesson", "test", ">usual"]
    assert re.search(r"Next session: .*, for 2 h ", texts["xcourse-lesson"])


async def test_instructors_can_try_a_course_before_its_session() -> None:
    """On the nodes that the profile uses otherwise; until the course is over."""
    assert list(await cards(Book([lesson(2)]), "ada")) == ["course-lesson", "test", ">usual"]
    assert list(await cards(Book([lesson(-3)]), "ada")) == ["test", ">usual"]


async def test_a_course_that_is_open_between_its_sessions_says_what_it_is_on() -> None:
    """Without its reservation; it is not selected."""
    texts = await cards(Book([lesson(2, outside_sessions="without_reservation")]), "train1")

    assert list(texts) == ["course-lesson", "test", ">usual"]
    assert WITHOUT_RESERVATION in texts["course-lesson"]


async def test_a_course_that_is_over_is_gone() -> None:
    """As if there were none; a link to it says that it was available, and until when."""
    book = Book([lesson(-3)])
    assert await cards(book, "train1") == await cards(None, "train1")
    with pytest.raises(RequestError, match="You cannot use A lesson now: it was available until"):
        spawner(book, "train1").resolve({"profile": "course-lesson"})


@pytest.mark.parametrize(
    ("takes_additions", "remedy"),
    [(True, "Tell ada, who can add you."), (False, "Tell ada.")],
    ids=["by page", "by file"],
)
async def test_somebody_who_is_not_on_the_list_of_a_course_reads_it(takes_additions: bool, remedy: str) -> None:
    """With the user name that the instructor needs; a course that does not exist is no profile."""
    someone = spawner(Book([replace(lesson(-1), takes_additions=takes_additions)]), "latecomer")
    errors = []
    for slug in ("course-lesson", "course-other"):
        with pytest.raises(RequestError) as refused:
            someone.resolve({"profile": slug})
        errors.append((str(refused.value.message), refused.value.hint))

    assert errors == [
        (f"You are not on the list of this course; your user name is latecomer. {remedy}", ""),
        ("There is no profile 'course-other'.", "You can choose: Test (test), Usual (usual)."),
    ]


async def test_an_instructor_who_starts_for_somebody_else_reads_who_is_not_on_the_list() -> None:
    """Whose user name it is."""
    someone = spawner(Book([lesson(-1)]), "latecomer")
    someone.handler = SimpleNamespace(current_user=SimpleNamespace(name="ada"))
    with pytest.raises(RequestError, match=r"^latecomer is not on the list of this course\."):
        someone.resolve({"profile": "course-lesson"})


async def test_a_course_tells_its_message_as_text() -> None:
    """Markup of an instructor's is shown, and not obeyed."""
    book = Book([lesson(-1, name="<b>Deep</b> learning", message="<script>alert(1)</script> & more")])
    html = await render_form(spawner(book, "train1"))

    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in html
    assert "&lt;b&gt;Deep&lt;/b&gt; learning" in html
    assert "<b>" not in html


async def test_what_was_chosen_before_stays_selected() -> None:
    """A link, or the last choice, counts more than a session."""
    token = FORM_REQUEST.set(FormRequest(linked={"profile": ["test"]}))
    try:
        assert list(await cards(Book([lesson(-1)]), "train1")) == ["course-lesson", ">test", "usual"]
    finally:
        FORM_REQUEST.reset(token)


async def test_a_start_without_a_form_keeps_the_admins_default() -> None:
    """Whoever writes a roster does not decide what the scripts of others start."""
    request = spawner(Book([lesson(-1)]), "train1").resolve({})

    assert request.profile.slug == "usual"


async def test_a_request_names_the_course_that_it_is_for() -> None:
    """So that the session's record does."""
    someone = spawner(Book([lesson(-1)]), "train1")

    assert [someone.resolve({"profile": slug}).offered_by for slug in ("course-lesson", "usual")] == ["lesson", ""]


async def test_a_course_on_a_profile_that_its_people_may_not_use_is_not_offered() -> None:
    """The admin's rule holds; the roster lets nobody in."""
    book = Book([lesson(-1, profile="staff")])

    assert list(await cards(book, "train1")) == ["test", ">usual"]
    assert list(await cards(book, "ada", ("staff",))) == [">course-lesson", "test", "usual", "staff"]


async def test_administrators_read_what_is_wrong_with_a_course() -> None:
    """One with a fault is left out, and the others are offered."""
    book = Book([lesson(-1, slug="broken", profile={"slug": "usual", "cpus": 1}), lesson(-1)])
    admin = spawner(book, "kim")
    admin.handler = SimpleNamespace(current_user=SimpleNamespace(admin=True))
    page = await render_form(admin)

    assert "profile.cpus: profile usual leaves this to Slurm, so a course cannot set it" in page
    assert list(await cards(book, "train1")) == [">course-lesson", "test", "usual"]


async def test_where_the_database_is_away_the_last_courses_are_offered() -> None:
    """The form is shown all the same."""
    book = Book([lesson(-1)], fails=True)

    assert list(await cards(book, "train1")) == [">course-lesson", "test", "usual"]
    assert book.refreshed == 1
