"""The links of a course: to its materials, and for its participants."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from jupyterhub_gpuspawner.extensions.courses.course_profile import course_profile, participants_link
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from tests.extensions.courses.test_course import course
from tests.extensions.courses.test_course_profile import K80, LESSON, at

PULLS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "a notebook": (
        {"git": "https://github.com/example/course", "open": "week 1/start.ipynb"},
        {
            "repo": "https://github.com/example/course",
            "branch": "main",
            "urlpath": "lab/tree/course/week%201/start.ipynb",
        },
    ),
    "the folder, on a branch": (
        {"git": "https://git.example.org:8443/a/course.git", "branch": "spring"},
        {"repo": "https://git.example.org:8443/a/course.git", "branch": "spring", "urlpath": "lab/tree/course"},
    ),
    "an address with a slash at its end": (
        {"git": "https://git.example.org/a/course/", "open": "README.md"},
        {"repo": "https://git.example.org/a/course/", "branch": "main", "urlpath": "lab/tree/course/README.md"},
    ),
}


@pytest.mark.parametrize(("materials", "expected"), PULLS.values(), ids=PULLS.keys())
def test_materials_are_pulled_and_opened(materials: dict[str, Any], expected: dict[str, str]) -> None:
    """They are the page that opens first; nbgitpuller clones them into a folder with the repository's name."""
    file = CourseFile("deep", course(LESSON, materials=materials))
    url = urlsplit(course_profile(file, parse_profiles([K80]), at(2, 10)).profile.default_url or "")

    assert url.path == "/git-pull"
    assert {name: value for name, (value,) in parse_qs(url.query).items()} == {**expected, "targetpath": "course"}


def test_without_materials_the_profiles_page_opens_first() -> None:
    """A course changes only what it names."""
    file = CourseFile("deep", course(LESSON))
    profiles = parse_profiles([{**K80, "default_url": "/lab/tree/welcome.ipynb"}])

    assert course_profile(file, profiles, at(2, 10)).profile.default_url == "/lab/tree/welcome.ipynb"


@pytest.mark.parametrize(
    ("hub", "expected"),
    [
        ("/hub/", "/hub/spawn?opt-profile=course-deep"),
        ("https://hub.example.org/jupyter/hub", "https://hub.example.org/jupyter/hub/spawn?opt-profile=course-deep"),
    ],
)
def test_the_participants_link_selects_the_course(hub: str, expected: str) -> None:
    """Relative to the hub's path, or with its address."""
    assert participants_link("deep", course(LESSON), hub) == expected


def test_the_participants_link_leads_on_to_the_materials() -> None:
    """Also where their server runs already: JupyterHub goes on to ``next`` then."""
    materials = {"git": "https://github.com/example/course", "open": "start.ipynb"}
    url = urlsplit(
        participants_link("deep", course(LESSON, materials=materials), "https://hub.example.org/jupyter/hub/")
    )
    query = parse_qs(url.query)

    assert (url.path, query["opt-profile"]) == ("/jupyter/hub/spawn", ["course-deep"])
    assert query["next"] == [
        "/jupyter/hub/user-redirect/git-pull?repo=https%3A%2F%2Fgithub.com%2Fexample%2Fcourse&branch=main"
        "&targetpath=course&urlpath=lab%2Ftree%2Fcourse%2Fstart.ipynb"
    ]
