"""Which jobs bring the companion of JupyterLab."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.site.configuration import SOMEBODY
from tests.hub.test_one_request import spawner_of


@pytest.mark.parametrize(
    ("site", "profile", "brought"),
    [({}, {}, True), ({"lab_companion": False}, {}, False), ({}, {"lab": False}, False)],
    ids=["by default", "not at this site", "not in this profile"],
)
def test_the_companion_of_jupyterlab_is_brought(site: dict[str, Any], profile: dict[str, Any], brought: bool) -> None:
    """Site and profile may each leave it out."""
    spawner = spawner_of(site, {"display_name": "P", **profile})
    spawner.prepare(spawner.resolve({}))

    assert ("Unpacking the companion of JupyterLab" in spawner.batch_job(SOMEBODY).script) is brought
