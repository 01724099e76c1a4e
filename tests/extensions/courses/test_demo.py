"""The course of the demo: its session is on whenever the demo is started."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.run import PROFILES, course_file
from jupyterhub_gpuspawner.demo.story import SLUG
from jupyterhub_gpuspawner.extensions.courses.course_profile import course_profile
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFolder
from jupyterhub_gpuspawner.profiles.files import EVERYTHING, ProfileFolder


@pytest.mark.parametrize("hour", [0, 9, 20, 21, 23])
@pytest.mark.parametrize("with_slurm", [True, False])
def test_its_session_is_on_at_any_hour(tmp_path: Path, hour: int, with_slurm: bool) -> None:
    """Also late in the evening, and without Slurm, where it is a server on this machine."""
    now = datetime(2026, 3, 2, hour, 40).astimezone()
    (tmp_path / f"{SLUG}.yaml").write_text(course_file(now, with_slurm=with_slurm))
    (file,) = CourseFolder(tmp_path).read().files
    assert file.fault is None
    course = course_profile(file, ProfileFolder(PROFILES, EVERYTHING).read().profiles, now)

    assert (course.is_open, course.profile.kind) == (True, "slurm" if with_slurm else "local")
