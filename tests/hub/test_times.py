"""Points in time as the hub writes them into a page."""

from __future__ import annotations

import time
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.hub.times import both, clock, iso, parse_time, relative

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 22, 10, 18, tzinfo=timezone.utc).timestamp()


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub's machine is in Brussels."""
    monkeypatch.setenv("TZ", "Europe/Brussels")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (NOW + 1200, ("11:38 CET", "in 20 min", "in 20 min, 11:38 CET")),
        (NOW - 300, ("11:13 CET", "5 min ago", "5 min ago, 11:13 CET")),
        (NOW + 3, ("11:18 CET", "now", "now, 11:18 CET")),
        (NOW + 43_200, ("23:18 CET", "in 12 h", "in 12 h, 23:18 CET")),
        (NOW + 86_400, ("23 Nov 2026, 11:18 CET", "in 24 h", "in 24 h, 23 Nov 2026, 11:18 CET")),
        (NOW + 240 * 86_400, ("20 Jul 2027, 12:18 CEST", "in 240 days", "in 240 days, 20 Jul 2027, 12:18 CEST")),
    ],
)
def test_a_time_is_written_in_the_hubs_zone(when: float, expected: tuple[str, str, str]) -> None:
    """With the zone's name, and with the date where that is not today."""
    assert (clock(when, now=NOW), relative(when, now=NOW), both(when, now=NOW)) == expected


def test_a_day_has_no_time_and_no_zone() -> None:
    """Whoever reads it, wherever they are."""
    assert (clock(date(2999, 7, 1), now=NOW), iso(date(2999, 7, 1))) == ("1 Jul 2999", "2999-07-01")


@pytest.mark.parametrize(
    "when", [NOW, "2026-11-22T10:18:00Z", "2026-11-22T11:18:00+01:00", "2026-11-22T10:18:00"], ids=str
)
def test_a_time_without_a_zone_is_in_utc(when: float | str) -> None:
    """Seconds since the epoch and ISO 8601 say the same."""
    assert (parse_time(when).timestamp(), iso(when)) == (NOW, "2026-11-22T11:18:00+01:00")
