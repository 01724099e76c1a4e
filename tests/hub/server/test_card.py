"""A server's card on the home page, whatever its state."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.job.cause import UNKNOWN, Cause, Kind, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import spawn_exception
from jupyterhub_gpuspawner.hub.server.card import (
    ServerCard,
    TimeLeft,
    server_card,
    server_cards,
    server_facts,
    time_left,
)
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.hub.words import SUSPENDED
from jupyterhub_gpuspawner.slurm.estimate import QueuePosition
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase, job_words
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=timezone.utc).timestamp()
PLACEMENT = PlacementDocument(job_id="12", node="g1", partition="gpu", ends_at="2026-05-04T10:10:30Z")
QUEUED = StartFacts("12", job=Job("12", Phase.QUEUED, reason="Priority"))
SECOND = replace(QUEUED, queue_position=QueuePosition(2, 3, "gpu", people=1, starts_at=NOW + 600))
RUNNING = Server(ready=True, job_id="12", placement=PLACEMENT, start=StartFacts("12"), can_show_log=True)
FOR_LATER = "Slurm does not answer at the moment. Your server is kept for later, and starts when Slurm is back."
STOPPING = "Slurm is ending the job and releasing its GPUs. This takes a few seconds."

STOPPED = Ending(Cause(Kind.STOPPED_BY_USER), at=NOW)
OF_MEMORY = Job("12", Phase.ENDED, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
TOOK_TOO_MUCH = Ending(Cause(Kind.MEMORY), at=NOW, job_id="12", job=OF_MEMORY, log="/l")
LAB = Server(name="lab", display_name="lab")
WAITING = Server(pending="spawn", job_id="12", job=QUEUED.job, start=QUEUED, profile="k80", profile_name="Two K80s")
CARDS = {
    "a running server has its profile, what it got, and how much time is left": (
        replace(RUNNING, name="lab", display_name="My <lab>", profile="k80", profile_name="Two K80s"),
        {
            "facts": server_facts(RUNNING),
            "left": TimeLeft(
                datetime(2026, 5, 4, 10, 10, 30, tzinfo=timezone.utc), "10 min", "It ends soon. Save your work."
            ),
        },
        ("Two K80s (server My <lab>)", "running"),
    ),
    "before its report": (replace(RUNNING, placement=None), {}, ("My server", "running")),
    "one that Slurm has suspended says why it does not answer, and no end, which moves on": (
        replace(RUNNING, job=Job("12", Phase.RUNNING, state="SUSPENDED", ends_at=NOW - 60)),
        {"headline": SUSPENDED, "facts": server_facts(RUNNING)},
        ("My server", "suspended by Slurm"),
    ),
    "one that waits in line says what the waiting page says": (
        WAITING,
        {
            "headline": f"Job 12: {job_words(Job('12', Phase.QUEUED, reason='Priority')).sentence}",
            "expected": "Slurm has no estimate yet.",
        },
        ("Two K80s", "waiting in line"),
    ),
    "one that waits in line has its place and its time": (
        replace(WAITING, start=SECOND),
        {
            "headline": "1 person ahead of you.",
            "expected": "Expected start: within 10 min, if nobody with a higher priority comes.",
        },
        ("Two K80s", "waiting in line"),
    ),
    "one for which everything was free starts": (
        Server(pending="spawn", job_id="12", job=QUEUED.job, settling=True, start=replace(SECOND, settling=True)),
        {"headline": "Job 12: What you chose is free: it starts in a moment."},
        ("My server", "starting"),
    ),
    "one that is kept until Slurm answers": (
        Server(pending="spawn", start=StartFacts(kept_until=NOW + 60)),
        {"headline": FOR_LATER},
        ("My server", "waiting for Slurm"),
    ),
    "another package's server that runs": (Server(ready=True), {}, ("My server", "running")),
    "another package's server that starts": (Server(pending="spawn"), {}, ("My server", "starting")),
    "one that stops": (replace(RUNNING, pending="stop"), {"headline": STOPPING}, ("My server", "stopping")),
    "one that has ended": (
        Server(ending=TOOK_TOO_MUCH),
        {
            "headline": "The job exceeded its memory limit.",
            "ended": "It ended at {time}.",
            "advice": "Start again with more memory if you can choose it, or work on less data at a time.",
        },
        ("My server", "ended"),
    ),
    "one that has ended, nobody knows when": (
        Server(ending=Ending(UNKNOWN)),
        {"headline": "The job has ended."},
        ("My server", "ended"),
    ),
    "one that had run says what it used": (
        replace(LAB, ending=replace(STOPPED, ran=1500, said="its GPU was busy", log="/home/ada/7.log")),
        {"ended": "Server lab was stopped at {time}."},
        ("Server lab", "not running"),
    ),
    "one that was stopped says so": (
        replace(LAB, ending=STOPPED),
        {"ended": "Server lab was stopped at {time}."},
        ("Server lab", "not running"),
    ),
    "a start of ours that failed says why": (
        Server(ending=Ending(start_failed("unreachable")), failure=RuntimeError("secret")),
        {
            "headline": "Your server was started, but the hub cannot reach it.",
            "advice": "Please contact the help desk.",
        },
        ("My server", "did not start"),
    ),
    "any other start that failed": (
        Server(failure=RuntimeError("secret")),
        {"headline": "The server failed to start."},
        ("My server", "did not start"),
    ),
    "any other start whose exception has words for the user": (
        Server(failure=spawn_exception("No seat left.", reason="full", status_code=503, html="", detail="line")),
        {"headline": "No seat left."},
        ("My server", "did not start"),
    ),
    "one that is not running": (LAB, {}, ("Server lab", "not running")),
}


@pytest.mark.parametrize(("server", "said", "heading"), CARDS.values(), ids=CARDS.keys())
def test_cards(server: Server, said: dict[str, Any], heading: tuple[str, str]) -> None:
    """Every server has a card, whatever its state and its spawner."""
    card = server_card(server, now=NOW, contact="the help desk")

    assert card == ServerCard(server, **said)
    assert (card.title, card.word) == heading


SILENT = StartFacts("12", silent=True, answered_at=NOW)
LAST_KNOWN = {
    "that runs": (Server(ready=True, start=SILENT), True),
    "that waits": (replace(WAITING, start=replace(QUEUED, silent=True)), True),
    "that stops": (Server(ready=True, pending="stop", start=SILENT), False),
    "that has ended": (Server(ending=TOOK_TOO_MUCH, start=SILENT), False),
}


@pytest.mark.parametrize(("server", "silent"), LAST_KNOWN.values(), ids=LAST_KNOWN.keys())
def test_while_slurm_is_silent_the_card_of_a_server_says_so(server: Server, silent: bool) -> None:
    """It shows what was last known."""
    assert server_card(server, now=NOW).silent == silent


DEFAULT = Server()
LISTS = {
    "nothing runs: the page says so in a sentence": ([DEFAULT], []),
    "a named server that does not run can be started": ([DEFAULT, LAB], ["lab"]),
    "beside a server that runs, the default one can be started": ([DEFAULT, replace(LAB, ready=True)], ["lab", ""]),
    "active servers come first": ([DEFAULT, LAB, replace(RUNNING, name="z")], ["z", "", "lab"]),
    "a default server that was stopped says so": ([replace(DEFAULT, ending=STOPPED)], [""]),
    "and one that failed": ([replace(DEFAULT, failure=RuntimeError())], [""]),
}


@pytest.mark.parametrize(("servers", "names"), LISTS.values(), ids=LISTS.keys())
def test_which_servers_have_a_card(servers: list[Server], names: list[str]) -> None:
    """All of them in this order, but for a default server about which there is nothing to say."""
    assert [card.name for card in server_cards(servers, now=NOW)] == names


PART = ServerPart("queue", Place.BESIDE, "queue_card.html", "shown", version=1, brief="2 ahead", document={"queue": 2})


def test_a_card_has_the_parts_of_extensions_that_are_shown_on_it() -> None:
    """In whatever state the server is; another card version shows what has changed."""
    silent = ServerPart("silent", document={"silent": True})
    cards = [
        server_card(replace(server, parts=(PART, silent)), now=NOW)
        for server in (RUNNING, Server(), replace(RUNNING, pending="stop"), Server(pending="spawn", start=QUEUED))
    ]
    changed = server_card(replace(RUNNING, parts=(replace(PART, version=2),)), now=NOW)

    assert [card.parts for card in cards] == [(PART,)] * 4
    assert len({cards[0].version, changed.version, server_card(RUNNING, now=NOW).version}) == 3


TIMES = {
    "2026-05-05T10:00:00+00:00": ("24 h", ""),
    "2026-05-04T10:15:01+00:00": ("15 min", ""),
    "2026-05-04T10:15:00+00:00": ("15 min", "It ends soon. Save your work."),
    "2026-05-04T10:05:00+00:00": ("5 min", "It ends in a few minutes. Save your work now."),
    "2026-05-04T10:00:20Z": ("less than a minute", "It ends in a few minutes. Save your work now."),
    "2026-05-04T09:59:00Z": ("no time", "Time is up: Slurm may end the server at any moment."),
}


@pytest.mark.parametrize(("ends_at", "texts"), TIMES.items())
def test_time_left(ends_at: str, texts: tuple[str, str]) -> None:
    """In words, with a warning from 15 minutes before the end, and another from 5."""
    left = time_left(ends_at, NOW)
    assert left is not None
    assert (left.words, left.warning) == texts


@pytest.mark.parametrize("ends_at", [None, "", "tomorrow"])
def test_no_end_no_words(ends_at: str | None) -> None:
    """A server without a time limit, or with one that cannot be read, has no countdown."""
    assert time_left(ends_at, NOW) is None


def test_the_version_changes_with_what_is_told_and_not_with_the_time() -> None:
    """The page replaces a card only when its version has changed."""
    elsewhere = replace(RUNNING, placement=replace(PLACEMENT, node="g2"))
    cards = [server_card(RUNNING, now=NOW), server_card(RUNNING, now=NOW + 60), server_card(elsewhere, now=NOW)]
    first, later, other = (card.version for card in cards)
    assert first == later != other


STATES = {
    "pending": (Server(pending="spawn", job=QUEUED.job), "waiting"),
    "pending in Slurm's last answer, while its node has reported": (
        Server(pending="spawn", job=QUEUED.job, placement=PLACEMENT),
        "starting",
    ),
    "pending only until Slurm has taken it up": (Server(pending="spawn", job=QUEUED.job, settling=True), "starting"),
    "stopping while its job is pending": (Server(pending="stop", job=QUEUED.job), "stopping"),
    "stopped by a person in the middle of its start": (
        Server(failure=RuntimeError(), ending=STOPPED),
        "stopped",
    ),
}


@pytest.mark.parametrize(("server", "state"), STATES.values(), ids=STATES)
def test_a_server_is_in_one_state(server: Server, state: str) -> None:
    """The state that card, course and stop page read."""
    assert (server.state.value, server_card(server, now=NOW).state) == (state, state)


@pytest.mark.parametrize(("cause", "mark"), [(Kind.TIME_LIMIT, "over"), (Kind.MEMORY, "ended")])
def test_at_its_time_limit_a_server_has_no_mark_of_a_fault(cause: Kind, mark: str) -> None:
    """It says that it has ended, as does any other that did."""
    card = server_card(Server(ending=replace(TOOK_TOO_MUCH, cause=Cause(cause))), now=NOW)

    assert (card.word, card.mark) == ("ended", mark)
