"""Access to one server through our URLs does not grant access to another, whatever its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tornado.routing import PathMatches

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.hub import routes
from tests.fixtures.hubs import StartHub
from tests.hub.visitor import Visitor

PATTERNS = [path for path, *_ in (*routes.API, *routes.PAGES)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_address_leaves_no_parameter_out(pattern: str) -> None:
    """JupyterHub compares scopes with URL parameters as text, and a missing optional group would become "None"."""
    assert "?" not in PathMatches(f"{pattern}$").regex.pattern


ROLES = """
c.JupyterHub.load_roles += [
    {"name": "of-none", "users": ["ben"], "scopes": [f"{scope}!server=ann/None" for scope in SCOPES]},
    {"name": "of-default", "users": ["cleo"], "scopes": [f"{scope}!server=ann/" for scope in SCOPES]},
]
c.Authenticator.allowed_users = {"ann", "ben", "cleo"}
"""
SCOPES = ["read:servers", "access:servers", "delete:servers"]


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub in which ben has access to ann's server named None, and cleo to ann's default server."""
    return start_light_hub(lines=f"SCOPES = {SCOPES}\n{ROLES}")


@pytest.fixture
def running(hub: HubProcess) -> Iterator[None]:
    """Start ann's default server."""
    hub.spawn("ann", {"profile": "light"})
    yield
    hub.end("ann")


def token(visitor: Visitor) -> str:
    """Return a token as the token page issues it, with all scopes of its user."""
    url = f"{visitor.hub.url}/hub/api/users/{visitor.name}/tokens"
    answer = visitor.session.post(url, json={}, headers={"X-XSRFToken": visitor._xsrf}, timeout=30)
    return str(answer.json()["token"])


def stop(visitor: Visitor, path: str) -> int:
    """Return the HTTP status of a click on *Stop* for that server."""
    url = f"{visitor.hub.url}/hub/gpuspawner/stop/{path}"
    answer = visitor.session.post(url, data={"_xsrf": visitor._xsrf}, allow_redirects=False, timeout=30)
    return answer.status_code


@pytest.mark.oldest
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.usefixtures("running")
def test_a_right_to_a_server_named_none_is_none_to_the_default_server(hub: HubProcess) -> None:
    """For ben the placement, log and *Stop* of the default server answer 404, as if it did not exist."""
    ben = Visitor(hub, "ben")
    bens = token(ben)

    assert hub.api("GET", "/gpuspawner/placement/ann", token=bens).status_code == 404
    assert hub.api("GET", "/gpuspawner/placement/ann/", token=bens).status_code == 404
    assert [
        ben.look(f"/hub/gpuspawner/log/{path}").status for path in ("ann", "ann/", "ann/None", "ann?download=1")
    ] == [404] * 4
    assert [stop(ben, path) for path in ("ann", "ann/", "ann/None")] == [404] * 3

    model = hub.server("ann")
    assert model is not None
    assert model["ready"]


@pytest.mark.oldest
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.usefixtures("running")
def test_a_right_to_the_default_server_is_enough_for_it(hub: HubProcess) -> None:
    """A user with that right reaches the default server, with and without a trailing slash, and no other server."""
    cleo = Visitor(hub, "cleo")
    cleos = token(cleo)

    assert hub.api("GET", "/gpuspawner/placement/ann", token=cleos).json()["partition"] == "batch"
    assert hub.api("GET", "/gpuspawner/placement/ann/", token=cleos).json()["partition"] == "batch"
    assert hub.api("GET", "/gpuspawner/placement/ann/None", token=cleos).status_code == 404
    assert [cleo.look(f"/hub/gpuspawner/log/{path}").status for path in ("ann", "ann/", "ann/None")] == [200, 200, 404]
    assert [stop(cleo, path) for path in ("ann/None", "ann")] == [404, 303]
