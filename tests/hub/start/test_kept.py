"""What a hub that is restarted does with the starts that the one before it has kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from sqlalchemy.orm import Session
from tornado.httpclient import HTTPRequest, HTTPResponse
from tornado.httputil import HTTPHeaders
from traitlets.config import Config

from jupyterhub_gpuspawner.hub import unfinished
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, Stage, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.attempt import KeptStart, Moment
from jupyterhub_gpuspawner.hub.unfinished import KeptStarts, servers_with_kept_starts
from jupyterhub_gpuspawner.slurm.job import JobIdentity
from tests.fixtures.databases import hub_session

JOB = JobIdentity("ann", 1001, "jupyterhub-gpuspawner/demo/ann/#1")
MAX_WAIT = 600.0
GIVEN_UP = start_failed("hub_restarted")
BEGUN, REFUSED, BUSY = 202, 403, 429


def kept(age: float = 0.0) -> KeptStart:
    """A start of so many seconds ago: of when the test runs, which may be long after it was collected."""
    return KeptStart(Moment.now().ago(age), MAX_WAIT, "", (JOB,))


class Restored(GPUSlurmSpawner):
    """A spawner as JupyterHub leaves it after its check; a stand-in for what JupyterHub says of it."""

    active: Any = False
    pending: Any = None

    def __init__(self, user: Any, kept_start: KeptStart | None) -> None:
        super().__init__(config=Config())
        self.user, self.attempt.kept = user, kept_start
        self.stored = 0
        self.row = SimpleNamespace(store=self._store)  # type: ignore[assignment]

    def _store(self) -> None:
        self.stored += 1


class Hub(KeptStarts):
    """The hub, which answers these codes to requests for a server; one that is begun is a start of the spawner's."""

    def __init__(self, session: Session, spawner: Any, answers: Sequence[int], blocked: Sequence[str] = ()) -> None:
        users = {user: SimpleNamespace(spawners={"lab": spawner}) for user in session.query(orm.User)}
        self.asked: list[int] = []
        self.answers = list(answers)
        self.spawner = spawner
        app: Any = SimpleNamespace(db=session, users=users, authenticator=SimpleNamespace(blocked_users=set(blocked)))
        super().__init__(app)

    async def _ask(self, user: Any, server_name: str) -> HTTPResponse:
        assert (user.name, server_name) == ("ann", "lab")
        code = self.answers.pop(0)
        self.asked.append(code)
        if code == BEGUN:
            self.spawner.attempt.kept, self.spawner.active = None, True
        return HTTPResponse(HTTPRequest("http://hub"), code, HTTPHeaders({"Retry-After": "0"}))


@pytest.fixture
def session() -> Iterator[Session]:
    """The database of a hub with a server whose start was kept, and others."""
    with hub_session() as session:
        states: dict[str, Any] = {"lab": kept().to_state(), "runs": {"job_id": "7"}, "never": None, "kept_start": {}}
        user = orm.User(name="ann")
        session.add_all([user, *(orm.Spawner(user=user, name=name, state=state) for name, state in states.items())])
        session.commit()
        yield session


def test_the_servers_with_kept_starts_are_found_by_their_state(session: Session) -> None:
    """Not by their names."""
    assert servers_with_kept_starts(session) == [("ann", "lab")]


STOPPED = Ending(Cause(Kind.STOPPED_BY_USER))
CASES: dict[str, tuple[dict[str, Any], list[int], dict[str, Any], Cause | None]] = {
    "it goes on": ({}, [BEGUN], {}, None),
    "a limit of the hub's is reached for a while": ({}, [BUSY, BUSY, BEGUN], {}, None),
    "it is refused": ({}, [REFUSED], {}, GIVEN_UP),
    "its time is over": ({"age": MAX_WAIT + 100.0}, [], {}, GIVEN_UP),
    "its user is blocked": ({}, [], {"blocked": ["ann"]}, GIVEN_UP),
    "its user has started it": ({"age": None, "active": True}, [], {}, None),
    "its user has started and stopped it": ({"ending": STOPPED}, [], {}, STOPPED.cause),
}


@pytest.mark.parametrize(("facts", "answers", "settings", "cause"), CASES.values(), ids=CASES)
async def test_a_kept_start_goes_on_or_is_given_up_and_its_page_says_so(
    session: Session, facts: dict[str, Any], answers: list[int], settings: dict[str, Any], cause: Cause | None
) -> None:
    """It is asked for once, but for what is to be asked again; what is given up is not tried by the next hub."""
    age = facts.get("age", 0.0)
    spawner = Restored(session.query(orm.User).one(), kept(age) if age is not None else None)
    spawner.ended.keep(facts.get("ending"))
    spawner.active = facts.get("active", False)
    hub = Hub(session, spawner, answers, **settings)
    await hub.go_on()

    assert hub.asked == answers
    assert (spawner.ended.last.cause if spawner.ended.last is not None else None) == cause
    assert spawner.attempt.kept is None
    assert spawner.stored == (cause is not None)
    assert cause != GIVEN_UP or (spawner.ended.last is not None and spawner.ended.last.stage is Stage.SUBMITTED)


async def test_a_server_that_was_deleted_is_not_asked_for(session: Session) -> None:
    """Between the two looks."""
    hub = Hub(session, Restored(session.query(orm.User).one(), kept()), [])
    servers = servers_with_kept_starts(session)
    session.delete(session.query(orm.Spawner).filter_by(name="lab").one())
    session.commit()
    assert servers == [("ann", "lab")]
    await hub._go_on("ann", "lab")

    assert hub.asked == []


async def test_a_start_that_is_refused_before_it_begins_is_given_up(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterHub has answered that it begins; then its user options are refused, since the profile is gone."""
    monkeypatch.setattr(unfinished, "POLL_SECONDS", 0.0)
    spawner = Restored(session.query(orm.User).one(), kept())

    class Refusing(Hub):
        async def _ask(self, *_: Any) -> HTTPResponse:
            self.asked.append(BEGUN)
            looks = iter([True, True])
            monkeypatch.setattr(Restored, "active", property(lambda _: next(looks, False)))
            return HTTPResponse(HTTPRequest("http://hub"), BEGUN)

    hub = Refusing(session, spawner, [])
    await hub.go_on()

    assert (hub.asked, spawner.attempt.kept, spawner.stored) == ([BEGUN], None, 1)
