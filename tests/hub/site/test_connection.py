"""One view of the cluster for all pages: questions are shared, and the last answer is kept while Slurm is silent."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.hub.site.connection import FIRST_PAUSE, LATE, Cluster, ClusterView, UnreadRecords
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.slurm.text import UnparsedField


@dataclass
class Slurm:
    """A Slurm that counts questions, answers on request, and fails on request."""

    questions: int = 0
    now: float = 1000.0
    fault: Exception | None = None
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def snapshot(self) -> ClusterSnapshot:
        self.questions += 1
        taken_at = self.now
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        return ClusterSnapshot(taken_at=taken_at)

    def clock(self) -> float:
        return self.now


@pytest.fixture
def slurm() -> Slurm:
    """Return a Slurm that answers."""
    stand_in = Slurm()
    stand_in.answers.set()
    return stand_in


@pytest.fixture
def view(slurm: Slurm) -> ClusterView:
    """Return the view of it."""
    return ClusterView(slurm.snapshot, clock=slurm.clock)


async def test_fifty_who_ask_at_once_are_one_question(slurm: Slurm, view: ClusterView) -> None:
    """All get the same snapshot; a new one is fetched once that is too old for the caller."""
    snapshots = await asyncio.gather(*(view.recent() for _ in range(50)))
    assert (slurm.questions, snapshots) == (1, [ClusterSnapshot(taken_at=1000.0)] * 50)
    slurm.now += 15
    assert (await view.recent(), slurm.questions) == (ClusterSnapshot(taken_at=1000.0), 1)
    slurm.now += 1
    assert (await view.recent(), slurm.questions) == (ClusterSnapshot(taken_at=1016.0), 2)
    slurm.now += 3
    assert (await view.recent(max_age=2), slurm.questions) == (ClusterSnapshot(taken_at=1019.0), 3)


async def test_nothing_is_asked_until_somebody_looks(slurm: Slurm, view: ClusterView) -> None:
    """``latest`` does not ask Slurm."""
    assert (view.latest, view.silent, slurm.questions) == (None, False, 0)


async def test_slow_slurm_keeps_nobody_waiting_and_its_answer_counts(slurm: Slurm, view: ClusterView) -> None:
    """A caller whose patience ends gets no answer; the question goes on and serves the next caller."""
    slurm.answers.clear()
    assert [await view.recent(patience=0), await view.recent(patience=0.01)] == [None, None]
    slurm.answers.set()
    assert (await view.recent(), slurm.questions) == (ClusterSnapshot(taken_at=1000.0), 1)


async def test_a_late_answer_is_told_before_it_comes(slurm: Slurm, view: ClusterView) -> None:
    """Three seconds after the question; its answer ends that, though it is an old one."""
    snapshot = await view.recent()
    slurm.answers.clear()
    slurm.now += 20
    assert (await view.recent(patience=0), view.silent) == (snapshot, False)
    slurm.now += LATE + 0.1
    assert (await view.recent(patience=0), view.silent, view.fault) == (snapshot, True, None)
    slurm.answers.set()
    assert (await view.recent(), view.silent) == (ClusterSnapshot(taken_at=1020.0), False)


async def test_a_question_without_answer_is_told_to_others(slurm: Slurm) -> None:
    """Whoever else asks Slurm may ask at once, and not only when it is their turn."""
    silence_times: list[float] = []
    view = ClusterView(slurm.snapshot, clock=slurm.clock, on_silence=lambda: silence_times.append(slurm.now))
    await view.recent()
    slurm.fault = SlurmUnavailable("squeue failed: slurmctld cannot be reached.")
    slurm.now += 20
    await view.recent()
    assert silence_times == [1020.0]


async def test_a_cancelled_request_does_not_cancel_the_question(slurm: Slurm, view: ClusterView) -> None:
    """Cancelling a request does not cancel the question."""
    slurm.answers.clear()
    leaves, stays = (asyncio.ensure_future(view.recent()) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    slurm.answers.set()
    assert (await stays, slurm.questions) == (ClusterSnapshot(taken_at=1000.0), 1)


async def test_silent_slurm_leaves_the_last_snapshot_and_is_asked_less_and_less(
    slurm: Slurm, view: ClusterView, caplog: pytest.LogCaptureFixture
) -> None:
    """One log line for the outage, one for its end; pauses double, up to a minute."""
    snapshot = await view.recent()
    slurm.fault = SlurmUnavailable("squeue failed: slurmctld cannot be reached.")
    question_times: list[float] = []
    with caplog.at_level(logging.INFO):
        for _ in range(300):
            slurm.now += 1
            assert await view.recent(max_age=0.5) == snapshot
            if slurm.questions > len(question_times) + 1:
                question_times.append(slurm.now - 1001.0)
        assert view.silent
        slurm.fault = None
        slurm.now += 60
        assert await view.recent() == ClusterSnapshot(taken_at=1360.0)
    assert question_times == [0, 5, 15, 35, 75, 135, 195, 255]
    assert (question_times[1], view.silent) == (FIRST_PAUSE, False)
    assert [record.getMessage() for record in caplog.records] == [
        "The cluster cannot be shown as it is now: squeue failed: slurmctld cannot be reached.",
        "Slurm is responding to queries about the cluster again",
    ]


async def test_any_other_exception_counts_as_no_answer(
    slurm: Slurm, view: ClusterView, caplog: pytest.LogCaptureFixture
) -> None:
    """The page works without an answer; the traceback is logged once."""
    slurm.fault = ZeroDivisionError("nodes")
    assert await view.recent() is None
    slurm.now += 10
    assert await view.recent() is None
    assert (view.silent, str(view.fault), slurm.questions) == (True, "ZeroDivisionError: nodes", 2)
    assert [(record.getMessage(), record.exc_info is not None) for record in caplog.records] == [
        ("The cluster cannot be shown", True)
    ]


async def test_an_answer_from_before_a_change_is_not_shown_as_new(slurm: Slurm, view: ClusterView) -> None:
    """After a change by the hub the next one who looks has Slurm asked, however new the last answer is."""
    before = await view.recent()
    view.outdate()

    assert (view.latest, slurm.questions) == (before, 1)

    await view.recent()
    await view.recent()

    assert slurm.questions == 2


async def test_changes_in_a_row_have_slurm_asked_once_in_a_while(slurm: Slurm, view: ClusterView) -> None:
    """Thirty within three seconds, each of which lets an answer of one second pass."""
    for _ in range(30):
        await view.recent()
        view.outdate(rest=1.0)
        slurm.now += 0.1
    await view.recent()

    assert slurm.questions == 4


async def test_a_question_that_was_under_way_at_a_change_is_asked_again(slurm: Slurm, view: ClusterView) -> None:
    """Its answer may be from before the change."""
    slurm.answers.clear()
    asking = asyncio.ensure_future(view.recent())
    for _ in range(5):  # until it has asked
        await asyncio.sleep(0)
    view.outdate()
    slurm.answers.set()
    await asking
    await view.recent()

    assert slurm.questions == 2


LOOKED = 1000.0
"""When the hub last looked at the cluster, in seconds since the epoch."""
SNAPSHOT = ClusterSnapshot(taken_at=LOOKED)
SILENCES: dict[str, tuple[bool, ClusterSnapshot | None, float | None, bool]] = {
    "nothing asked yet": (False, None, None, False),
    "all answered": (False, SNAPSHOT, None, False),
    "the cluster's view has no answer": (True, SNAPSHOT, None, True),
    "the jobs have none, since the cluster was looked at": (False, SNAPSHOT, LOOKED + 5, True),
    "the jobs had none, and the cluster was looked at since": (False, SNAPSHOT, LOOKED - 5, False),
    "the jobs have none, and the cluster was never looked at": (False, None, LOOKED, True),
}


@pytest.mark.parametrize(("silent", "latest", "since", "expected"), SILENCES.values(), ids=SILENCES.keys())
def test_pages_say_the_same_whoever_asked(
    silent: bool, latest: ClusterSnapshot | None, since: float | None, expected: bool
) -> None:
    """The later of the two counts: an answer about the cluster ends what is told of an earlier silence."""
    unused: Any = None
    watcher: Any = SimpleNamespace(unanswered_since=since)
    cluster: Any = SimpleNamespace(silent=silent, latest=latest)

    connection = Cluster("", unused, watcher, cluster, shows_jobs=unused)
    assert connection.silent is expected


def counted(kind: str) -> float:
    """Return the counter's value."""
    return REGISTRY.get_sample_value("gpuspawner_slurm_unread_records_total", {"cluster": "", "kind": kind}) or 0.0


def test_each_is_named_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    """By kind, id and field, never with its text; the same answer is not logged again."""
    records = UnreadRecords()
    odd = [UnparsedField("job", "7", "tres-per-node", partial=True), UnparsedField("reservation", "a\nb", "Nodes")]
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
        UnreadRecords().report([UnparsedField("job", str(number), "tres-per-job") for number in range(1000)])
    assert len(caplog.messages) == 1
    assert "and 995 more" in caplog.text
    assert len(caplog.text) < 500
