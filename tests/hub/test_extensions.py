"""What extensions add to a hub: whatever one of them does wrong, the hub and the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from inspect import isawaitable
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from jupyterhub import orm
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.user import User
from markupsafe import Markup
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError
from traitlets.config import Config, Configurable

from jupyterhub_gpuspawner.errors import ConfigError, ReportError, RequestError
from jupyterhub_gpuspawner.extension import Extension, Extensions, Fault
from jupyterhub_gpuspawner.hub import extensions as extensions_module
from jupyterhub_gpuspawner.hub.extension import (
    Forecast,
    Hardware,
    HubExtension,
    Letter,
    Link,
    NodeMarks,
    Notice,
    PlannedWait,
    ProfilesOf,
    ServerPart,
    WithServer,
)
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, ServerExtensions, extensions_of
from jupyterhub_gpuspawner.hub.site.state import KEY
from jupyterhub_gpuspawner.hub.spawners.offers import (
    errors_beside,
    occasion_of,
    offered_beside,
    refuse_what_is_for_others,
)
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered
from jupyterhub_gpuspawner.profiles.parsing import parse_profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, QueuePosition, Span
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from tests.fixtures.databases import hub_session


def raises(*_: Any, **_by_name: Any) -> Any:
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


class Kept(WithServer):
    """What an extension keeps with a server."""

    def to_state(self) -> dict[str, Any]:
        return {"good": 1}


class OfGood(Configurable):
    """Settings with which a hub can run."""


class Page(BaseHandler):  # type: ignore[misc]
    """A page of an extension's."""


async def knows_nothing(*_: Any) -> Forecast:
    return Forecast()


async def section(*_: Any) -> Markup:
    return Markup("<p>Good.</p>")


PROFILE = parse_profile({"display_name": "Good", "slurm": {"time": "1:00"}}, where=str)


def offer(_spawner: Any) -> list[Offered]:
    return [Offered(PROFILE)]


BEGUN: list[object] = []
OF_ALL_KINDS = HubExtension(
    settings=(OfGood,),
    configured=(BEGUN.append,),
    begin=(BEGUN.append,),
    api=((r"/api/good", Page),),
    links=GOOD.links,
    notices=GOOD.notices,
    profiles_of=ProfilesOf(
        offered=offer,
        errors=lambda _spawner: [ConfigError("It is gone.")],
        refusal=lambda _spawner, slug: f"{slug} is for others.",
        occasion=lambda _settings, slug: Occasion(slug, slug, slug),
    ),
    forecast=knows_nothing,
    prepare=BEGUN.append,
    below_wait=section,
    estimate=lambda _hub, _wait: Span(60, 600, 1800),
    marks_of=lambda _hub, cluster: NodeMarks(cluster, {}, ()),
    below_map=section,
    with_server=Kept,
    parts_of=lambda _spawner, _server: [ServerPart("good")],
    letters=lambda _settings, _now: [Letter("ann", "good", "Good", "It is good.", 1e10)],
    choices_of=lambda _spawner, profile: profile.model_copy(update={"description": "Good."}),
    refused_choices=lambda _spawner, _request: {"account": {"a": "is not yours"}},
    page_tools={"good": 1},
)


async def whole(hub: HubExtensions, ann: User) -> dict[str, Any]:
    """All that the extensions of a hub answer."""
    BEGUN.clear()
    app: Any = SimpleNamespace(db=None)
    spawner: Any = SimpleNamespace(user=SimpleNamespace(settings={KEY: hub.state}))
    handler: Any = None
    hub.configured(app)
    hub.begin(app)
    hub.prepare(handler)
    hub.check_settings(Config())
    await hub.refresh_profiles(spawner)
    forecast = await hub.forecast(spawner, [])
    with suppress(RequestError):
        refuse_what_is_for_others(spawner, "good", [])
    return {
        "begun": len(BEGUN),
        "routes": [path for path, *_ in hub.routes("/hub/")],
        "links": [link.text for link in hub.links({}, ann)],
        "notices": hub.notices(ann),
        "profiles": [offered.profile.display_name for offered in offered_beside(spawner)],
        "errors": [str(error) for error in errors_beside(spawner)],
        "occasion": occasion_of(spawner.user.settings, "good"),
        "forecast": (forecast.of(handler), forecast.hardware(handler)),
        "below_wait": await hub.below_wait(handler, spawner),
        "waits": hub.waits("cedar", queued=True)("gpu", 3600.0),
        "marks_of": hub.marks_of("cedar"),
        "below_map": await hub.below_map(handler, handler, "cedar"),
        "with_server": hub.with_server(spawner).to_state(),
        "parts_of": hub.parts_of(spawner, None),
        "letters": hub.letters({}, 0.0),
        "choices_of": hub.with_choices(spawner, PROFILE).description,
        "refused_choices": hub.refused_choices(spawner, handler),
        "page_tools": hub.page_tools,
        "tables": [tables.extension for tables in hub.tables],
    }


def exits(*_: Any, **_by_name: Any) -> Any:
    """As what was written as a program."""
    raise SystemExit(3)


def is_cancelled(*_: Any, **_by_name: Any) -> Any:
    """As what awaits something that somebody else has cancelled."""
    raise asyncio.CancelledError


def later(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same in a coroutine."""

    async def hook(*arguments: Any, **by_name: Any) -> Any:
        await asyncio.sleep(0)
        run(*arguments, **by_name)

    return hook


ALL_HOOKS = ("estimate", "prepare", "marks_of", "parts_of", "notices", "letters", "choices_of", "refused_choices")
ALL_COROUTINES = ("forecast", "below_wait", "below_map")
OF_PROFILES = ("offered", "errors", "refusal", "occasion")


def of_profiles(name: str, run: Any) -> ProfilesOf:
    """Profiles of which this hook does this."""
    return replace(ProfilesOf(), **{name: run})


def faulty(run: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """For each field of a :class:`HubExtension` that is called, one in which that does this."""

    class Unmade(WithServer):
        def __init__(self, spawner: Any) -> None:
            run(spawner)

    return {
        "configured": {"configured": (run,)},
        "begin": {"begin": (run,)},
        "links": {"links": (Link("Bad", "bad", run),)},
        "settings": {"settings": (type("Bad", (Configurable,), {"__init__": run}),)},
        **{name: {name: later(run)} for name in ALL_COROUTINES},
        **{name: {name: run} for name in ALL_HOOKS},
        "with_server": {"with_server": Unmade},
        "refresh": {"profiles_of": ProfilesOf(refresh=later(run))},
        **{f"profiles_of.{name}": {"profiles_of": of_profiles(name, run)} for name in OF_PROFILES},
    }


RAISED = {"raises": "LookupError: of no use", "exits": "SystemExit: 3", "is_cancelled": "CancelledError: "}
HOW = {"raises": raises, "exits": exits, "is_cancelled": is_cancelled}
NOT_CALLED = {"tables", "steps", "api", "pages", "page_tools"}
"""Tables are made and steps taken before anything else, or the hub does not start; a page has a test of its own."""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("what", faulty(raises))
async def test_what_fails_in_an_extension_is_named_in_the_log_and_left_out(
    what: str,
    how: str,
    hub: Callable[..., HubExtensions],
    ann: User,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that another one adds is there; it is logged once an hour, the first time with the traceback."""
    alone = await whole(hub(good=OF_ALL_KINDS), ann)
    extensions = hub(bad=HubExtension(**faulty(HOW[how])[what]), good=OF_ALL_KINDS)
    caplog.clear()
    times = [0.0, 60.0, 3700.0]
    for now in times:
        monkeypatch.setattr(extensions_module, "time", SimpleNamespace(monotonic=lambda now=now: now))
        beside = await whole(extensions, ann)

        if what == "forecast":  # that of the next one is asked
            assert beside.pop("forecast") == (None, Hardware())
        assert {name: beside[name] for name in alone if name in beside} == {name: alone[name] for name in beside}

    called = what.partition(".")[0].replace("refresh", "profiles_of")
    if what in ("begin", "configured"):
        called = HOW[how].__name__
    called = {"settings": "Bad"}.get(called, called)
    text = f"The extension bad is left out here, since its {called} failed: {RAISED[how]}"
    assert [(record.getMessage(), record.exc_info is not None) for record in caplog.records] == [
        (text, True),
        (text, False),
    ]


def test_each_field_of_an_extension_is_tried() -> None:
    """A new one has its place in the table above."""
    tried = {name for adds in faulty(raises).values() for name in adds}

    assert tried | NOT_CALLED == {field.name for field in fields(HubExtension)}


@pytest.mark.parametrize("field", [field.name for field in fields(HubExtension)])
def test_a_field_of_another_type_is_refused_where_it_is_declared(field: str) -> None:
    """So that no hub begins with it: what cannot be loaded is left out by its name."""
    wrong: Any = {field: 7}
    within: Any = {field: (7,)}
    for adds in (wrong, within):
        with pytest.raises(ValidationError, match=rf"^1 validation error for HubExtension\n{field}\b"):
            HubExtension(**adds)


def test_what_several_extensions_refuse_of_an_option_is_refused(hub: Callable[..., HubExtensions]) -> None:
    """Not by the last one alone; any mapping will do."""
    closed, foreign = MappingProxyType({"a": "is closed"}), {"b": "is not yours"}
    by_name = {
        name: HubExtension(refused_choices=lambda *_, clauses=clauses: {"account": clauses})
        for name, clauses in {"one": closed, "two": foreign}.items()
    }
    request: Any = None

    assert hub(**by_name).refused_choices(None, request) == {"account": {**closed, **foreign}}


def test_a_route_that_leads_to_no_page_is_left_out(
    hub: Callable[..., HubExtensions], caplog: pytest.LogCaptureFixture
) -> None:
    """With the others of its extension."""
    extensions = hub(bad=HubExtension(pages=((r"/page", Page), (r"/bad", 7))), good=OF_ALL_KINDS)
    caplog.clear()

    assert [path for path, *_ in extensions.routes("/hub/")] == ["/hub/api/good"]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        "The extension bad is left out here, since its routes failed"
    ]


def of_server(run: Callable[..., Any], method: str) -> type[WithServer]:
    """An extension that keeps something with a server, of which this method does this."""
    is_coroutine = asyncio.iscoroutinefunction(getattr(WithServer, method))
    return type("Bad", (WithServer,), {method: later(run) if is_coroutine else run})


REQUEST: Any = SimpleNamespace()
PLACEMENT = PlacementDocument()
CALLS: dict[str, Callable[[ServerExtensions], Any]] = {
    "to_state": lambda kept: kept.to_state(),
    "load": lambda kept: kept.load({}),
    "forget": lambda kept: kept.forget(),
    "refresh": lambda kept: kept.await_each(WithServer.refresh, 0.0),
    "refresh_waiting": lambda kept: kept.await_each(WithServer.refresh_waiting, 0.0),
    "availability": lambda kept: kept.await_first(WithServer.availability, REQUEST),
    "why_never": lambda kept: kept.await_first(WithServer.why_never, REQUEST, since=0.0),
    "queue_position": lambda kept: kept.first(WithServer.queue_position),
    "expects": lambda kept: kept.each(WithServer.expects, UNKNOWN, "gpu", now=0.0),
    "promises": lambda kept: kept.promises(),
    "change": lambda kept: kept.first(WithServer.change),
    "carries": lambda kept: kept.each(WithServer.carries),
    "lead_back": lambda kept: kept.await_each(WithServer.lead_back),
    "leave": lambda kept: kept.await_each(WithServer.leave),
    "reach": lambda kept: kept.await_first(WithServer.reach, "g1", 20000),
    "awaits": lambda kept: kept.first(WithServer.awaits),
    "unreached": lambda kept: kept.await_first(WithServer.unreached),
    "reached_again": lambda kept: kept.await_each(WithServer.reached_again),
    "node_reported": lambda kept: kept.node_reported(REQUEST),
    "placed": lambda kept: kept.placed(PLACEMENT, ()),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("method", CALLS)
async def test_what_fails_in_what_is_kept_with_a_server_is_told_and_left_out(method: str, how: str) -> None:
    """The answer is that of the others."""
    failed: list[tuple[str, str, str]] = []

    async def answer(*kept: tuple[str, WithServer]) -> Any:
        given = CALLS[method](
            ServerExtensions(kept, lambda name, what, error: failed.append((name, what, type(error).__name__)))
        )
        return await given if isawaitable(given) else given

    good = ("good", Kept(None))
    alone, beside = await answer(good), await answer(("bad", of_server(HOW[how], method)(None)), good)

    assert beside == (alone[: len(beside)] if isinstance(alone, list) else alone)
    assert failed == [("bad", method, RAISED[how].partition(":")[0])]


def test_each_method_of_what_is_kept_with_a_server_is_tried() -> None:
    """A new one has its place in the table above."""
    assert set(CALLS) == {name for name in vars(WithServer) if not name.startswith("_")}


async def test_a_report_that_an_extension_refuses_is_refused() -> None:
    """It says so to whoever has sent it."""

    def refuse(*_: Any) -> bool:
        raise ReportError("placement: no such rank")

    with pytest.raises(ReportError, match="no such rank"):
        ServerExtensions([("bad", of_server(refuse, "node_reported")(None))]).node_reported(REQUEST)


class Faulty(Forecast):
    """A forecast that fails where it is asked."""

    of = hardware = staticmethod(raises)


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
    queue_position = expects = change = staticmethod(raises)


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
