"""A folder of course files."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.courses import folder as courses_folder
from jupyterhub_gpuspawner.extensions.courses.course import read_course
from jupyterhub_gpuspawner.extensions.courses.folder import COURSES_LIMIT, CourseFile, CourseFolder
from jupyterhub_gpuspawner.profiles.document import Document
from tests.extensions.courses.test_course import DEEP_LEARNING, course


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one course in it."""
    (tmp_path / "deep.yaml").write_text(DEEP_LEARNING)
    return tmp_path


def listing_of(folder: CourseFolder) -> list[tuple[str, str, str]]:
    """Slug, title and fault of each course."""
    return [(file.slug, file.course.name if file.course else "", str(file.fault or "")) for file in folder.read().files]


def test_a_course_is_known_by_the_name_of_its_file(folder: Path) -> None:
    """Files that are hidden, or of other kinds, are ignored."""
    (folder / ".draft.yaml").write_text("x")
    (folder / "notes.txt").write_text("x")

    assert CourseFolder(folder).read().files == (CourseFile("deep", course(DEEP_LEARNING), name="deep.yaml"),)


def test_a_mistake_is_told_with_its_line_and_the_last_good_version_goes_on(folder: Path) -> None:
    """Once it is corrected the fault is gone; a file that is removed takes its course away."""
    courses, file = CourseFolder(folder), folder / "deep.yaml"
    before = listing_of(courses)
    file.write_text(DEEP_LEARNING.replace("from: 9:00", "from: nine"))
    wrong = listing_of(courses)
    file.write_text(DEEP_LEARNING.replace("Deep learning", "Deeper learning"))
    after = listing_of(courses)
    file.unlink()

    assert (before, wrong, after, listing_of(courses)) == (
        [("deep", "Deep learning", "")],
        [
            (
                "deep",
                "Deep learning",
                "deep.yaml:8: sessions[0].from: is not a valid time of day: use for example 9:00 or 17:30",
            )
        ],
        [("deep", "Deeper learning", "")],
        [],
    )


def test_a_roster_in_a_file_is_read_again_when_it_changes(folder: Path) -> None:
    """The course's own file need not change."""
    (folder / "deep.yaml").write_text(DEEP_LEARNING.replace("train[001-050]", "{file: people.csv}"))
    courses = CourseFolder(folder)
    missing = listing_of(courses)
    (folder / "people.csv").write_text("username\nada\n")
    first = courses.read().files[0].listed
    (folder / "people.csv").write_text("username\nada\ngrace\n")

    assert (missing, first, courses.read().files[0].listed) == (
        [("deep", "", "deep.yaml:4: roster.file: the file cannot be read: No such file or directory")],
        ("ada",),
        ("ada", "grace"),
    )


def test_links_and_odd_names_are_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither a course nor a roster is read from elsewhere."""
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.csv"
    secret.write_text("root\n")
    (folder / "people.csv").symlink_to(secret)
    (folder / "deep.yaml").write_text(DEEP_LEARNING.replace("train[001-050]", "{file: people.csv}"))
    (folder / "Other Course.yaml").write_text(DEEP_LEARNING)
    courses = CourseFolder(folder)

    assert listing_of(courses) == [
        (
            "deep",
            "",
            "deep.yaml:4: roster.file: the file is a symbolic link, which is not followed: use a copy of the file",
        )
    ]
    assert str(courses.read().fault) == (
        f"{folder}: not read: Other Course.yaml; a course's file has a name of at most 56 lower-case letters, digits "
        "and hyphens, and ends in .yaml"
    )


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("Deep.yaml", "Deep.yaml"),
        ("deep.YAML", "deep.YAML"),
        ("deep.yaml.txt", "deep.yaml.txt"),
        ("deep_learning.yml", "deep_learning.yml"),
        ("a<b>.yaml", "a?b?.yaml"),
        (".deep.yaml", ""),
        ("README.txt", ""),
        ("people.csv", ""),
    ],
)
def test_a_file_whose_name_or_ending_is_wrong_is_named(folder: Path, name: str, named: str) -> None:
    """Its author takes it for a course's; others in the folder are not mentioned."""
    (folder / name).write_text(DEEP_LEARNING)
    courses = CourseFolder(folder)
    fault = courses.read().fault
    assert (str(fault).partition("not read: ")[2].partition(";")[0] if fault is not None else "") == named


def test_a_faulty_file_is_not_read_again_before_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's large file with a fault at its end would otherwise be read every minute."""
    (folder / "deep.yaml").write_text(DEEP_LEARNING.replace("train[001-050]", "{file: people.csv}"))
    (folder / "wrong.yaml").write_text("name: A course")
    courses, read = CourseFolder(folder), list[str]()

    def reading(text: str, name: str) -> Document:
        read.append(text[:12])
        return read_course(text, name)

    monkeypatch.setattr(courses_folder, "read_course", reading)
    first, second = listing_of(courses), listing_of(courses)
    (folder / "people.csv").write_text("username\nada\n")
    after = listing_of(courses)

    assert first == second
    assert [fault for _, _, fault in after] == [
        "",
        "wrong.yaml:1: instructors: is missing. Also wrong: wrong.yaml:1: roster, wrong.yaml:1: profile, "
        "wrong.yaml:1: sessions.",
    ]
    assert sorted(read) == ["\nname: Deep ", "\nname: Deep ", "name: A cour"]


@pytest.mark.parametrize(("own", "second"), [("deep.yaml", "deep.yml"), ("deep.yml", "deep.yaml")])
def test_a_course_stays_that_of_the_file_that_was_there_first(own: str, second: str, tmp_path: Path) -> None:
    """A second file of the same name is ignored, and has the course only once the first is gone."""
    (tmp_path / own).write_text(DEEP_LEARNING)
    courses = CourseFolder(tmp_path)
    before = listing_of(courses)
    (tmp_path / second).write_text(DEEP_LEARNING.replace("Deep", "Shallow"))
    beside, fault = listing_of(courses), str(courses.read().fault)
    (tmp_path / own).unlink()

    assert (before, beside, fault, listing_of(courses), courses.read().fault) == (
        [("deep", "Deep learning", "")],
        [("deep", "Deep learning", "")],
        f"{tmp_path}: a second file of the same name is ignored: {second} (the course is that of {own})",
        [("deep", "Shallow learning", "")],
        None,
    )


def test_where_there_are_too_many_courses_those_that_were_there_first_stay(folder: Path) -> None:
    """Whatever the names of the others are."""
    courses = CourseFolder(folder)
    first = listing_of(courses)
    for number in range(COURSES_LIMIT):
        (folder / f"a{number}.yaml").write_text("x")
    listing = listing_of(courses)

    assert (listing[:1], len(listing)) == (first, COURSES_LIMIT)
    assert str(courses.read().fault) == f"{folder}: the folder contains more than 200 courses; the newest are ignored"
