"""One start: its id, its stages and its time, in this hub and in the one after it."""

from __future__ import annotations

import json
import time

import pytest

from jupyterhub_gpuspawner.hub.start.deadline import Clocks, Deadline
from jupyterhub_gpuspawner.hub.start.start import AFTER_RESTART, Start


def test_each_start_has_an_id_of_its_own_with_the_hubs_mark() -> None:
    """By it a job is found again."""
    first, second = Start.begin("0a1b2c3d", 60.0), Start.begin("0a1b2c3d", 60.0)

    assert first.start_id.startswith("0a1b2c3d-")
    assert first.start_id != second.start_id


@pytest.mark.parametrize(("timeout", "margin"), [(600.0, 1.0), (5.0, 0.5)])
def test_a_start_is_given_up_a_little_before_jupyterhubs_own_time_out(timeout: float, margin: float) -> None:
    """Which does not say why; the margin is a second, of a short start a tenth."""
    assert Start.begin("", timeout).left(timeout) == pytest.approx(timeout - margin, abs=0.6)


def test_the_stages_are_kept_in_the_state() -> None:
    """With the deadline; the first report counts."""
    start = Start.begin("", 600.0)
    start.queued("k80")
    start.reported()
    reached = dict(start.reached)
    start.reported()
    again = Start.stored(json.loads(json.dumps(start.to_state())))

    assert list(reached) == ["submitted", "queued", "starting"]
    assert (start.reached, again.reached) == (reached, reached)
    assert again.to_state() == start.to_state()


def test_a_restarted_hub_gives_a_start_some_time() -> None:
    """However late it is."""
    late = Deadline.after(-100.0, Clocks(time.time(), 0.0, ""))

    assert Start.stored(late.to_state()).left(600.0) == AFTER_RESTART


@pytest.mark.parametrize("state", [{}, {"start_by": "noon", "reached": []}, {"reached": {"queued": "noon"}}])
def test_what_cannot_be_read_is_dropped(state: dict[str, object]) -> None:
    """A state that batchspawner stored has neither; its servers count as started."""
    start = Start.stored(state)

    assert (start.deadline, start.reached, start.to_state()) == (None, {}, {})
