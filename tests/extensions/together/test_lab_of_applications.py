"""JupyterLab's companion does not come with another application."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.lab.carried import CARRIED
from tests.extensions.applications.test_fields import request


def test_an_application_brings_no_companion_of_jupyterlab() -> None:
    """Though the site would have it."""
    assert CARRIED.use(request("code-server"), {"lab_companion": True}) is None
