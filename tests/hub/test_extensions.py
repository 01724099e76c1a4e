"""What extensions add to a hub: whatever one of them does wrong, the hub and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from jupyterhub import orm
from jupyterhub.user import User
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.extension import Extension, Extensions, Fault
from jupyterhub_gpuspawner.hub.extension import Forecast, Hardware, HubExtension, Link, Notice, PlannedWait, WithServer
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, ServerExtensions, extensions_of
from jupyterhub_gpuspawner.hub.site.state import KEY
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, QueuePosition, Span
from tests.fixtures.databases import hub_session


def raises(*_: Any) -> Any:
    raise LookupError("of no use")


def is_away(*_: Any) -> Any:
    raise OperationalError("SELECT", {}, Exception("the database is away"))


GOOD = HubExtension(
    links=(Link("Good", "good", lambda _scopes, _user: True), Link("Hidden", "hidden", lambda _scopes, _user: False)),
    notices=lambda _user, _spawner: [Notice("Old.", "root", 1.0), Notice("New.", "root", 3.0)],
)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[..., HubExtensions]:
    """The extensions of a hub: each of these by its name."""

    def make(**adds: object) -> HubExtensions:
        monkeypatch.setattr(Extension, "load", lambda self, _reference: adds[self.name])
        present = tuple(Extension(name, "", hub=".hub:HUB", package=name) for name in adds)
        return HubExtensions(Extensions(present, (Fault("lost", "it cannot be imported."),)))

    return make


@pytest.fixture
def ann() -> Iterator[User]:
    """A user of a hub."""
    with hub_session() as session:
        row = orm.User(name="ann")
        session.add(row)
        session.commit()
        yield User(row, {})


FAULTY = {
    "links": HubExtension(links=(Link("Bad", "bad", raises),)),
    "notices": HubExtension(notices=raises),
    "begin": HubExtension(begin=(raises,)),
    "configured": HubExtension(configured=(raises,)),
}


@pytest.mark.parametrize("what", FAULTY)
def test_a_hook_that_raises_is_named_in_the_log_and_left_out(
    what: str, hub: Callable[..., HubExtensions], ann: User, caplog: pytest.LogCaptureFixture
) -> None:
    """What the others add is there; the traceback is logged once."""
    begun: list[object] = []
    good = HubExtension(links=GOOD.links, notices=GOOD.notices, begin=(begun.append,), configured=(begun.append,))
    extensions, app = hub(bad=FAULTY[what], good=good), SimpleNamespace(db=None)
    caplog.clear()
    for _ in range(2):
        extensions.configured(app)
        extensions.begin(app)
        assert [link.text for link in extensions.links({}, ann)] == ["Good"]
        assert [notice.text for notice in extensions.notices(ann)] == ["New.", "Old."]

    assert begun == [app] * 4
    name = "raises" if what in ("begin", "configured") else what
    assert [(record.getMessage(), record.exc_info is not None) for record in caplog.records] == [
        (f"The extension bad is left out here, since its {name} failed: LookupError: of no use", traceback)
        for traceback in (True, False)
    ]


class Faulty(Forecast):
    """A forecast that fails where it is asked."""

    of = hardware = staticmethod(raises)  # type: ignore[assignment]


async def fails(*_: Any) -> Any:
    """Fail where an answer is awaited."""
    raises()


@pytest.mark.parametrize("forecast", [fails, AsyncMock(return_value=Faulty())])
async def test_a_forecast_that_fails_knows_nothing(forecast: Any, hub: Callable[..., HubExtensions]) -> None:
    """Neither at once, nor when the form asks it of a profile; the waiting page has no section of it."""
    extensions = hub(bad=HubExtension(forecast=forecast, prepare=raises, below_wait=fails))
    request: Any = SimpleNamespace()
    given = await extensions.forecast(SimpleNamespace(), [])
    extensions.prepare(request)

    assert (given.of(request), given.hardware(request), given.notice) == (None, Hardware(), "")
    assert await extensions.below_wait(request, None) == []


class Waiting(WithServer):
    """An extension of which all that is asked of a server that waits fails."""

    availability = why_never = refresh_waiting = staticmethod(fails)  # type: ignore[assignment]
    queue_position = expects = change = staticmethod(raises)  # type: ignore[assignment]


class Knows(WithServer):
    """One that knows something."""

    async def why_never(self, request: JobRequest, *, since: float) -> str:  # noqa: ARG002 - the same of any
        """For the same reason at any time."""
        return "There is no such partition."

    def queue_position(self) -> QueuePosition | None:
        """The next one."""
        return QueuePosition(1, 2, "gpu")


async def test_of_a_server_that_waits_the_first_that_knows_is_believed() -> None:
    """One that fails is told of, and the others are asked; with none nothing is known."""
    failed: list[str] = []
    request: Any = SimpleNamespace()
    server = ServerExtensions(
        [("bad", Waiting(None)), ("good", Knows(None))], lambda name, what, _error: failed.append(f"{name} {what}")
    )
    for extensions in (server, ServerExtensions()):
        await extensions.await_each(WithServer.refresh_waiting, 0.0)
        extensions.each(WithServer.expects, UNKNOWN, "gpu", now=0.0)
        why = await extensions.await_first(WithServer.why_never, request, since=0.0)
        availability = await extensions.await_first(WithServer.availability, request)
        position, change = extensions.first(WithServer.queue_position), extensions.first(WithServer.change)

        assert (availability, why, position, change) == (
            (None, "There is no such partition.", QueuePosition(1, 2, "gpu"), None)
            if extensions is server
            else (None, None, None, None)
        )

    asked = ("refresh_waiting", "expects", "why_never", "availability", "queue_position", "change")
    assert failed == [f"bad {what}" for what in asked]


def test_what_is_no_hub_extension_is_left_out(
    hub: Callable[..., HubExtensions], caplog: pytest.LogCaptureFixture
) -> None:
    """So is what cannot be imported at all; both are named when the hub starts."""
    extensions = hub(bad={"links": ()}, good=GOOD)

    assert [part.extension.name for part in extensions] == ["good"]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "The extension lost is left out: it cannot be imported.",
        "The extension bad is left out: .hub:HUB must be a HubExtension.",
    ]


def test_a_wait_is_as_long_as_the_first_extension_says_that_knows_it(
    hub: Callable[..., HubExtensions], caplog: pytest.LogCaptureFixture
) -> None:
    """One that fails is named in the log; where none knows it, Slurm's plan counts."""
    spans = {PlannedWait("cedar", "gpu", 3600.0, queued=True): Span(60, 600, 1800)}
    knows = HubExtension(estimate=lambda _hub, wait: spans.get(wait))
    surprised = HubExtension(estimate=lambda _hub, _wait: Span(0, 0, 0))
    extensions = hub(bad=HubExtension(estimate=raises), knows=knows)
    caplog.clear()

    assert extensions.waits("cedar", queued=True)("gpu", 3600.0) == Span(60, 600, 1800)
    assert extensions.waits("cedar", queued=False)("gpu", 3600.0) is None
    assert {record.getMessage() for record in caplog.records} == {
        "The extension bad is left out here, since its estimate failed: LookupError: of no use"
    }
    assert hub(knows=knows, other=surprised).waits("cedar", queued=True)("gpu", 3600.0) == Span(60, 600, 1800)


def test_nothing_is_told_while_the_database_is_away(
    hub: Callable[..., HubExtensions], ann: User, caplog: pytest.LogCaptureFixture
) -> None:
    """That is no fault of the extension's."""
    extensions = hub(messages=HubExtension(notices=is_away), good=GOOD)
    caplog.clear()

    assert [notice.text for notice in extensions.notices(ann)] == ["New.", "Old."]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (
            logging.WARNING,
            "The extension messages is left out here, since the hub's database failed: (builtins.Exception) the "
            "database is away",
        )
    ]


def test_a_service_is_told_nothing(hub: Callable[..., HubExtensions]) -> None:
    """It is no person, and has no servers."""
    assert hub(good=GOOD).notices(SimpleNamespace(name="culler")) == []


def test_the_extensions_of_a_hub_are_in_the_settings_of_its_pages(hub: Callable[..., HubExtensions]) -> None:
    """What was not set up as a hub has none."""
    extensions = hub(good=GOOD)

    assert extensions_of({KEY: extensions.state}) is extensions
    assert [*extensions_of({})] == []
