"""The idle policy as a profile and the site say it, and as it is resolved."""

from __future__ import annotations

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.profile import Idle, IdleAction, IdleRule, idle_rule, parse_profiles

HOUR = 3600


def profile(idle: object) -> Idle | None:
    (found,) = parse_profiles([{"display_name": "A", "idle": idle}])
    return found.idle


@pytest.mark.parametrize(
    ("said", "site", "expected"),
    [
        (None, {}, IdleRule()),
        ({"action": "stop"}, {}, IdleRule(action=IdleAction.STOP)),
        ({"gpu": "2h"}, {"gpu": "30min"}, IdleRule(2 * HOUR, 4 * HOUR, None, (HOUR, 1200))),
        ({"action": "tell"}, {"gpu": "30min"}, IdleRule(1800, HOUR, None, (900, 300), IdleAction.NOTIFY)),
        ({"gpu": None}, {}, IdleRule(None, None, None, ())),
        ({"gpu": None, "kernel": "2h"}, {}, IdleRule(None, None, 2 * HOUR, (HOUR, 1200))),
        ({"kernel": "30min"}, {}, IdleRule(kernel=1800, leads=(900, 600))),
        ({"keep": {"times": 5}}, {"keep": {"by": "1h"}}, IdleRule(keep_times=5)),
        ({"keep": None}, {}, IdleRule(keep_times=0)),
    ],
)
def test_a_profile_goes_before_the_site(said, site, expected) -> None:
    """Field by field; `keep` is one value."""
    assert idle_rule(profile(said) if said is not None else None, Idle(**site)) == expected


def test_a_fault_in_the_sites_policy_is_told_when_the_hub_starts() -> None:
    """With the setting's name and the field."""
    with pytest.raises(TraitError) as refused:
        GPUSlurmSpawner(config=Config({"GPUSlurmSpawner": {"idle": {"gpu": "60"}}}))

    assert str(refused.value) == "idle.gpu: '60' is not a duration: use for example 90s, 10min or 2h"
