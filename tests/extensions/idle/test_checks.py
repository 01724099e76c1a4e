"""Mistakes in a configuration that the checks of idle servers find, with their places and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.mistakes import Mistake, one
from tests.check.test_mistakes import assert_found

MISTAKES = {
    "servers that end before they are idle": Mistake(
        one('"partition": "gpu", "gpus": 1, "time": "1:00:00"', '"idle": {"gpu": "4h", "action": "stop"}'),
        "warn  profile g: idle.gpu: servers count as idle after 4 h, and their jobs end after 1 h. Set a shorter "
        "time, or a longer slurm.time. [idle-too-long]",
        "starts now, 8 of 22 GPUs free",
    ),
    "servers that are looked at too rarely for their idle policy": Mistake(
        one('"partition": "gpu", "gpus": 1, "time": "8:00:00"', '"idle": {"action": "stop", "keep": {"by": "2min"}}'),
        "warn  profile g: idle: a time of 2 min is shorter than the 5 min between two summaries of use: warnings and "
        "stops come late by up to that, and Keep may gain nothing. Set c.GPUSlurmSpawner.usage_interval to 12 s or "
        "less, or longer times. [idle-too-fine]",
        "starts now, 8 of 18 GPUs free",
    ),
    "a site that looks too rarely for its idle policy": Mistake(
        one('"partition": "gpu", "gpus": 1, "time": "8:00:00"'),
        "warn  c.GPUSlurmSpawner.idle: a time of 10 min is shorter than the 50 min between two summaries of use: "
        "warnings and stops come late by up to that, and Keep may gain nothing. Set c.GPUSlurmSpawner.usage_interval "
        "to 60 s or less, or longer times. [idle-too-fine]",
        "starts now, 8 of 18 GPUs free",
        settings="c.GPUSlurmSpawner.usage_interval = 300; c.GPUSlurmSpawner.idle = {'action': 'stop'}",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_found_before_a_user_reads_of_it(tmp_path: Path, mistake: Mistake) -> None:
    """As those that the core's checks find."""
    assert_found(tmp_path, mistake)
