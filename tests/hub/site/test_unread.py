"""Records of Slurm's answers that are not understood are logged and counted, each once."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import REGISTRY

from jupyterhub_gpuspawner.hub.site.connection import UnreadRecords
from jupyterhub_gpuspawner.slurm.snapshot import Unread


def counted(kind: str) -> float:
    """Return the counter's value."""
    return REGISTRY.get_sample_value("gpuspawner_slurm_unread_records_total", {"kind": kind}) or 0.0


def test_each_is_named_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    """By kind, id and field, never with its text; the same answer is not logged again."""
    records = UnreadRecords()
    odd = [Unread("job", "7", "tres-per-node", kept=True), Unread("reservation", "a\nb", "Nodes")]
    before = counted("job"), counted("reservation")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            records.report(odd)
    assert caplog.messages == [
        "Slurm's answer was not understood for job 7 (field tres-per-node), reservation 'a\\nb' (field Nodes); "
        "the rest of the answer is used."
    ]
    assert (counted("job") - before[0], counted("reservation") - before[1]) == (1.0, 1.0)


def test_a_crowd_of_them_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A user with a thousand held jobs of odd resources cannot fill the log."""
    with caplog.at_level(logging.WARNING):
        UnreadRecords().report([Unread("job", str(number), "tres-per-job") for number in range(1000)])
    assert len(caplog.messages) == 1
    assert "and 995 more" in caplog.text
    assert len(caplog.text) < 500
