"""What a site's configuration and its hub's database say of courses, without a hub that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.courses.additions import keep_additions
from jupyterhub_gpuspawner.extensions.courses.site import added_people_of
from jupyterhub_gpuspawner.site.configuration import load_site
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
