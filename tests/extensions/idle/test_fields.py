"""The idle policy, as a profile and the site set it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.idle.fields import IDLE, Idle, IdleAction, IdleRule, idle_rule
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from tests.standins.profile_files import read_profiles

HOUR = 3600


def profile(idle: object) -> Idle | None:
    (entry,) = parse_profiles([{"display_name": "A", "idle": idle}])
    return IDLE.of(entry)


@pytest.mark.parametrize(
    ("idle", "site", "expected"),
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
def test_a_profile_goes_before_the_site(idle, site, expected) -> None:
    """Field by field; `keep` is one value."""
    assert idle_rule(profile(idle) if idle is not None else None, Idle(**site)) == expected


def test_a_fault_in_the_sites_policy_is_told_when_the_hub_starts() -> None:
    """With the setting's name and the field."""
    with pytest.raises(TraitError) as refused:
        GPUSlurmSpawner(config=Config({"GPUSlurmSpawner": {"idle": {"gpu": "60"}}}))

    assert str(refused.value) == "idle.gpu: '60' is not a duration: use for example 90s, 10min or 2h"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"idle": {"gpu": "60"}}, "profiles[0].idle.gpu: '60' is not a duration: use for example 90s, 10min or 2h"),
        ({"idle": {"gpu": 3600}}, "profiles[0].idle.gpu: 3600 is not a duration: use for example 90s, 10min or 2h"),
        ({"idle": {"kernel": "0s"}}, "profiles[0].idle.kernel: must be at least 1s"),
        ({"idle": {"action": "kill"}}, "profiles[0].idle.action: 'kill' must be 'report', 'tell' or 'stop'"),
        ({"idle": {"keep": {"times": -1}}}, "profiles[0].idle.keep.times: -1 must be a whole number from 0 to 100"),
        ({"idle": {"gpus": "1h"}}, "profiles[0].idle.gpus: no such field; did you mean gpu?"),
        ({"kind": "local", "idle": {"gpu": "1h"}}, "profiles[0]: idle is for kind: slurm; servers of the other kinds"),
    ],
)
def test_a_faulty_policy_names_its_field(fields: dict[str, Any], fault: str) -> None:
    """With what would be right."""
    with pytest.raises(ConfigError) as refused:
        parse_profiles([{"display_name": "One", **fields}])

    assert str(refused.value).startswith(fault)


def test_a_file_may_say_it_without_a_word_of_the_admins(tmp_path: Path) -> None:
    """It decides nothing that runs."""
    file = tmp_path / "one.yaml"
    file.write_text("display_name: One\nidle: {gpu: 1h, action: tell}\n")
    (profile_of_file,) = read_profiles(file)

    assert IDLE.of(profile_of_file) == Idle(gpu="1h", action="tell")
