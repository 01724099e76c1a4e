"""The servers of the main job."""

from __future__ import annotations

import pytest

from tests.hub.servers import job_id
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import Site


@pytest.fixture(scope="module")
def visitor(site: Site) -> Visitor:
    """The user, who signed in before she had a server."""
    return Visitor(site.hub, site.user)


@pytest.fixture(scope="module")
def minute(site: Site) -> str:
    """The job of a server whose time limit expires in a minute, while the other tests run."""
    return str(site.hub.spawn(f"{site.user}-minute", {"profile": "minute"}, timeout=300)["job_id"])


@pytest.fixture
def server(site: Site) -> str:
    """The job of the user's server, which runs; the test, or a later one, stops it."""
    if not site.hub.server(site.user):
        site.hub.spawn(site.user, {"profile": "main"}, timeout=300)
    return job_id(site.hub, site.user)
