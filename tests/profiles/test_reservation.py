"""The reservation that a job uses on a given day."""

from __future__ import annotations

from datetime import date

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resources import ReservationRule

TUESDAY, WEDNESDAY = date(2026, 3, 3), date(2026, 3, 4)


def _rule(reservation: object) -> ReservationRule:
    (profile,) = parse_profiles([{"display_name": "P", "slurm": {"reservation": reservation}}])
    assert profile.slurm.reservation is not None
    return profile.slurm.reservation


@pytest.mark.parametrize(
    ("reservation", "on_tuesday"),
    [
        ("course", "course"),
        (2026, "2026"),
        ("ml-hpc-%u", "ml-hpc-2"),
        ("course-%Y%m%d", "course-20260303"),
        ({"2026-03-03": "ml-hpc-2"}, "ml-hpc-2"),
        ({TUESDAY: "ml-hpc-2"}, "ml-hpc-2"),
        ({"2026-03-02": "ml-hpc-1", "default": "spare"}, "spare"),
        ({"2026-03-02": "ml-hpc-1", "default": None}, None),
        ({TUESDAY: None, "default": "spare"}, None),
        ({TUESDAY: ""}, None),
    ],
)
def test_the_name_changes_with_the_day(reservation: object, on_tuesday: str | None) -> None:
    """A name, a pattern with the date, or a table with a default, which may be none."""
    assert _rule(reservation).on(TUESDAY) == on_tuesday


def test_a_day_that_the_table_leaves_out_has_no_reservation_to_run_in() -> None:
    """The error names the day and the days of the table."""
    with pytest.raises(LookupError, match="there is no reservation for 2026-03-04; days are 2026-03-02, 2026-03-03"):
        _rule({"2026-03-03": "b", "2026-03-02": "a"}).on(WEDNESDAY)


@pytest.mark.parametrize(
    ("reservation", "message"),
    [
        ("", "'' gives ''"),
        ("ml hpc", "'ml hpc' gives 'ml hpc'"),
        ("a\n#SBATCH --x", "a reservation consists of letters, digits"),
        ("ml-%e", "%e in 'ml-%e' is not a valid code for a reservation: codes are %a"),
        ("ml-%", "is not a valid code for a reservation"),
        ({"monday": "a"}, "'monday' is not a valid date: use 2024-05-31, or default"),
        ({"2026-03-02": "a b"}, "'a b' gives 'a b'"),
        ({}, "must be a name, a pattern such as ml-hpc-%u, or a table"),
        (["a"], "must be a table of fields"),
    ],
)
def test_a_rule_that_cannot_name_a_reservation_is_refused_when_it_is_read(reservation: object, message: str) -> None:
    """Names contain no blank, and patterns only codes whose value contains none."""
    with pytest.raises(ConfigError) as caught:
        _rule(reservation)
    assert message in str(caught.value)
    assert str(caught.value).startswith("profiles[0].slurm.reservation")
