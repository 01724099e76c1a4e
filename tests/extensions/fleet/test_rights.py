"""Who does not read of the health of nodes."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


def test_a_participant_does_not_read_of_nodes(light_hub: HubProcess) -> None:
    """The document is for administrators."""
    assert Visitor(light_hub, "lou").look("/hub/api/gpuspawner/fleet").status == 403
