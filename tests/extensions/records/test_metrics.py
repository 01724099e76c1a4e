"""What Prometheus is told of expected starts."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import REGISTRY

from jupyterhub_gpuspawner.extensions.records.metrics import observe_promises
from tests.extensions.records.events import PLACED
from tests.standins.session_events import NOON


def test_expected_starts_are_counted_when_their_job_has_started() -> None:
    """By profile, by when they were said, and whether the start was within the range."""

    def count(moment: str, kept: str) -> float | None:
        labels = {"cluster": "", "profile": "promised", "moment": moment, "kept": kept}
        return REGISTRY.get_sample_value("gpuspawner_promised_starts_total", labels)

    for after in (31, 300):
        observe_promises(replace(PLACED, profile="promised", allocated_at=NOON + after))

    assert [count("click", "within"), count("click", "late"), count("queued", "within"), count("queued", "late")] == [
        1.0
    ] * 4
