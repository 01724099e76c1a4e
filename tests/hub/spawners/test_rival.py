"""What a job is told that asks whether it runs the server, and that this is stored first."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.hub.report.server_report import ReportTooEarly
from jupyterhub_gpuspawner.hub.start.rival import Contest
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import TurnQuestion
from tests.standins.hub_spawner import HubSpawner

OWN, ANOTHER = TurnQuestion("7"), TurnQuestion("8")


@pytest.fixture
def spawner() -> HubSpawner:
    """Of a server whose job waits, and asks."""
    of = HubSpawner(SimpleNamespace(name="ada", settings={}), job=Job("7", Phase.QUEUED), pending="spawn")
    of.attempt.contest = Contest()
    return of


async def test_a_job_is_told_what_is_stored_and_nothing_else(
    spawner: HubSpawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database takes no changes nobody is told anything: the job asks again."""
    stored: list[Contest | None] = []
    takes_changes = False

    def store() -> None:
        if not takes_changes:
            raise OperationalError("UPDATE", {}, Exception("database is locked"))
        stored.append(spawner.attempt.contest)

    monkeypatch.setattr(spawner.row, "store", store)
    with pytest.raises(ReportTooEarly):
        spawner.take_turn(ANOTHER)
    for question in (OWN, ANOTHER):
        with pytest.raises(OperationalError):
            spawner.take_turn(question)
    takes_changes = True
    spawner.take_turn(OWN)
    with pytest.raises(ReportError, match="another job runs the server"):
        spawner.take_turn(ANOTHER)

    assert stored == [Contest(decided=True)] * 2


@pytest.mark.parametrize(("pending", "job_id", "stopping"), [(None, "", False), ("spawn", "7", True)])
async def test_no_job_runs_a_server_that_is_not_being_started(
    spawner: HubSpawner, pending: str | None, job_id: str, stopping: bool
) -> None:
    """It was stopped, or its start has failed."""
    spawner.pending, spawner.watch.job_id, spawner.watch.stopping = pending, job_id, stopping

    with pytest.raises(ReportError, match="the server is not being started"):
        spawner.take_turn(OWN)


async def test_a_job_waits_until_the_hub_has_its_number(spawner: HubSpawner) -> None:
    """Slurm may start it before sbatch has answered."""
    spawner.watch.job_id = ""

    with pytest.raises(ReportTooEarly):
        spawner.take_turn(OWN)
