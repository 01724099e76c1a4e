"""A participant's start that is kept while Slurm does not answer, of a course that is gone then."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import StartHub
from tests.hub.test_kept_starts import assert_not_submitted, start_site

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.nightly]


def write_course(file: Path) -> None:
    """A course whose session is under way."""
    now = datetime.now().astimezone()
    zone = ZoneInfo(f"Etc/GMT{datetime.now(ZoneInfo('UTC')).hour - 12:+d}")  # where it is about noon
    begin, end = ((now + timedelta(minutes=minutes)).astimezone(zone) for minutes in (-30, 90))
    file.write_text(
        f"name: A lesson\ninstructors: teacher\nroster: student\nprofile: light\nzone: {zone.key}\n"
        f'sessions: [{{date: {begin:%Y-%m-%d}, from: "{begin:%H:%M}", to: "{end:%H:%M}"}}]\n'
    )


def test_nothing_is_submitted_for_a_participant_whose_course_is_gone(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path
) -> None:
    """They read so."""
    course = tmp_path / "courses" / "lesson.yaml"
    course.parent.mkdir()
    lines = f"""
c.GPUProfilesSpawner.courses_dir = {str(course.parent)!r}
from jupyterhub_gpuspawner.extensions.courses.book import CourseBook
CourseBook.refresh.__defaults__ = (0.2,)  # seconds
"""
    site = start_site(start_light_hub, slurm_cluster, tmp_path, lines)
    write_course(course)

    assert_not_submitted(site, {"student": ("course-lesson", lambda *_: course.unlink(), "course-lesson")})
