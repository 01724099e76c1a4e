"""A server's card on the home page, for whatever spawner and state it has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.ending.failure import start_failed
from jupyterhub_gpuspawner.hub.ending.record import Ending
from jupyterhub_gpuspawner.hub.pages.server.card import ServerCard, current_placement, server_card, time_left
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.jobs.status import JobStatus, Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=timezone.utc).timestamp()
PLACED = PlacementDocument(job_id="12", node="g1", partition="gpu", ends_at="2026-05-04T10:10:30Z")


def child(**more: Any) -> SimpleNamespace:
    """A profile's spawner that has a job."""
    facts = {"job_id": "12", "job": None, "start_facts": StartFacts, "job_log": None, **more}
    return SimpleNamespace(**facts)


def spawner(**more: Any) -> SimpleNamespace:
    """A spawner as JupyterHub knows it."""
    return SimpleNamespace(**{"name": "", "pending": None, "ready": False, "child_spawner": None, **more})


def test_a_running_server() -> None:
    """Where it is, what it got, how much time is left, and that there is a log."""
    running = spawner(name="lab", display_name="My <lab>", ready=True, placement=PLACED, child_spawner=child())
    card = server_card(running, now=NOW)

    assert card is not None
    assert card.facts is not None
    assert card.left is not None
    assert replace(card, facts=None, left=None) == ServerCard(
        "lab", "Server My <lab>", "running", "g1", advice="", silent=False, log=True
    )
    assert card.facts.rows[:2] == (("Node", "g1"), ("Job", "12, partition gpu"))
    assert (card.left.ends.timestamp(), card.left.words, card.left.warning) == (
        NOW + 630,
        "10 min",
        "It ends in 10 min. Save your work.",
    )
    assert card.news == "Server My <lab>: running."


def test_a_changed_time_limit_is_told() -> None:
    """The end is the job's, as Slurm tells it now, on the page and over REST."""
    told = child(job=JobStatus("12", Phase.RUNNING, ends_at=NOW + 7200))
    running = spawner(ready=True, placement=PLACED, child_spawner=told)
    card = server_card(running, now=NOW)

    assert card is not None
    assert card.left is not None
    assert (card.left.words, card.left.warning) == ("2 h 0 min", "")
    assert current_placement(running) == replace(PLACED, ends_at="2026-05-04T12:00:00+00:00")


def test_a_server_that_starts_leads_to_its_stages() -> None:
    """What happens now, in the words of the waiting page."""
    waiting = child(start_facts=lambda: StartFacts("12", job=JobStatus("12", Phase.QUEUED, reason="Priority")))
    card = server_card(spawner(pending="spawn", child_spawner=waiting), now=NOW)
    assert card is not None
    assert (card.state, card.headline) == (
        "starting",
        "Job 12: Waiting behind other jobs.",
    )


def test_slurms_silence_is_told() -> None:
    """What is on the card is what was last known."""
    silent = child(start_facts=lambda: StartFacts("12", silent=True))
    card = server_card(spawner(ready=True, placement=PLACED, child_spawner=silent), now=NOW)
    assert card is not None
    assert card.silent


OTHERS = {
    "a stock spawner that runs": (spawner(ready=True), ServerCard("", "My server", "running")),
    "a stock spawner that starts": (spawner(pending="spawn"), ServerCard("", "My server", "starting")),
    "one that stops": (
        spawner(pending="stop", child_spawner=child()),
        ServerCard("", "My server", "stopping", "Slurm ends its job and frees its GPUs. This takes some seconds."),
    ),
    "one that has ended": (
        spawner(ending=Ending("It reached its limit.", advice="Take more time.", log="/l", served=True)),
        ServerCard("", "My server", "ended", "It reached its limit.", "Take more time.", log=True),
    ),
    "a named one that has ended, of which only the database knows": (
        SimpleNamespace(
            name="lab", pending=None, ready=False, display_name="L", state={"ending": {"what": "Over.", "served": True}}
        ),
        ServerCard("lab", "Server L", "ended", "Over."),
    ),
    "one that was never started": (spawner(_spawn_future=None), None),
    "one that was stopped": (spawner(ending=None), None),
}


@pytest.mark.parametrize(("known", "card"), OTHERS.values(), ids=OTHERS.keys())
def test_other_servers(known: SimpleNamespace, card: ServerCard | None) -> None:
    """Every spawner has a card, unless there is nothing to tell."""
    assert server_card(known, now=NOW) == card


async def test_failed_starts() -> None:
    """A start of ours tells why; any other is told to have failed."""
    ours, theirs = (asyncio.get_running_loop().create_future() for _ in range(2))
    ours.set_exception(start_failed("Job 12 died.", detail="line"))
    theirs.set_exception(RuntimeError("secret"))
    cards = [server_card(spawner(_spawn_future=each), now=NOW) for each in (ours, theirs)]
    assert [(card.state, card.headline) for card in cards if card is not None] == [
        ("failed", "Job 12 died."),
        ("failed", "Its start failed."),
    ]


TIMES = {
    "2026-05-05T10:00:00+00:00": ("24 h 0 min", ""),
    "2026-05-04T10:15:01+00:00": ("15 min", ""),
    "2026-05-04T10:15:00+00:00": ("15 min", "It ends in 15 min. Save your work."),
    "2026-05-04T10:05:00+00:00": ("5 min", "It ends in 5 min! Save your work now."),
    "2026-05-04T10:00:20Z": ("less than a minute", "It ends in less than a minute! Save your work now."),
    "2026-05-04T09:59:00Z": ("no time", "Its time is over: Slurm ends it at any moment."),
}


@pytest.mark.parametrize(("ends_at", "told"), TIMES.items())
def test_time_left(ends_at: str, told: tuple[str, str]) -> None:
    """In words, with a warning from 15 minutes before the end, and another from 5."""
    left = time_left(ends_at, NOW)
    assert left is not None
    assert (left.words, left.warning) == told


@pytest.mark.parametrize("ends_at", [None, "", "tomorrow"])
def test_no_end_no_words(ends_at: str | None) -> None:
    """A server without a time limit, or with one that cannot be read, has no countdown."""
    assert time_left(ends_at, NOW) is None


def test_the_version_changes_with_what_is_told_and_not_with_the_time() -> None:
    """So that the page puts a new card only where there is news."""
    running = spawner(ready=True, placement=PLACED, child_spawner=child())
    cards = [
        server_card(running, now=NOW),
        server_card(running, now=NOW + 60),
        server_card(spawner(ready=True, placement=replace(PLACED, node="g2"), child_spawner=child()), now=NOW),
    ]
    first, later, elsewhere = (card.version for card in cards if card is not None)
    assert first == later != elsewhere
