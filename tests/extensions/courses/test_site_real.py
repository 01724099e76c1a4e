"""What Slurm says of a course whose session is not the only one at its time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.courses.site import rehearse
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.extensions.courses.course_hub import configuration

LESSON = {
    "display_name": "Lesson",
    "slug": "lesson",
    "slurm": {"partition": "gpu", "gpus": 1, "gpu_type": "k80", "cpus": 1, "memory": "1G", "time": "2:00:00"},
}
COURSE = """
name: Deep learning
instructors: ada
roster: {roster}
profile: lesson
zone: UTC
sessions: [{{date: {day}, from: 10:00, to: 12:00}}]
"""


@pytest.mark.slurm
async def test_the_rehearsal_counts_seats_after_those_of_a_course_that_is_served_before(
    tmp_path: Path, slurm_cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four GPUs are another course's at the same time; one whose file has a fault is left out."""
    courses, config = tmp_path / "courses", tmp_path / "jupyterhub_config.py"
    day = (datetime.now(timezone.utc) + timedelta(days=1)).date()
    courses.mkdir()
    (courses / "basics.yaml").write_text(COURSE.format(roster="b[1-3]", day=day))
    (courses / "deep.yaml").write_text(COURSE.format(roster="t[1-3]", day=day))
    (courses / "broken.yaml").write_text("name: [")
    config.write_text(configuration(slurm_cluster.bin_dir, courses, LESSON))
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)

    _, _, together = await rehearse(load_site(config), "deep", "", only=(), every=0)

    assert together is not None
    assert (together.wanted, together.fit, [hint.text for hint in together.hints]) == (
        3,
        1,
        ["Counted after the servers of course basics, whose session is at the same time."],
    )
