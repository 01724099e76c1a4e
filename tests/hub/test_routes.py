"""Access to one server through our URLs does not grant access to another, whatever its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tornado.routing import PathMatches

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.hub import routes
from tests.hub.visitor import Visitor

PATTERNS = [path for path, *_ in (*routes.API, *routes.PAGES)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_address_leaves_no_parameter_out(pattern: str) -> None:
    """JupyterHub compares scopes with URL parameters as text, and a missing optional group would become "None"."""
    assert "?" not in PathMatches(f"{pattern}$").regex.pattern


@pytest.fixture
def running(light_hub: HubProcess) -> Iterator[None]:
    """Start ann's default server."""
    light_hub.spawn("ann", {"profile": "light"})
    yield
    light_hub.end("ann")


@pytest.mark.oldest
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.usefixtures("running")
def test_a_right_to_a_server_named_none_is_none_to_the_default_server(light_hub: HubProcess) -> None:
    """For nils the placement, log and *Stop* of the default server answer 404, as if it did not exist."""
    nils = Visitor(light_hub, "nils")
    own_token = nils.token()

    assert light_hub.api("GET", "/gpuspawner/placement/ann", token=own_token).status_code == 404
    assert light_hub.api("GET", "/gpuspawner/placement/ann/", token=own_token).status_code == 404
    assert [
        nils.look(f"/hub/gpuspawner/log/{path}").status for path in ("ann", "ann/", "ann/None", "ann?download=1")
    ] == [404] * 4
    assert [nils.click(f"/hub/gpuspawner/stop/{path}").status_code for path in ("ann", "ann/", "ann/None")] == [404] * 3

    model = light_hub.server("ann")
    assert model is not None
    assert model["ready"]


@pytest.mark.oldest
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.usefixtures("running")
def test_a_right_to_the_default_server_is_enough_for_it(light_hub: HubProcess) -> None:
    """A user with that right reaches the default server, with and without a trailing slash, and no other server."""
    dan = Visitor(light_hub, "dan")
    own_token = dan.token()

    assert light_hub.api("GET", "/gpuspawner/placement/ann", token=own_token).json()["partition"] == "batch"
    assert light_hub.api("GET", "/gpuspawner/placement/ann/", token=own_token).json()["partition"] == "batch"
    assert light_hub.api("GET", "/gpuspawner/placement/ann/None", token=own_token).status_code == 404
    assert [dan.look(f"/hub/gpuspawner/log/{path}").status for path in ("ann", "ann/", "ann/None")] == [200, 200, 404]
    assert [dan.click(f"/hub/gpuspawner/stop/{path}").status_code for path in ("ann/None", "ann")] == [404, 303]
