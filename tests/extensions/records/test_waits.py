"""What past waits say of others: ranges that nine of ten are in."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.records.waits import (
    ENOUGH,
    FEW,
    LATEST_WAITS,
    SIMILAR_WAITS,
    PastWait,
    PastWaits,
    past_waits,
)
from jupyterhub_gpuspawner.slurm.estimate import MINUTE

HOUR = 3600.0


def of_parts(*parts: float, planned: float = HOUR) -> PastWaits:
    """Waits that were such parts of what Slurm had planned."""
    return past_waits([PastWait(planned, part * (planned + MINUTE) - MINUTE) for part in parts])


def span(past: PastWaits, planned: float = HOUR) -> tuple[float, float, float]:
    """Earliest, likely and latest start where Slurm plans one in ``planned`` seconds, in seconds from now."""
    learned = past.span(planned)
    assert learned is not None
    return tuple(pytest.approx(moment, abs=1) for moment in learned)  # type: ignore[return-value]


def test_next_to_no_past_waits_say_nothing() -> None:
    """Slurm's own plan is what counts then."""
    assert of_parts(*[0.5] * (FEW - 1)).span(HOUR) is None


def test_a_few_past_waits_say_what_is_likely_and_how_long_it_may_take() -> None:
    """From now until Slurm's plan, or the longest of them where one was longer than that."""
    assert span(of_parts(0.1, 0.2, 0.5, 0.6, 0.9, planned=940), planned=940) == (0, 440, 940)
    assert span(of_parts(0.1, 0.2, 0.5, 0.6, 1.5, planned=940), planned=940) == (0, 440, 1440)


def test_a_range_is_learned_from_what_came_of_past_plans() -> None:
    """Nine of ten waits were within it, one in twenty shorter and one in twenty longer; half had ended by its middle.

    Both waits count a minute longer, so that seconds of difference are no multiple.
    """
    past = of_parts(*(part / 100 for part in range(1, 100)))

    assert past.share(2940) == pytest.approx((0.05, 0.5, 0.95))
    assert span(past, planned=2940) == (90, 1440, 2790)
    assert PastWait(planned=1, actual=15).ratio < 1.3


def test_a_plan_is_judged_by_plans_of_similar_length() -> None:
    """Short waits come as Slurm says, and long ones much sooner: neither says anything of the other."""
    short = [PastWait(540, 540)] * ENOUGH
    long = [PastWait(36000 - 60, 720 - 60)] * ENOUGH
    past = past_waits([*short, *long])

    assert span(past, planned=600) == (600, 600, 600)
    assert span(past, planned=20 * HOUR) == (1381, 1381, 1381)
    assert past.share(2 * HOUR) is None  # between the two


def test_only_the_latest_waits_count() -> None:
    """A partition changes its habits."""
    assert span(of_parts(*[2.0] * SIMILAR_WAITS, *[0.5] * SIMILAR_WAITS)) == (1770, 1770, 1770)
    assert len(of_parts(*[1.0] * (LATEST_WAITS + 1)).waits) == LATEST_WAITS
