"""What goes on in a hub with this extension as long as it runs."""

from __future__ import annotations

from pathlib import Path

from tests.hub.test_registration import begun


async def test_each_is_a_loop_of_its_own(tmp_path: Path) -> None:
    """Beside those of the core."""
    assert await begun(tmp_path, ["records"]) >= {
        "Learning from past waits",
        "The completion of sessions that were left open",
        "The deletion of old session records",
        "The search for nodes on which starts fail",
    }
