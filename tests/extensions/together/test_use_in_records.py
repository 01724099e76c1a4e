"""What a server has used is in the record of its session."""

from __future__ import annotations

from contextlib import closing

import pytest

from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from tests.extensions.usage.test_usage import LINES, PATH, PROFILES, fetch
from tests.fixtures.hubs import StartHub
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.nightly]


def test_a_session_is_kept_as_a_record_with_its_use(start_light_hub: StartHub) -> None:
    """The hub is killed in between, and the one after it completes the record."""
    hub = start_light_hub(LINES, PROFILES)
    visitor = Visitor(hub, "eve")  # signing in leads to a server that runs
    placement = hub.spawn("eve", {"profile": "four"})
    wait_until(lambda: fetch(visitor, f"{PATH}/eve").status_code == 200, hub.log_end, seconds=60)
    first = fetch(visitor, f"{PATH}/eve").json()["summaries"]
    hub.kill()
    hub.start()
    hub.wait("eve", ready=True)
    wait_until(
        lambda: fetch(visitor, f"{PATH}/eve").json().get("summaries", first)[-1]["ends_at"] > first[-1]["ends_at"],
        hub.log_end,
        seconds=60,
    )  # a summary reaches the second hub
    hub.end("eve")

    def records() -> list[SessionRecord]:
        with closing(SessionStore(hub.folder / "sessions.sqlite", create=False)) as store:
            return [session for session in store.sessions(username="eve") if session.cause is not None]

    wait_until(lambda: bool(records()), seconds=20)
    (record,) = records()
    assert (record.job_id, record.cause) == (
        placement["job_id"],
        Cause(Kind.CULLED),  # the service of these tests stopped it
    )
    assert (record.profile, record.asked_gpus, record.gpus, record.gpu_model) == (
        *("four", 4, 4),
        placement["gpus"][0]["name"],
    )
    assert (record.node, record.aligned) == (placement["node"], placement["aligned"])
    assert record.gpu_seconds_held is not None
    assert record.wait_seconds is not None
    assert 0 < record.gpu_seconds_busy < record.gpu_seconds_measured < record.gpu_seconds_held
    assert None not in (record.queue_seconds, record.start_seconds, record.ready_seconds, record.run_seconds)
