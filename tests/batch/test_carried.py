"""What a job carries of extensions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from jupyterhub_gpuspawner.batch.carried import Cargo, Carried, Use, cargo_of
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, Step

GOOD = Carried(("good",), lambda _request, _settings: Use(before=Step("good:step"), lines="true"), extension="good")
IDLE = Carried(("idle",), lambda _request, _settings: None, extension="idle")


def _raises(_request: JobRequest, settings: Mapping[str, Any]) -> Use:
    raise LookupError(f"of no use: {settings['interval']}")


def test_one_that_raises_is_named_in_the_log_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The job carries the others; one that it does not use neither."""
    request = resolve(
        parse_profiles([{"display_name": "P"}]),
        {},
        username="ada",
        groups=(),
        server_name="",
        now=datetime(2026, 3, 3, 10).astimezone(),
    )
    bad = Carried(("bad",), _raises, settings=("interval",), extension="bad")
    with caplog.at_level(logging.ERROR):
        cargo = cargo_of(request, (bad, GOOD, IDLE), {"interval": 5})

    assert cargo == Cargo((GOOD,), (Use(before=Step("good:step"), lines="true"),))
    assert cargo.on(LaunchPlan()) == LaunchPlan(before=(Step("good:step"),))
    assert caplog.messages == [
        "The extension bad is left out here, since its launcher failed: LookupError: of no use: 5"
    ]
