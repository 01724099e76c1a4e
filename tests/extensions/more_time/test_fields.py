"""More time, as a profile allows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.more_time.fields import EXTEND, Extend
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from tests.standins.profile_files import read_profiles


def test_a_profile_says_how_often_and_by_how_much() -> None:
    """Kept in seconds; once, unless it says more, and by default not at all."""
    documents: tuple[dict[str, Any], ...] = ({"extend": {"by": "30min", "times": 2}}, {"extend": {"by": "1h"}}, {})
    profiles = parse_profiles([{"display_name": str(number), **each} for number, each in enumerate(documents)])

    assert [EXTEND.of(profile) for profile in profiles] == [Extend(by="30min", times=2), Extend(by="1h"), None]
    assert [(rule.by, rule.times) for profile in profiles if (rule := EXTEND.of(profile))] == [(1800, 2), (3600, 1)]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"extend": {}}, "profiles[0].extend.by: is missing"),
        ({"extend": {"by": "1:00:00"}}, "profiles[0].extend.by: '1:00:00' is not a duration: use for example 90s,"),
        ({"extend": {"by": "90s"}}, "profiles[0].extend.by: must be a number of full minutes, from 1min to 24h"),
        ({"extend": {"by": "0min"}}, "profiles[0].extend.by: must be a number of full minutes"),
        ({"extend": {"by": "25h"}}, "profiles[0].extend.by: must be a number of full minutes"),
        ({"extend": {"by": "1h", "times": 0}}, "profiles[0].extend.times: 0 must be a whole number from 1 to 100"),
        ({"kind": "local", "extend": {"by": "1h"}}, "profiles[0]: extend is for kind: slurm; servers of the other"),
    ],
)
def test_a_faulty_rule_names_its_field(fields: dict[str, Any], fault: str) -> None:
    """With what would be right."""
    with pytest.raises(ConfigError) as refused:
        parse_profiles([{"display_name": "One", **fields}])

    assert str(refused.value).startswith(fault)


def test_a_file_may_say_it_without_a_word_of_the_admins(tmp_path: Path) -> None:
    """It decides nothing that runs."""
    file = tmp_path / "one.yaml"
    file.write_text("display_name: One\nextend: {by: 1h, times: 2}\n")
    (profile_of_file,) = read_profiles(file)

    assert EXTEND.of(profile_of_file) == Extend(by="1h", times=2)
