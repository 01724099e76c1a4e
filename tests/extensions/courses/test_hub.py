"""What goes on in a hub with this extension as long as it runs."""

from __future__ import annotations

from pathlib import Path

from tests.hub.test_registration import begun


async def test_each_is_a_loop_of_its_own(tmp_path: Path) -> None:
    """Beside those of the core and of what it needs."""
    assert await begun(tmp_path, ["availability", "courses", "live_pages", "messages", "seats"]) >= {
        "Looking for courses that are to be started",
        "The check of courses",
        "The deletion of old starts of courses",
        "The deletion of people of courses that are gone",
        "The update of courses",
    }
