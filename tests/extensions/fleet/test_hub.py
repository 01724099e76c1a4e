"""What goes on in a hub with this extension as long as it runs."""

from __future__ import annotations

from pathlib import Path

from tests.hub.test_registration import begun


async def test_each_is_a_loop_of_its_own(tmp_path: Path) -> None:
    """Beside those of the core and of what it needs."""
    assert await begun(tmp_path, ["availability", "fleet", "records", "seats"]) >= {
        "Keeping the reports of nodes",
        "Taking over the reports of nodes of a hub without names of clusters",
        "The deletion of old reports of nodes",
    }
