"""What extensions add to a hub: whatever one of them does wrong, the hub and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.user import User
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.extension import Extension, Extensions, Fault
from jupyterhub_gpuspawner.hub.extensions import (
    HubExtension,
    HubExtensions,
    Link,
    Notice,
    PlannedWait,
    extensions_of,
)
from jupyterhub_gpuspawner.hub.site.state import KEY
from jupyterhub_gpuspawner.slurm.estimate import Span
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
