"""The admin's settings for courses."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets import TraitError

from jupyterhub_gpuspawner.hub.course.rights import GPUCourses

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no expression": ({"people": "train["}, "GPUCourses.people: 'train[' is not a regular expression: "),
    "no pause": ({"every": 0}, "every: 0 must be from 0.1 to 60 seconds."),
    "no start": ({"at_once": 0}, "at_once: 0 must be a whole number from 1 to 500."),
}


@pytest.mark.parametrize(("settings", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_a_wrong_setting_is_refused(settings: dict[str, Any], fault: str) -> None:
    """The hub does not start with it; the message names the setting and its bounds."""
    with pytest.raises(TraitError) as raised:
        GPUCourses(**settings)
    assert str(raised.value).startswith(fault)
