"""Which courses can be offered with the profiles of a hub, and what is told where one cannot."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from traitlets.config import Config

from jupyterhub_gpuspawner.hub.course.book import CourseBook, HubPeople
from jupyterhub_gpuspawner.hub.spawners.offers import SETTING, faults_of
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner

if TYPE_CHECKING:
    from collections.abc import Collection

PROFILES = [{"display_name": "K80", "slug": "k80", "slurm": {"gpus": 1, "cpus": 4}}]
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
    spawner = GPUProfilesSpawner(profiles=PROFILES, config=Config())
    book = CourseBook(str(tmp_path), no_groups, partial(faults_of, spawner))
    (tmp_path / "good.yaml").write_text(COURSE.format(cpus=4))
    (tmp_path / "wide.yaml").write_text(COURSE.format(cpus=8))
    user = SimpleNamespace(name="train1", groups=[], settings={SETTING: book})
    participant = GPUProfilesSpawner(profiles=PROFILES, config=Config(), user=user)

    async def seen() -> tuple[dict[str, tuple[str, ...]], list[str]]:
        await book.refresh(0)
        return {each.slug: each.faults for each in book.courses()}, [each.slug for each in participant.offered()]

    wrong = "wide.yaml:5: profile.cpus: must be at most 4, as profile k80 allows"
    assert await seen() == ({"good": (), "wide": (wrong,)}, ["k80", "course-good"])

    (tmp_path / "wide.yaml").write_text(COURSE.format(cpus=2))

    assert await seen() == ({"good": (), "wide": ()}, ["k80", "course-good", "course-wide"])


def test_outside_of_a_hub_there_are_no_courses() -> None:
    """As for `gpuspawner check`: the hub's profiles alone."""
    spawner = GPUProfilesSpawner(profiles=PROFILES, config=Config())

    assert [each.slug for each in spawner.offered()] == ["k80"]
    assert spawner.profile_errors() == ()
