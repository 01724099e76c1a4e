"""The body of an action for a course's people."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.course.api import ActionRequest, parse_action

GOOD: dict[str, tuple[str, object, ActionRequest]] = {
    "no body": ("start", None, ActionRequest()),
    "an empty body": ("stop", {}, ActionRequest()),
    "nobody": ("stop", {"only": []}, ActionRequest(only=())),
    "some, slowly": ("start", {"only": ["ada"], "every": 2}, ActionRequest(("ada",), every=2.0)),
    "a text": ("message", {"message": "Hello"}, ActionRequest(message="Hello")),
    "as the profile says": ("extend", {}, ActionRequest()),
    "an hour": ("extend", {"minutes": 60}, ActionRequest(minutes=60)),
}
FAULTS: dict[str, tuple[str, object, str]] = {
    "a list": ("start", [], "The body must be a JSON object."),
    "an unknown field": ("stop", {"every": 1}, "every: there is no such field; stop has only."),
    "a name": ("stop", {"only": "ada"}, "only: must be a list of user names."),
    "numbers for names": ("stop", {"only": [1]}, "only: must be a list of user names."),
    "a negative pause": ("start", {"every": -1}, "every: must be a number of seconds, at most 60."),
    "no number": ("start", {"every": float("nan")}, "every: must be a number of seconds, at most 60."),
    "an empty text": ("message", {"message": " "}, "message: must be a text."),
    "no text": ("message", {}, "message: must be a text."),
    "half a minute": ("extend", {"minutes": 0.5}, "minutes: must be a whole number from 1 to 1440."),
    "true": ("extend", {"minutes": True}, "minutes: must be a whole number from 1 to 1440."),
}


@pytest.mark.parametrize(("action", "body", "asked"), GOOD.values(), ids=GOOD.keys())
def test_a_body_is_parsed(action: str, body: object, asked: ActionRequest) -> None:
    """A list without names is for nobody; without the list the action is for everybody."""
    assert parse_action(body, action) == asked


@pytest.mark.parametrize(("action", "body", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_names_the_field(action: str, body: object, fault: str) -> None:
    """And says what would be right."""
    with pytest.raises(ValueError) as raised:
        parse_action(body, action)
    assert str(raised.value) == fault
