"""The site's policy for idle servers, and a group's."""

from __future__ import annotations

import pytest

from tests.hub.spawners.test_profile_settings import overridden, settings

SITE = {"idle": {"gpu": "90min"}}


async def test_a_group_override_of_a_table_is_merged_and_its_lack_of_effect_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The hub's policy for idle servers is the same for all servers of a profile."""
    spawner = await overridden({"idle": {"action": "stop"}}, site=SITE)

    assert spawner.idle == {"gpu": "90min", "action": "stop"}
    assert "c.Spawner.group_overrides: idle has no effect for a group. Set it in a profile." in caplog.text


async def test_the_override_of_a_failed_start_does_not_stay() -> None:
    """The next start has the policy of the site."""
    spawner = await overridden({"idle": {"action": "stop"}}, site=SITE)
    spawner.clear_state()
    spawner.user.groups = []
    await spawner.apply_group_overrides()

    assert settings(spawner, ["idle"]) == SITE
