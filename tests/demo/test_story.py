"""What goes on in the demo by itself: a course in session, a server that runs and one that waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.run import demo_hub
from jupyterhub_gpuspawner.demo.story import IN_COURSE, ON_CLUSTER, Start, begin_story
from tests.fixtures.hubs import needs_proxy

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    """The demo's, as it is."""
    needs_proxy()
    with ExitStack() as stack:
        hub = demo_hub(stack, tmp_path, "", port=0)
        stack.enter_context(hub)
        yield hub


def test_a_course_is_in_session_and_one_server_waits_for_what_two_others_have(hub: HubProcess) -> None:
    """Real jobs; what the hub refuses is said, and keeps nobody else from starting."""
    said: list[str] = []
    unknown = Start("ada", {"profile": "no-such-profile"})
    begin_story(hub, (*IN_COURSE, unknown, *ON_CLUSTER), said.append)
    *running, waiting = (*IN_COURSE, *ON_CLUSTER)
    for start in running:
        hub.wait(start.user, start.server, ready=True)
    model = hub.server(waiting.user, waiting.server) or {}
    course = {hub.api("GET", f"/gpuspawner/placement/{start.user}").json()["node"] for start in IN_COURSE}

    assert (model["ready"], model["pending"]) == (False, "spawn")
    assert course == {"m1"}
    assert [line.partition(": ")[0] for line in said] == ["The server of ada was not started"]
