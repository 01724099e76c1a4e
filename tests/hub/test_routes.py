"""Access to one server through our URLs does not grant access to another, whatever its name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from tornado.routing import PathMatches

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.extensions import API, PAGES
from tests.hub.visitor import Visitor

PATTERNS = [path for path, *_ in (*API, *PAGES)]


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


REPLACED = [
    "/spawn/([^/]+)/([^/]+)",
    "/spawn-pending/([^/]+)/([^/]+)",
    "/user/([^/]+)/([^/]+)/lab",
    "/api/users/([^/]+)/servers/([^/]+)",
    "/api/users/([^/]+)/servers/([^/]+)/progress",
]
"""Addresses of a named server that lead to JupyterHub's pages which ours replace, or to its own."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def made(hub: HubProcess, server: str) -> int:
    """How many spawners of this server the hub has made."""
    return hub.log.read_text().count(f"A spawner is made: {server}\n")


@pytest.mark.slurm
@pytest.mark.hub
def test_a_strangers_request_makes_no_spawner(light_hub: HubProcess) -> None:
    """Whatever the address and the method, the right is checked first; the server's own user still has it made."""
    light_hub.spawn("rosa", {"profile": "light"}, server="lab")
    light_hub.end("rosa", "lab")
    stranger, rosa = Visitor(light_hub, "eric"), Visitor(light_hub, "rosa")
    before = made(light_hub, "rosa/lab")
    answers = Counter[int]()
    for pattern in (*PATTERNS, *REPLACED):
        path = re.sub(r"\([^)]*\)", "lab", re.sub(r"\([^)]*\)", "rosa", pattern, count=1))
        for method in METHODS:
            url = f"{light_hub.url}/hub{path}"
            answer = stranger.session.request(
                method, url, headers=stranger.headers, timeout=30, allow_redirects=False, stream=True
            )
            answers[answer.status_code // 100] += 1
            answer.close()

    assert made(light_hub, "rosa/lab") == before
    assert answers[5] == 0
    assert rosa.pending("lab").status == 200
    assert made(light_hub, "rosa/lab") == before + 1
