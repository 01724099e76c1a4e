"""Which profile makes room for who has a full home."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from tests.hub.test_one_request import spawner_of

PROFILES: list[dict[str, Any]] = [
    {"display_name": "Small", "slug": "small", "slurm": {"cpus": 2}},
    {"display_name": "Staff's", "slug": "staff", "slurm": {}, "rescue": True, "allow": {"groups": ["staff"]}},
    {"display_name": "Make room", "slug": "room", "slurm": {"cpus": 1}, "rescue": True},
]
FULL = Ending(start_failed("home_full"))
CASES: dict[str, tuple[Ending | None, str, str | None, int]] = {
    "the first one that its user may have": (FULL, "small", "room", 1),
    "not what has just failed": (FULL, "room", None, 1),
    "none after another end, for which no profiles are gone through": (Ending(Cause(Kind.MEMORY)), "small", None, 0),
    "none without an end": (None, "small", None, 0),
}


@pytest.mark.parametrize(("ending", "last", "slug", "readings"), CASES.values(), ids=CASES.keys())
def test_who_has_a_full_home_is_offered_what_makes_room(
    monkeypatch: pytest.MonkeyPatch, ending: Ending | None, last: str, slug: str | None, readings: int
) -> None:
    """Pages ask at each look, about each server that does not run."""
    spawner = spawner_of({}, *PROFILES)
    spawner.user_options = {"profile": last}
    offers = Mock(return_value=spawner.offers())
    monkeypatch.setattr(GPUProfilesSpawner, "offers", offers)
    rescue = spawner.rescue(ending)

    assert (rescue.slug if rescue is not None else None, offers.call_count) == (slug, readings)
