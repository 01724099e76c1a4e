"""No state is told by colour alone, those of extensions included."""

from __future__ import annotations

from enum import Enum

import pytest

from jupyterhub_gpuspawner.extensions.cluster_map.survey import NodeUse
from jupyterhub_gpuspawner.extensions.courses.participants import State
from jupyterhub_gpuspawner.hub.spawners.server import ServerState
from jupyterhub_gpuspawner.slurm.estimate import Chance
from tests.hub.web.marks import states_with


@pytest.mark.parametrize("states", [ServerState, Chance, State, NodeUse])
def test_every_state_has_a_mark_of_its_own_shape(states: type[Enum]) -> None:
    """Whatever a page has as the class of what it shows."""
    assert {state.value for state in states} - states_with("--gs-mark") == set()
