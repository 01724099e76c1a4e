"""A course as a profile: what its people are offered, when, and within which bounds."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jupyterhub_gpuspawner.errors import ConfigError, RefusalKind, RequestError
from jupyterhub_gpuspawner.extensions.courses.course_profile import course_profile, opens_at
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile, CourseFolder
from jupyterhub_gpuspawner.profiles.offered import Offered
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import Defaults, JobRequest, permitted, resolve
from jupyterhub_gpuspawner.profiles.resources import Environment, Resources
from tests.extensions.courses.test_course import course

BRUSSELS = ZoneInfo("Europe/Brussels")
LESSON = """
name: Deep learning
instructors: ada
roster: train[001-050]
profile: k80
zone: Europe/Brussels
sessions:
  - {date: 2026-03-02, from: 9:00, to: 17:00, reservation: ml-hpc-%u}
  - {date: 2026-03-04, from: 13:00, to: 17:00, reservation: ml-hpc-%u}
"""
K80 = {
    "display_name": "One K80",
    "slug": "k80",
    "description": "A GPU.",
    "default": True,
    "slurm": {"partition": "gpu", "gpus": 1, "cpus": 6, "memory": "24G", "time": "8:00:00"},
    "profile_options": {
        "gpus": {"range": {"min": 1, "max": 4, "sets": "slurm.gpus"}},
        "software": {
            "choices": {
                "torch": {"default": True, "environment": {"modules": ["PyTorch"]}},
                "jax": {"environment": {"modules": ["JAX"]}, "slurm": {"memory": "48G"}},
            }
        },
    },
}


def at(day: int, hour: int, minute: int = 0, second: int = 0) -> datetime:
    """A moment in March 2026, in the zone of the course."""
    return datetime(2026, 3, day, hour, minute, second, tzinfo=BRUSSELS)


def offered(now: datetime, *, profile: Any = None, defaults: Defaults | None = None, **changes: Any) -> Offered:
    """The profile of the course, with some fields of course and profile replaced."""
    file = CourseFile("deep", course(LESSON, **changes))
    return course_profile(file, parse_profiles([{**K80, **(profile or {})}]), now, defaults=defaults)


def request_at(now: datetime, **more: Any) -> JobRequest:
    """What a participant requests with it."""
    offer = offered(now, **more)
    choice = {"profile": offer.profile.slug}
    return resolve(
        (offer.profile,),
        choice,
        username="train001",
        groups=(),
        server_name="",
        now=now,
        defaults=more.get("defaults"),
    )


def test_a_session_may_have_profiles_of_its_own() -> None:
    """Those of the course are for the others; each may be one, or several in order."""
    own = {"date": "2026-03-04", "from": "13:00", "to": "17:00", "profile": {"slug": "k80", "cpus": 1}}
    days = [{"date": "2026-03-02", "from": "9:00", "to": "17:00"}, own]
    lesson = course(LESSON, profile=[{"slug": "k80", "cpus": 4}, {"slug": "k80", "cpus": 2}], sessions=days)
    profiles = parse_profiles([K80])
    requested = {
        (day, rank): course_profile(CourseFile("deep", lesson), profiles, at(day, 14), rank=rank).profile.slurm.cpus
        for day, rank in ((2, 0), (2, 1), (4, 0))
    }
    assert requested == {(2, 0): 4, (2, 1): 2, (4, 0): 1}


def test_a_course_is_a_card_of_its_own_without_anything_to_choose() -> None:
    """With the course's name and message; the admin's default stays the default."""
    profile = offered(at(2, 10), message="Bring questions.").profile

    assert (profile.slug, profile.display_name, profile.description, profile.default, profile.profile_options) == (
        "course-deep",
        "Deep learning",
        "Bring questions.",
        False,
        {},
    )
    assert offered(at(2, 10)).profile.description == ""


HOUR = 3600
REQUESTS: dict[str, tuple[datetime, dict[str, Any], tuple[Any, ...]]] = {
    "as the session begins": (at(2, 9), {}, (1, 6, 24 * 1024, 8 * HOUR - 60, "ml-hpc-1")),
    "late": (at(2, 11, 3, 20), {}, (1, 6, 24 * 1024, 5 * HOUR + 55 * 60, "ml-hpc-1")),
    "in the last minute": (at(2, 16, 59, 30), {}, (1, 6, 24 * 1024, 60, "ml-hpc-1")),
    "another day": (at(4, 14), {}, (1, 6, 24 * 1024, 3 * HOUR - 60, "ml-hpc-3")),
    "with values of options": (
        at(2, 9),
        {"profile": {"slug": "k80", "options": {"gpus": 2, "software": "jax"}}},
        (2, 6, 48 * 1024, 8 * HOUR - 60, "ml-hpc-1"),
    ),
    "lowered": (
        at(2, 9),
        {"profile": {"slug": "k80", "cpus": 2, "memory": "8G", "time": "2:00:00"}},
        (1, 2, 8 * 1024, 2 * HOUR, "ml-hpc-1"),
    ),
    "up to the maximum of an option that is not fixed": (
        at(2, 9),
        {"profile": {"slug": "k80", "gpus": 3}},
        (3, 6, 24 * 1024, 8 * HOUR - 60, "ml-hpc-1"),
    ),
    "before a session, where that is allowed": (
        at(2, 8),
        {"outside_sessions": "without_reservation"},
        (1, 6, 24 * 1024, 8 * HOUR, None),
    ),
    "between two sessions, where that is allowed": (
        at(3, 20),
        {"outside_sessions": "without_reservation"},
        (1, 6, 24 * 1024, 8 * HOUR, None),
    ),
    "started ahead": (at(2, 8, 55), {"start_ahead": "10min"}, (1, 6, 24 * 1024, 8 * HOUR, "ml-hpc-1")),
}


@pytest.mark.parametrize(("now", "changes", "expected"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_participant_requests_what_the_course_says(
    now: datetime, changes: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """GPUs, CPUs, memory, time and reservation; in a session the job ends with it, at the latest."""
    file = CourseFile("deep", course(LESSON, **changes))
    offer = course_profile(file, parse_profiles([K80]), now)
    request = resolve(
        (offer.profile,), {"profile": "course-deep"}, username="train001", groups=(), server_name="", now=now
    ).resources

    assert (request.gpus, request.cpus, request.memory, request.time, request.reservation_name or None) == expected


@pytest.mark.parametrize(
    ("profile", "defaults", "expected"),
    [
        ({"time": None}, {"time": "8:00:00"}, 3 * HOUR - 60),
        ({"time": None}, None, None),
        ({"time": "UNLIMITED"}, None, 3 * HOUR - 60),
        ({}, {"time": "1:00:00"}, 3 * HOUR - 60),
    ],
)
def test_the_time_limit_is_lowered_whoever_set_it(
    profile: dict[str, Any], defaults: dict[str, Any] | None, expected: int | None
) -> None:
    """The profile or the site; one that only Slurm knows is left to Slurm."""
    slurm = {name: value for name, value in {**K80["slurm"], **profile}.items() if value is not None}  # type: ignore[dict-item]
    site = {"": Resources.model_validate(defaults)} if defaults is not None else None

    assert request_at(at(4, 14), profile={"slurm": slurm}, defaults=site).resources.time == expected


def test_without_a_reservation_a_server_ends_with_its_session_unless_it_could_be_started_outside() -> None:
    """Where the course is open between its sessions, the time limit of the profile stands."""
    day = {"date": "2026-03-02", "from": "9:00", "to": "17:00"}

    times = [
        request_at(at(2, 16), sessions=[day], outside_sessions=outside).resources.time
        for outside in ("no", "without_reservation")
    ]
    assert times == [HOUR - 60, 8 * HOUR]


def refused(profile: Profile, now: datetime) -> RefusalKind | None:
    """The rule by which a participant may not use the profile now."""
    refusal = permitted(profile, "train001", (), now)
    return refusal.kind if refusal is not None else None


WHEN: dict[str, tuple[datetime, dict[str, Any], RefusalKind | None]] = {
    "weeks before": (at(1, 12), {}, RefusalKind.NOT_YET),
    "a moment before": (
        at(2, 8, 59, 59),
        {},
        RefusalKind.NOT_YET,
    ),
    "a moment before, ahead": (at(2, 8, 59, 59), {"start_ahead": "10min"}, None),
    "at its beginning": (at(2, 9), {}, None),
    "between two": (at(2, 17), {}, RefusalKind.NOT_YET),
    "between two, where that is allowed": (at(2, 17), {"outside_sessions": "without_reservation"}, None),
    "over": (at(4, 17), {}, RefusalKind.ENDED),
    "over, where starts are allowed between sessions": (
        at(4, 17),
        {"outside_sessions": "without_reservation"},
        RefusalKind.ENDED,
    ),
}


@pytest.mark.parametrize(("now", "changes", "expected"), WHEN.values(), ids=WHEN.keys())
def test_a_course_is_open_in_its_sessions(now: datetime, changes: dict[str, Any], expected: RefusalKind | None) -> None:
    """Before them it is disabled until the next one begins; after the last it is over."""
    offer = offered(now, **changes)

    assert refused(offer.profile, now) == expected
    assert offer.is_open == (expected is None and "outside_sessions" not in changes)


def test_a_start_ahead_over_the_night_of_the_clock_change_is_as_long_as_it_says() -> None:
    """Ten hours before nine o'clock, on a night that has lost one."""
    lesson = course(LESSON, start_ahead="10h", sessions=[{"date": "2026-03-29", "from": "9:00", "to": "17:00"}])

    assert opens_at(lesson, lesson.dates[0]) == at(28, 22)


ADMINS_RULES: dict[str, tuple[dict[str, Any], RefusalKind | None]] = {
    "his users": ({"users": ["train001"]}, None),
    "other users": ({"users": ["kim"]}, RefusalKind.OTHER_USERS),
    "other groups": (
        {"groups": ["staff"]},
        RefusalKind.OTHER_GROUPS,
    ),
    "later": (
        {"from": "2026-03-03"},
        RefusalKind.NOT_YET,
    ),
    "earlier": ({"until": "2026-03-01"}, RefusalKind.ENDED),
}


@pytest.mark.parametrize(("allow", "expected"), ADMINS_RULES.values(), ids=ADMINS_RULES.keys())
def test_the_admins_rule_holds_for_a_course(allow: dict[str, Any], expected: RefusalKind | None) -> None:
    """A roster lets nobody in whom the profile does not admit, nor at another time."""
    assert refused(offered(at(2, 10), profile={"allow": allow}).profile, at(2, 10)) == expected


VENV = {"unlisted_choice": {"validation_regex": "/.+", "sets": "environment.venv"}}
IMAGE = {
    "choices": {"torch": {"environment": {"container": "/apps/torch.sif"}}},
    "unlisted_choice": {"validation_regex": "/.+", "sets": "environment.container"},
}
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no such profile": ({"profile": "v100"}, {}, "profile.slug: there is no profile v100"),
    "not for courses": ({}, {"courses": []}, "profile.slug: profile k80 is not available to this course"),
    "for another course": ({}, {"courses": "wide"}, "profile.slug: profile k80 is not available to this course"),
    "no such option": (
        {"profile": {"slug": "k80", "options": {"hours": 4}}},
        {},
        "profile.options.hours: profile k80 has no such option; its options are gpus, software",
    ),
    "a value that nobody may choose": (
        {"profile": {"slug": "k80", "options": {"gpus": 9}}},
        {},
        "profile.options.gpus: it must be a number from 1 to 4",
    ),
    "too many GPUs": (
        {"profile": {"slug": "k80", "gpus": 5}},
        {},
        "profile.gpus: must be at most 4, as profile k80 allows",
    ),
    "more GPUs than its own value": (
        {"profile": {"slug": "k80", "options": {"gpus": 2}, "gpus": 3}},
        {},
        "profile.gpus: must be at most 2, as profile k80 allows",
    ),
    "too many cores": (
        {"profile": {"slug": "k80", "cpus": 7}},
        {},
        "profile.cpus: must be at most 6, as profile k80 allows",
    ),
    "too much memory": (
        {"profile": {"slug": "k80", "memory": "25G"}},
        {},
        "profile.memory: must be at most 24 GiB, as profile k80 allows",
    ),
    "memory of another choice": (
        {"profile": {"slug": "k80", "options": {"software": "torch"}, "memory": "48G"}},
        {},
        "profile.memory: must be at most 24 GiB, as profile k80 allows",
    ),
    "all of a node's memory": (
        {"profile": {"slug": "k80", "memory": 0}},
        {},
        "profile.memory: must be at most 24 GiB, as profile k80 allows",
    ),
    "too much time": (
        {"profile": {"slug": "k80", "time": "9:00:00"}},
        {},
        "profile.time: must be at most 8:00:00, as profile k80 allows",
    ),
    "no end": (
        {"profile": {"slug": "k80", "time": "UNLIMITED"}},
        {},
        "profile.time: must be at most 8:00:00, as profile k80 allows",
    ),
    "a virtual environment of the author's": (
        {"profile": {"slug": "k80", "options": {"venv": "/home/ada/venv"}}},
        {"profile_options": {"venv": VENV}},
        "profile.options.venv: cannot be set: a course file may not type what runs in its participants' servers",
    ),
    "a container beside the listed ones": (
        {"profile": {"slug": "k80", "options": {"image": "/home/ada/x.sif"}}},
        {"profile_options": {"image": IMAGE}},
        "profile.options.image: must be one of torch: "
        "a course file may not type what runs in its participants' servers",
    ),
    "what the profile leaves to Slurm": (
        {"profile": {"slug": "k80", "cpus": 1}},
        {"slurm": {"partition": "gpu"}, "profile_options": {}},
        "profile.cpus: profile k80 leaves this to Slurm, so a course cannot set it",
    ),
}


@pytest.mark.parametrize(("changes", "profile", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_a_course_cannot_widen_its_profile(changes: dict[str, Any], profile: dict[str, Any], message: str) -> None:
    """The error names the field and the bound."""
    file = CourseFile("deep", course(LESSON, **changes))
    with pytest.raises(ConfigError) as error:
        course_profile(file, parse_profiles([{**K80, **profile}]), at(2, 10))

    assert str(error.value) == message


def test_the_error_names_file_and_line(tmp_path: Any) -> None:
    """Of the field, as for a mistake that is found in the file alone."""
    (tmp_path / "deep.yaml").write_text(LESSON.replace("profile: k80", "profile:\n  slug: k80\n  cpus: 12"))
    (file,) = CourseFolder(tmp_path).read().files
    with pytest.raises(ConfigError) as error:
        course_profile(file, parse_profiles([K80]), at(2, 10))

    assert str(error.value) == "deep.yaml:7: profile.cpus: must be at most 6, as profile k80 allows"


def test_a_bound_may_be_the_sites() -> None:
    """A profile without a time limit has that of the site."""
    file = CourseFile("deep", course(LESSON, profile={"slug": "k80", "time": "5:00:00"}))
    profiles = parse_profiles([{**K80, "slurm": {"partition": "gpu", "gpus": 1}}])
    with pytest.raises(ConfigError, match="must be at most 4:00:00, as profile k80 allows"):
        course_profile(file, profiles, at(2, 10), defaults={"": Resources.model_validate({"time": "4:00:00"})})


def test_a_slug_of_the_admins_is_not_taken_over() -> None:
    """A course whose profile would have that slug is told to change its name."""
    profiles: tuple[Profile, ...] = parse_profiles([K80, {"display_name": "Other", "slug": "course-deep"}])
    with pytest.raises(ConfigError, match="the hub has a profile course-deep"):
        course_profile(CourseFile("deep", course(LESSON)), profiles, at(2, 10))


def test_a_participant_chooses_nothing() -> None:
    """An option of the admin's profile, sent all the same, is refused."""
    profile = offered(at(2, 10)).profile
    with pytest.raises(RequestError, match="Deep learning has no option 'gpus'"):
        resolve(
            (profile,),
            {"profile": "course-deep", "gpus": 4},
            username="train001",
            groups=(),
            server_name="",
            now=at(2, 10),
        )


def test_a_server_never_outlives_its_session() -> None:
    """Whenever it starts: time limits are whole minutes, and end between one and two minutes before the session."""
    for second in range(0, 8 * HOUR, 601):
        now = at(2, 9) + timedelta(seconds=second)
        time = request_at(now).resources.time
        assert isinstance(time, int)
        left = (at(2, 17) - now).total_seconds()
        assert time % 60 == 0
        assert 60 <= left - time < 120


def test_a_course_may_fix_a_listed_choice_of_what_runs() -> None:
    """The admin has written it."""
    file = CourseFile("deep", course(LESSON, profile={"slug": "k80", "options": {"image": "torch"}}))
    profiles = parse_profiles([{**K80, "profile_options": {"image": IMAGE}}])

    assert course_profile(file, profiles, at(2, 10)).profile.environment == Environment(container="/apps/torch.sif")
