"""What a site's configuration and its hub's database say of courses, without a hub that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.courses.additions import keep_additions
from jupyterhub_gpuspawner.extensions.courses.site import added_people_of, courses_of
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.extensions.courses.course_hub import configuration
from tests.extensions.courses.test_course import DEEP_LEARNING
from tests.fixtures.databases import hub_session


@pytest.mark.parametrize(
    ("line", "added"),
    [("", {"deep": ("zoe",)}), ("c.GPUCourses.add_people = False\n", {})],
    ids=["by default", "where nobody may be added"],
)
def test_whom_instructors_have_added_is_read_from_the_hubs_database(
    line: str, added: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    """A hub that has never run has nobody; its database is not created."""
    file = tmp_path / "jupyterhub_config.py"
    file.write_text(f"c.JupyterHub.db_url = 'sqlite:///{tmp_path}/hub.sqlite'\n{line}")
    assert (added_people_of(load_site(file)), (tmp_path / "hub.sqlite").exists()) == ({}, False)

    with hub_session(f"sqlite:///{tmp_path}/hub.sqlite") as session:
        keep_additions(session, "deep", ["zoe"], by="bob")
    assert added_people_of(load_site(file)) == added


def test_a_course_has_those_whom_instructors_have_added(tmp_path: Path) -> None:
    """For every command and every check; a course that is not there is named with those that are."""
    (tmp_path / "deep.yaml").write_text(DEEP_LEARNING)
    profile = {"display_name": "K80", "slug": "k80", "slurm": {"partition": "gpu"}}
    file = tmp_path / "jupyterhub_config.py"
    database = f"sqlite:///{tmp_path}/hub.sqlite"
    file.write_text(f"c.JupyterHub.db_url = {database!r}\n{configuration('/usr/bin', tmp_path, profile)}")
    with hub_session(database) as session:
        keep_additions(session, "deep", ["zoe"], by="bob")

    courses = courses_of(load_site(file))

    assert [(of.slug, of.listed) for of in (*courses.files, courses.named("deep")[0])] == [("deep", ("zoe",))] * 2
    with pytest.raises(ConfigError, match=r"there is no course 'maths'\. Courses are: deep\."):
        courses.named("maths")
