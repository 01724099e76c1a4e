"""``gpuspawner show`` of a course: its script as of its session, or why there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.runner import run
from tests.cli.test_show import SITE

LESSON = """
c.GPUProfilesSpawner.extensions = ["availability", "courses", "live_pages", "messages", "seats"]
c.GPUProfilesSpawner.profiles += [
    {"display_name": "Lesson", "slurm": {"gpus": 1},
     "profile_options": {"gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}}}},
]
"""
COURSE = """
name: Deep learning
instructors: carl
roster: [ada]
profile: {slug: lesson, options: {gpus: 2}}
zone: UTC
sessions: [{date: 2999-03-04, from: 9:00, to: 12:00, reservation: ml-%u}]
start_ahead: 10min
"""


@pytest.mark.parametrize(("user", "notes"), [("ada", ""), ("bob", "bob is not on the roster of course deep")])
def test_show_prints_the_script_of_a_course_as_of_its_session(user: str, notes: str, tmp_path: Path) -> None:
    """With the course's options and the session's reservation, and a time limit that ends with the session."""
    courses = tmp_path / "courses"
    courses.mkdir()
    (courses / "deep.yaml").write_text(COURSE)
    lines = f"{SITE}{LESSON}c.GPUProfilesSpawner.courses_dir = {str(courses)!r}\n"

    shown = run(tmp_path, lines, "show", "course-deep", "--user", user)

    assert (shown.exit_code, re.findall("^#SBATCH --(time|gres|reservation)=(.*)", shown.stdout, re.MULTILINE)) == (
        0,
        [("reservation", "ml-1"), ("time", "3:09:00"), ("gres", "gpu:2")],
    )
    assert shown.stderr.splitlines() == [
        *([f"note: {notes}, as far as is known here."] if notes else []),
        "note: This is the script at 2999-03-04 08:50 UTC, for the session 2999-03-04.",
    ]


def test_show_prints_a_script_for_each_profile_of_a_session(tmp_path: Path) -> None:
    """In the order in which their seats are filled, with a note that says which it is."""
    courses = tmp_path / "courses"
    courses.mkdir()
    two = "profile: [{slug: lesson, options: {gpus: 2}}, {slug: lesson, gpus: 1}]"
    (courses / "deep.yaml").write_text(COURSE.replace("profile: {slug: lesson, options: {gpus: 2}}", two))
    lines = f"{SITE}{LESSON}c.GPUProfilesSpawner.courses_dir = {str(courses)!r}\n"

    shown = run(tmp_path, lines, "show", "course-deep", "--user", "bob")

    assert re.findall("^#SBATCH --gres=(.*)", shown.stdout, re.MULTILINE) == ["gpu:2", "gpu:1"]
    moment = "note: This is the script at 2999-03-04 08:50 UTC, for the session 2999-03-04."
    assert shown.stderr.splitlines() == [
        "note: bob is not on the roster of course deep, as far as is known here.",
        moment,
        "note: Profile lesson, number 1 of 2 in the order in which seats are filled.",
        moment,
        "note: Profile lesson, number 2 of 2 in the order in which seats are filled.",
    ]


def test_show_takes_no_option_for_a_course_and_names_the_courses(tmp_path: Path) -> None:
    """A participant chooses nothing; a course that is not there is told with those that are."""
    courses = tmp_path / "courses"
    courses.mkdir()
    (courses / "deep.yaml").write_text(COURSE)
    lines = f"{SITE}{LESSON}c.GPUProfilesSpawner.courses_dir = {str(courses)!r}\n"

    assert [
        run(tmp_path, lines, "show", slug, "--user", "ada", *more).stderr
        for slug, more in (("course-deep", ("--option", "gpus=4")), ("course-deeper", ()))
    ] == [
        "gpuspawner: Deep learning has no option 'gpus'. It has no options.\n",
        "gpuspawner: there is no course 'deeper'. Courses are: deep.\n",
    ]
