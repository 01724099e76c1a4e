"""What a user reads while a server starts: each stage with its time, why the job is pending, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.start.progress import StartFacts, document, event, stages
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument

NOON = 1_800_000_000.0
QUEUED = Job("7", Phase.QUEUED, "PENDING", "Priority", partition="gpu")
RUNNING = Job("7", Phase.RUNNING, "RUNNING", nodes="g1", batch_host="g1", partition="gpu", starts_at=NOON + 60)
PLACED = PlacementDocument(node="g1", gpus=(PlacedGpu(0, name="Tesla K80"), PlacedGpu(1, name="Tesla K80")), cpus="0-7")
REACHED = {"submitted": NOON, "queued": NOON + 1}
TOLD: dict[str, tuple[StartFacts, int, str]] = {
    "nothing is known": (StartFacts(), 5, "Submitting the job to Slurm."),
    "there is a job": (StartFacts("7"), 10, "Submitted as job 7."),
    "it waits": (StartFacts("7", job=QUEUED), 20, "Job 7: Jobs with a higher priority start first."),
    "Slurm is silent": (
        StartFacts("7", job=QUEUED, silent=True),
        20,
        "Job 7: Slurm is not responding at the moment. Your server is not affected.",
    ),
    "Slurm is silent and the job runs": (
        StartFacts("7", job=RUNNING, silent=True),
        60,
        "Job 7: Slurm is not responding at the moment. Your server is not affected.",
    ),
    "it runs": (StartFacts("7", job=RUNNING), 60, "Job 7: The job is running on g1."),
    "it has reported": (
        StartFacts("7", job=RUNNING, placement=PLACED),
        85,
        "Job 7: running on g1, 2 \N{MULTIPLICATION SIGN} Tesla K80, CPUs 0-7. The server is starting.",
    ),
    "it runs on three nodes": (
        StartFacts("7", job=RUNNING, placement=replace(PLACED, other_nodes=(NodeGrant("g2"), NodeGrant("g3")))),
        85,
        "Job 7: running on g1, 2 \N{MULTIPLICATION SIGN} Tesla K80, CPUs 0-7, and on 2 more nodes. "
        "The server is starting.",
    ),
}


@pytest.mark.parametrize(("known", "percent", "sentence"), TOLD.values(), ids=TOLD.keys())
def test_what_is_known_becomes_one_sentence(known: StartFacts, percent: int, sentence: str) -> None:
    """With a percentage that only grows, and the facts for the page."""
    assert event(known, now=NOON) == {
        "progress": percent,
        "message": sentence,
        "gpuspawner": document(known, now=NOON),
    }


STAGES: dict[str, tuple[StartFacts, str, list[float | None]]] = {
    "sbatch has not answered": (StartFacts(reached={"submitted": NOON}), "submitted", [NOON]),
    "it waits": (StartFacts("7", REACHED, QUEUED), "queued", [NOON, NOON + 1]),
    "it was put back": (
        StartFacts("7", REACHED, Job("7", Phase.QUEUED, "REQUEUED", starts_at=NOON + 900)),
        "queued",
        [NOON, NOON + 1],
    ),
    "a node is prepared": (
        StartFacts("7", REACHED, Job("7", Phase.STARTING, "CONFIGURING", starts_at=NOON + 60)),
        "allocated",
        [NOON, NOON + 1, NOON + 60],
    ),
    "it runs": (StartFacts("7", REACHED, RUNNING), "allocated", [NOON, NOON + 1, NOON + 60]),
    "it has reported, and the hub compares": (
        StartFacts("7", {**REACHED, "starting": NOON + 62}, RUNNING),
        "starting",
        [NOON, NOON + 1, NOON + 60, NOON + 62],
    ),
    "the state is of a version that stored no times": (
        StartFacts("7", {}, RUNNING, PLACED),
        "starting",
        [None, None, NOON + 60, None],
    ),
}


@pytest.mark.parametrize(("known", "current", "times"), STAGES.values(), ids=STAGES.keys())
def test_each_stage_has_its_time(known: StartFacts, current: str, times: list[float | None]) -> None:
    """Earlier stages are done, one is current, and later ones have no time."""
    names = list(words.STAGES)
    now = names.index(current)

    assert [(each.name, each.state, each.at) for each in stages(known)] == [
        (name, "done" if n < now else "current" if n == now else "coming", (times + [None] * 5)[n])
        for n, name in enumerate(names)
    ]


TOOK = {
    "it waits": (StartFacts("7", REACHED, QUEUED), [1, None, None, None, None]),
    "it has reported": (
        StartFacts("7", {**REACHED, "starting": NOON + 62}, RUNNING, PLACED),
        [1, 59, 2, None, None],
    ),
    "a node's clock is behind": (StartFacts("7", {**REACHED, "queued": NOON + 90}, RUNNING), [90, 0, None, None, None]),
    "without times": (StartFacts("7", {}, RUNNING), [None, None, None, None, None]),
}


@pytest.mark.parametrize(("known", "took"), TOOK.values(), ids=TOOK.keys())
def test_how_long_each_stage_took(known: StartFacts, took: list[int | None]) -> None:
    """In seconds, for the stages that are done."""
    assert [each.took for each in stages(known)] == took


HEADLINES = {
    "sbatch has not answered": (StartFacts(), "Starting", "Submitting the job to Slurm."),
    "Slurm has not": (StartFacts("7"), "Starting", "Submitted as job 7."),
    "Slurm has only just accepted it": (
        StartFacts("7", job=Job("7", Phase.QUEUED, "PENDING", "None")),
        "Starting",
        "Slurm has accepted the job and will consider it shortly.",
    ),
    "it waits": (StartFacts("7", job=QUEUED), "Waiting in line", "Jobs with a higher priority start first."),
    "it waits, and Slurm is silent": (
        StartFacts("7", job=QUEUED, silent=True),
        "Waiting in line",
        "Jobs with a higher priority start first.",
    ),
    "it runs": (StartFacts("7", job=RUNNING), "Starting", "The job is running on g1."),
    "it has reported before squeue tells": (
        StartFacts("7", job=QUEUED, placement=PLACED),
        "Starting",
        "Running on g1, 2 \N{MULTIPLICATION SIGN} Tesla K80, CPUs 0-7. The server is starting.",
    ),
}


@pytest.mark.parametrize(("known", "headline", "sentence"), HEADLINES.values(), ids=HEADLINES.keys())
def test_the_headline_says_the_stage(known: StartFacts, headline: str, sentence: str) -> None:
    """And the sentence below it does not repeat the job's id, which the page has on its own line."""
    told = document(known, now=NOON)

    assert (told["headline"], told["sentence"]) == (headline, sentence)


def waiting(reason: str, starts_at: float | None = None, **more: Any) -> dict[str, Any]:
    """The document of a pending job, without its stages."""
    job = Job("7", Phase.QUEUED, "PENDING", reason, partition="gpu", starts_at=starts_at)
    told = document(StartFacts("7", REACHED, job, **more), now=NOON)
    assert [stage["name"] for stage in told.pop("stages")] == list(words.STAGES)
    assert told.pop("sentence") == told["reason"]
    return told


PLAIN = {
    "headline": "Waiting in line",
    "job": "7, partition gpu",
    "job_id": "7",
    "partition": "gpu",
    "reason": "Jobs with a higher priority start first.",
    "hint": "It starts automatically; you only have to wait. "
    "A smaller choice (fewer GPUs, cores, less memory or time) may start sooner.",
    "position": None,
    "of": None,
    "place": "",
    "starts_at": None,
    "sure": "",
    "estimate": "Slurm has no estimate yet.",
    "kept": "We keep your place in line until you stop this server.",
    "kept_until": None,
    "silent": False,
    "answered_at": None,
    "answered": "",
}


def test_a_page_is_told_why_and_what_to_do() -> None:
    """Without an estimate, it says so."""
    assert waiting("Priority", answered_at=NOON) == PLAIN


@pytest.mark.parametrize(
    ("reason", "starts_at", "estimate", "sure"),
    [
        ("Priority", NOON + 600, words.AT_THE_LATEST, "at the latest"),
        ("Priority", NOON - 600, words.OVERDUE, "at the latest"),
        ("Reservation", NOON + 600, words.NOT_BEFORE, "not before"),
        ("BeginTime", NOON + 600, words.NOT_BEFORE, "not before"),
        ("Resources", None, words.NO_ESTIMATE, ""),
    ],
)
def test_how_sure_an_expected_start_is(reason: str, starts_at: float | None, estimate: str, sure: str) -> None:
    """Slurm's estimate is a latest time, the begin of a reservation an earliest one; a time in the past is overdue."""
    told = waiting(reason, starts_at)

    assert (told["estimate"], told["sure"], told["starts_at"] is None) == (estimate, sure, starts_at is None)


def test_how_long_a_place_is_kept() -> None:
    """Until the limit of the queue; nothing is kept for a job that has its node."""
    limited = waiting("Priority", queued_until=NOON + 3600)
    started = document(StartFacts("7", REACHED, RUNNING, queued_until=NOON + 3600), now=NOON)

    assert (limited["kept"], limited["kept_until"]) == (words.IN_LINE_UNTIL, "2027-01-15T09:00:00+00:00")
    assert (started["kept"], started["kept_until"]) == ("", None)


def test_a_silent_slurm_is_told_with_the_age_of_what_is_known() -> None:
    """What was known stays, with the time of the last answer."""
    assert waiting("Priority", silent=True, answered_at=NOON) == {
        **PLAIN,
        "silent": True,
        "answered_at": "2027-01-15T08:00:00+00:00",
        "answered": "Slurm is not responding at the moment. This is as of {time}. Your server is not affected.",
    }
    assert waiting("Priority", silent=True)["answered"] == words.NO_ANSWER_YET


@pytest.mark.parametrize(
    ("people", "text"), [(0, "You are next"), (1, "1 person ahead of you"), (3, "3 people ahead of you")]
)
def test_a_place_in_the_queue_is_told_in_people(people: int, text: str) -> None:
    """Those who are ahead."""
    assert words.people_ahead(people) == text


@pytest.mark.parametrize(
    ("matching", "text"), [("GPUs", "All matching GPUs are in use."), ("CPUs", "All matching CPUs are in use.")]
)
def test_what_is_waited_for_is_named(matching: str, text: str) -> None:
    """GPUs for a profile with GPUs."""
    job = Job("7", Phase.QUEUED, reason="Resources")

    assert document(StartFacts("7", REACHED, job, matching=matching), now=NOON)["reason"] == text


def test_how_long_the_current_stage_has_lasted() -> None:
    """From the time that the document has; nothing below a second, also where the clocks differ."""
    since = document(StartFacts("7", REACHED, QUEUED), now=NOON)["stages"][1]["at"]

    assert [words.lasts(since, now=NOON + 1 + later) for later in (-5, 0, 1, 720)] == ["", "", "for 1 s", "for 12 min"]


@pytest.mark.parametrize(("seconds", "text"), [(0, ""), (None, ""), (6, "took 6 s"), (720, "took 12 min")])
def test_how_long_a_stage_took_in_words(seconds: int | None, text: str) -> None:
    """A stage that took no time, or an unknown one, has no words."""
    assert words.took(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(60, "1 min"), (3600, "1 h"), (5400, "1 h 30 min"), (86400, "24 h")])
def test_spans(seconds: int, text: str) -> None:
    """To the minute."""
    assert words.span(seconds) == text
