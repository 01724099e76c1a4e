"""What a user reads while a server starts: each stage with its time, why the job is pending, and what to do."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.job.cause import Stage
from jupyterhub_gpuspawner.hub.start import progress
from jupyterhub_gpuspawner.hub.start.attempt import Attempt
from jupyterhub_gpuspawner.hub.start.progress import StartFacts, document, event, events, stages, start_facts
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, QueuePosition, as_planned, expected
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.reason import OutOfService
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument

NOON = 1_800_000_000.0
QUEUED = Job("7", Phase.QUEUED, "PENDING", "Priority", partition="gpu")
RUNNING = Job("7", Phase.RUNNING, "RUNNING", nodes="g1", batch_host="g1", partition="gpu", starts_at=NOON + 60)
PLACEMENT = PlacementDocument(
    node="g1", gpus=(PlacedGpu(0, name="Tesla K80"), PlacedGpu(1, name="Tesla K80")), cpus="0-7"
)
REACHED = {Stage.SUBMITTED: NOON, Stage.QUEUED: NOON + 1}
REPORTED = {**REACHED, Stage.STARTING: NOON + 62}
LINE, WAITING, STARTING = "Jobs with a higher priority start first.", "Waiting in line", "Starting"
SILENT = "Slurm is not responding at the moment. Your server is not affected."
ON_G1 = "unning on g1, 2 \N{MULTIPLICATION SIGN} K80, 12 GB, CPUs 0-7"
SENTENCES: dict[str, tuple[StartFacts, int, str, str, str]] = {
    "nothing is known": (StartFacts(), 5, "Submitting the job to Slurm.", STARTING, "Submitting the job to Slurm."),
    "the hub keeps it until Slurm answers": (
        StartFacts(kept_until=NOON),
        5,
        words.FOR_LATER,
        "Waiting for Slurm",
        words.FOR_LATER,
    ),
    "there is a job": (StartFacts("7"), 10, "Submitted as job 7.", STARTING, "Submitted as job 7."),
    "Slurm has only just accepted it": (
        StartFacts("7", job=Job("7", Phase.QUEUED, "PENDING", "None")),
        20,
        "Job 7: Slurm has accepted the job and will consider it shortly.",
        STARTING,
        "Slurm has accepted the job and will consider it shortly.",
    ),
    "it waits": (StartFacts("7", job=QUEUED), 20, f"Job 7: {LINE}", WAITING, LINE),
    "Slurm is silent": (StartFacts("7", job=QUEUED, silent=True), 20, f"Job 7: {SILENT}", WAITING, LINE),
    "Slurm is silent and the job runs": (
        StartFacts("7", job=RUNNING, silent=True),
        60,
        f"Job 7: {SILENT}",
        STARTING,
        "The job is running on g1.",
    ),
    "it runs": (
        StartFacts("7", job=RUNNING),
        60,
        "Job 7: The job is running on g1.",
        STARTING,
        "The job is running on g1.",
    ),
    "it has reported before squeue tells": (
        StartFacts("7", job=QUEUED, placement=PLACEMENT),
        85,
        f"Job 7: r{ON_G1}. The server is starting.",
        STARTING,
        f"R{ON_G1}. The server is starting.",
    ),
    "there is no way to it": (
        StartFacts("7", job=RUNNING, placement=PLACEMENT, missing="The hub has no connection to the node."),
        85,
        f"Job 7: r{ON_G1}. The hub has no connection to the node.",
        STARTING,
        f"R{ON_G1}. The hub has no connection to the node.",
    ),
    "it runs, and cannot report": (
        StartFacts("7", job=RUNNING, missing="The hub has no connection to the node."),
        60,
        "Job 7: The job is running on g1. The hub has no connection to the node.",
        STARTING,
        "The job is running on g1. The hub has no connection to the node.",
    ),
    "it waits, and could not report now": (
        StartFacts("7", job=QUEUED, missing="The hub has no connection to the node."),
        20,
        f"Job 7: {LINE}",
        WAITING,
        LINE,
    ),
    "it runs on three nodes": (
        StartFacts("7", job=RUNNING, placement=replace(PLACEMENT, other_nodes=(NodeGrant("g2"), NodeGrant("g3")))),
        85,
        f"Job 7: r{ON_G1}, and on 2 more nodes. The server is starting.",
        STARTING,
        f"R{ON_G1}, and on 2 more nodes. The server is starting.",
    ),
}


@pytest.mark.parametrize(("facts", "percent", "message", "headline", "text"), SENTENCES.values(), ids=SENTENCES.keys())
def test_what_is_known_becomes_one_sentence(
    facts: StartFacts, percent: int, message: str, headline: str, text: str
) -> None:
    """With a percentage that only grows. The page's sentence does not repeat the job's id, which is on its own line."""
    page = document(facts, now=NOON)

    assert event(facts, now=NOON) == {"progress": percent, "message": message, "gpuspawner": page}
    assert (page["headline"], page["sentence"]) == (headline, text)


STAGES: dict[str, tuple[StartFacts, list[float | None], list[int]]] = {
    "sbatch has not answered": (StartFacts(reached={Stage.SUBMITTED: NOON}), [NOON], []),
    "it waits": (StartFacts("7", REACHED, QUEUED), [NOON, NOON + 1], [1]),
    "it was put back": (
        StartFacts("7", REACHED, Job("7", Phase.QUEUED, "REQUEUED", starts_at=NOON + 900)),
        [NOON, NOON + 1],
        [1],
    ),
    "a node is prepared": (
        StartFacts("7", REACHED, Job("7", Phase.STARTING, "CONFIGURING", starts_at=NOON + 60)),
        [NOON, NOON + 1, NOON + 60],
        [1, 59],
    ),
    "it has reported": (StartFacts("7", REPORTED, RUNNING), [NOON, NOON + 1, NOON + 60, NOON + 62], [1, 59, 2]),
    "Slurm's clock is behind": (
        StartFacts("7", {**REACHED, Stage.QUEUED: NOON + 90}, RUNNING),
        [NOON, NOON + 90, NOON + 60],
        [90, 0],
    ),
    "the state is of a version that stored no times": (
        StartFacts("7", {}, RUNNING, PLACEMENT),
        [None, None, NOON + 60, None],
        [],
    ),
}


@pytest.mark.parametrize(("facts", "times", "took"), STAGES.values(), ids=STAGES.keys())
def test_each_stage_has_its_time(facts: StartFacts, times: list[float | None], took: list[int]) -> None:
    """Earlier stages are done, with how long they took; one is current, and later ones have no time."""
    now = len(times) - 1

    assert [(stage.name, stage.state, stage.at) for stage in stages(facts)] == [
        (name, "done" if n < now else "current" if n == now else "coming", (times + [None] * 5)[n])
        for n, name in enumerate(words.STAGES)
    ]
    assert [stage.took for stage in stages(facts) if stage.took is not None] == took


def test_in_a_hub_of_several_clusters_the_job_has_its_cluster() -> None:
    """The same number exists on each."""
    facts = StartFacts("7", job=QUEUED, cluster="cedar")

    assert document(facts, now=NOON)["job"] == "7, partition gpu, cluster cedar"


def test_a_node_that_is_powered_on_is_said_to_be() -> None:
    """With the time that Slurm allows it."""
    job = Job("7", Phase.STARTING, "CONFIGURING", nodes="g1", batch_host="g1")
    page = document(StartFacts("7", job=job, boot_seconds=600), now=NOON)

    assert page["sentence"] == "Slurm is powering on node g1 for your server. That may take up to 10 min."


async def test_a_stream_has_one_event_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """News without a change are none; after a while the same is sent again, without its message."""
    facts, watch = [StartFacts("7")], SimpleNamespace(changed=asyncio.Event())

    async def refresh() -> None:
        watch.changed = asyncio.Event()

    def news(start_facts: StartFacts) -> None:
        facts[0] = start_facts
        watch.changed.set()

    stream = events(lambda: facts[0], watch, refresh)  # type: ignore[arg-type]
    messages = [(await anext(stream)).get("message")]
    coming = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    news(StartFacts("7"))
    await asyncio.sleep(0.01)
    same = coming.done()
    news(StartFacts("7", job=QUEUED))
    messages.append((await coming).get("message"))
    monkeypatch.setattr(progress, "_REPEAT", 0.0)
    messages.append((await anext(stream)).get("message"))

    assert (same, messages) == (False, ["Submitted as job 7.", f"Job 7: {LINE}", None])


def waiting(reason: str, starts_at: float | None = None, **more: Any) -> dict[str, Any]:
    """The document of a pending job, without its stages."""
    job = Job("7", Phase.QUEUED, "PENDING", reason, partition="gpu", starts_at=starts_at)
    page = document(StartFacts("7", REACHED, job, **more), now=NOON)
    assert [stage["name"] for stage in page.pop("stages")] == list(words.STAGES)
    assert (page.pop("sentence") or page["why"]) == page["reason"]
    return page


QUEUE_NOTE = "We keep your place in line until you stop this server."
PLAIN = {
    "headline": WAITING,
    "job": "7, partition gpu",
    "job_id": "7",
    "partition": "gpu",
    "reason": LINE,
    "why": "",
    "hint": "",
    "position": None,
    "of": None,
    "place": "",
    "estimate": UNKNOWN.document(NOON),
    "bar": None,
    "expected": "Slurm has no estimate yet.",
    "when": "Slurm has no estimate yet",
    "change": "",
    "kept": QUEUE_NOTE,
    "kept_until": None,
    "notes": [
        {"name": "kept", "text": QUEUE_NOTE, "at": None},
    ],
    "silent": False,
    "answered_at": None,
    "answered": "",
}


def test_a_page_is_told_why_and_what_to_do() -> None:
    """What was known stays while Slurm is silent, with the time of the last answer."""
    answered = "Slurm is not responding at the moment. This is as of {time}. Your server is not affected."
    noon = "2027-01-15T08:00:00+00:00"

    assert waiting("Priority", answered_at=NOON) == PLAIN
    silent = {**PLAIN, "silent": True, "answered_at": noon, "answered": answered}
    assert waiting("Priority", silent=True, answered_at=NOON) == silent
    assert waiting("Priority", silent=True)["answered"] == words.NO_ANSWER_YET


def test_a_start_that_is_kept_says_until_when() -> None:
    """There is no job yet, so nothing else is said of one, and no stage says that one was submitted."""
    page = document(StartFacts(kept_until=NOON), now=NOON)

    note = {"name": "kept", "text": words.FOR_LATER_UNTIL, "at": "2027-01-15T08:00:00+00:00"}
    assert (page["job"], page["silent"], page["notes"]) == ("", False, [note])
    assert [(stage["name"], stage["title"], stage["state"]) for stage in page["stages"][:2]] == [
        ("submitted", "Waiting for Slurm", "current"),
        ("queued", "In line", "coming"),
    ]


UNLESS = "That holds if nobody with a higher priority comes."


@pytest.mark.parametrize(
    ("reason", "starts_at", "when", "unless", "kind"),
    [
        (
            "Priority",
            NOON + 600,
            "Expected start: within 10 min",
            ", if nobody with a higher priority comes",
            "expected",
        ),
        ("Priority", NOON - 600, "Expected start: soon (it was expected 10 min ago)", "", "expected"),
        ("Reservation", NOON + 600, "Expected start: in 10 min at the earliest", "", "not before"),
        ("BeginTime", NOON + 600, "Expected start: in 10 min at the earliest", "", "not before"),
        ("Resources", None, "Slurm has no estimate yet", "", "unknown"),
        ("BadConstraints", NOON + 600, "", "", "unknown"),
    ],
)
def test_an_expected_start_has_a_kind(reason: str, starts_at: float | None, when: str, unless: str, kind: str) -> None:
    """Slurm's plan is a latest time, the begin of a reservation an earliest one; a time in the past is overdue.

    The home page says it in one sentence; on the waiting page, in large letters, its condition is one of the notes.
    """
    page = waiting(reason, starts_at)
    notes = [note["text"] for note in page["notes"] if note["name"] == "unless"]

    assert (page["when"], page["estimate"]["kind"]) == (when, kind)
    assert (page["expected"], notes) == (f"{when}{unless}." if when else "", [UNLESS] if unless else [])


def test_a_wait_is_drawn_with_what_is_past_of_it_and_the_latest_start() -> None:
    """As wide as the time since it was asked for to the latest start, and room for words; none once that has passed."""
    asked = {Stage.SUBMITTED: NOON - 600}
    job = Job("7", Phase.QUEUED, "PENDING", "Priority", starts_at=NOON + 600)
    bar = document(StartFacts("7", asked, job), now=NOON)["bar"]

    assert bar == {"past": 38, "start": 38, "end": 77, "latest": "2027-01-15T08:10:00+00:00"}
    assert document(StartFacts("7", asked, job), now=NOON + 700)["bar"] is None


def test_a_change_of_the_expected_start_is_explained() -> None:
    """While the job is pending."""
    change = "Later than before: node g3 went out of service."

    assert waiting("Priority", NOON + 600, change=change)["change"] == change
    assert document(StartFacts("7", REACHED, RUNNING, change=change), now=NOON)["change"] == ""


def test_nodes_that_a_job_waits_for_are_named() -> None:
    """With why they are out of service; what the job waits for otherwise is told as before."""
    clause = "g[1-2] (maint, since 28 Nov 2026, 22:38 UTC, by root) are out of service"
    some, every = OutOfService(clause), OutOfService(clause, all=True)
    reason = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    second = QueuePosition(2, 3, "gpu", 1)
    behind = document(StartFacts("7", REACHED, QUEUED, queue_position=second, out=every), now=NOON)

    assert waiting(reason, out=every)["reason"] == f"Waiting: {clause}."
    assert waiting(reason, out=some)["reason"] == f"{waiting(reason)['reason']} {clause}."
    assert (behind["sentence"], behind["why"]) == (f"Waiting: {clause}.", "")


def test_time_and_cause_of_a_change_are_told_together() -> None:
    """Whoever looks first after a new view of the queue: extensions know of the estimate before they give its cause."""
    told: list[Any] = []
    extensions: Any = SimpleNamespace(
        first=lambda of: f"because of {told[-1]}" if of is WithServer.change else None,
        each=lambda _of, estimate, _partition, *, now: told.append(estimate.planned),  # noqa: ARG005
    )
    watch: Any = SimpleNamespace(
        status=replace(QUEUED, reason="Resources", starts_at=NOON + 600),
        job_id="7",
        silent=False,
        boot_seconds=lambda: None,
        out_of_service=OutOfService,
        spawner=SimpleNamespace(
            cluster="", contact="", connection=lambda: SimpleNamespace(watcher=SimpleNamespace(last_answer=None))
        ),
    )
    facts = [start_facts(Attempt(), watch, None, None, as_planned, extensions)]
    watch.status = replace(watch.status, starts_at=NOON + 60)
    facts.append(start_facts(Attempt(), watch, None, None, as_planned, extensions))

    assert [facts.change for facts in facts] == [f"because of {NOON + 600}", f"because of {NOON + 60}"]
    assert [facts.estimate(NOON).planned for facts in facts] == [NOON + 600, NOON + 60]


def test_how_long_a_place_is_kept() -> None:
    """Until the limit of the queue; nothing is kept for a job that has its node."""
    limited = waiting("Priority", queued_until=NOON + 3600)
    started = document(StartFacts("7", REACHED, RUNNING, queued_until=NOON + 3600), now=NOON)

    until = "We keep your place in line until {time}."

    assert (limited["kept"], limited["kept_until"]) == (until, "2027-01-15T09:00:00+00:00")
    assert limited["notes"][0] == {"name": "kept", "text": until, "at": "2027-01-15T09:00:00+00:00"}
    assert (started["kept"], started["kept_until"], started["notes"]) == ("", None, [])


def test_until_slurm_has_a_plan_the_page_says_what_the_form_said() -> None:
    """Not of a job that does not start by itself, nor once that time has passed."""
    at_click = expected(NOON + 3600, now=NOON)
    overdue = document(StartFacts("7", REACHED, QUEUED, at_click=at_click), now=NOON + 3601)

    assert waiting("Priority", at_click=at_click)["when"] == "Expected start: within 1 h"
    assert waiting("Priority", NOON + 600, at_click=at_click)["when"] == "Expected start: within 10 min"
    assert waiting("JobHeldUser", at_click=at_click)["when"] == ""
    assert overdue["when"] == "Slurm has no estimate yet"


NEXT = QueuePosition(1, 3, "gpu")


def test_in_line_the_place_and_the_time_say_it() -> None:
    """The usual reasons are for those who want to know why; any other stands on the page."""
    usual, limit = waiting("Priority", queue_position=NEXT), waiting("QOSMaxGRESPerUser", queue_position=NEXT)

    assert (usual["place"], usual["why"]) == ("You are next", LINE)
    assert (limit["place"], limit["why"]) == ("You are next", "")


def test_a_held_job_has_no_place_in_the_line() -> None:
    """Whatever the last view of the queue says: it is not next, and its place is not kept."""
    held = waiting("JobHeldUser", NOON + 600, queue_position=NEXT)

    assert (held["place"], held["position"], held["when"], held["kept"]) == ("", None, "", "")


def test_what_was_free_does_not_wait_in_line_at_once() -> None:
    """While Slurm takes up a job for which everything is free, it says "Priority", and has no estimate yet."""
    page = document(StartFacts("7", REACHED, QUEUED, queue_position=NEXT, settling=True), now=NOON)

    assert (page["headline"], page["sentence"]) == (STARTING, "What you chose is free: it starts in a moment.")
    assert (page["place"], page["when"], page["notes"]) == ("", "", [])


@pytest.mark.parametrize("matching", ["GPUs", "CPUs"])
def test_what_is_waited_for_is_named(matching: str) -> None:
    """GPUs for a profile with GPUs."""
    job = Job("7", Phase.QUEUED, reason="Resources")
    page = document(StartFacts("7", REACHED, job, matching=matching), now=NOON)

    assert page["reason"] == f"All matching {matching} are in use."


def test_times_and_people_in_words() -> None:
    """To the minute; nothing below a second, also where the clocks differ."""
    since = document(StartFacts("7", REACHED, QUEUED), now=NOON)["stages"][1]["at"]

    assert [words.lasts(since, now=NOON + 1 + later) for later in (-5, 0, 1, 720)] == ["", "", "for 1 s", "for 12 min"]
    assert [words.took(seconds) for seconds in (0, None, 6, 720)] == ["", "", "took 6 s", "took 12 min"]
    assert [words.people_ahead(*position) for position in ((0, 1), (0, 2), (1, 2), (3, 9))] == [
        "You are next",
        "Your own job is ahead",
        "1 person ahead of you",
        "3 people ahead of you",
    ]


@pytest.mark.parametrize("facts", [row[0] for row in SENTENCES.values()], ids=SENTENCES)
@pytest.mark.parametrize("silent", [False, True])
def test_nobody_else_is_told_of_their_server(facts: StartFacts, silent: bool) -> None:
    """An administrator reads of the server, and of its user; nothing speaks to them as to its user."""
    position = QueuePosition(2, 3, "gpu", 1)
    asked = replace(facts, silent=silent, queue_position=position, answered_at=NOON, contact="your administrator")
    change = replace(asked, change="Later than before: 1 person ahead of you left the line.")
    told = json.dumps(
        [event(facts, now=NOON, own=False) for facts in (asked, change, replace(asked, queued_until=NOON))]
    )

    assert re.findall(r"\b[Yy]ou(?:rs?)?\b[^.]*", told) == []


def test_a_sentence_for_somebody_else_stands_in_the_place_of_one() -> None:
    """None is left over when the user's own sentence is renamed or goes."""
    assert vars(words.words_for(own=False)).keys() == vars(words.words_for(own=True)).keys()
