"""A job asks the hub whether it runs the server, and waits for the answer, for a limited time."""

from __future__ import annotations

import json

import pytest

from jupyterhub_gpuspawner.hub.report.server_report import parse_turn
from jupyterhub_gpuspawner.node import turn
from jupyterhub_gpuspawner.wire.documents import ASKS_TURN, TurnQuestion
from tests.standins.report_hub import ReportHub


def ask(*answers: int, asks: bool = True) -> tuple[object, ReportHub]:
    """How a job ends that gets these answers in turn, or None where it goes on; and the hub that it has asked."""
    with ReportHub(*answers) as hub:
        environ = {**hub.environ, "SLURM_JOB_ID": "8", **({ASKS_TURN: "1"} if asks else {})}
        try:
            turn.wait_for_turn(environ, sleep=lambda _: None)
        except SystemExit as end:
            assert ASKS_TURN in environ
            return end.code, hub
        assert ASKS_TURN not in environ
    return None, hub


@pytest.mark.parametrize(
    ("answers", "end"),
    [
        ((204,), None),
        ((409,), 0),
        ((503, 503, 204), None),
        ((429, 403, 401, 500, 404, 204), None),
        ((503, 409), 0),
    ],
)
def test_only_a_decision_ends_the_wait(answers: tuple[int, ...], end: object) -> None:
    """204 is the job's turn, 409 another's; anything else is none, and the job asks again."""
    ended, hub = ask(*answers)

    assert ended == end
    assert len(hub.requests) == len(answers)
    assert {request.path for request in hub.requests} == {"/hub/api/gpuspawner/turn"}
    assert parse_turn(hub.requests[0].body) == TurnQuestion("8")


def test_a_job_without_a_decision_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds its GPUs until then; its exit code is not that of a server."""
    monkeypatch.setattr(turn, "PATIENCE", 0.2)

    assert ask(*[503] * 1000)[0] == turn.NO_ANSWER


def test_a_job_without_a_hub_waits_and_ends(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It never runs the server unasked."""
    monkeypatch.setattr(turn, "PATIENCE", 0.2)

    with pytest.raises(SystemExit) as end:
        turn.wait_for_turn({ASKS_TURN: "1", "SLURM_JOB_ID": "8"}, sleep=lambda _: None)

    assert end.value.code == turn.NO_ANSWER
    assert "The hub has not said within 0.2 s whether this job runs the server" in capfd.readouterr().err


def test_a_job_without_another_one_does_not_ask() -> None:
    """Its start takes no longer."""
    ended, hub = ask(asks=False)

    assert (ended, hub.requests) == (None, [])


def test_a_question_names_the_job() -> None:
    """By Slurm's number."""
    _, hub = ask()

    assert json.loads(hub.requests[0].body) == {"version": 1, "job_id": "8"}
