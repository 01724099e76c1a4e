"""What extensions keep with a server and show of it: one that raises is left out, and the server goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from jupyterhub_gpuspawner.extension import Extension, Extensions
from jupyterhub_gpuspawner.hub.extension import HubExtension, Place, ServerPart, WithServer
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, Part


class Counter(WithServer):
    """Counts, for as long as the server runs."""

    def __init__(self, spawner: Any) -> None:
        super().__init__(spawner)
        self.count = 1

    def to_state(self) -> Mapping[str, Any]:
        """The count."""
        return {"count": self.count}

    def load(self, state: Mapping[str, Any]) -> None:
        """The stored one."""
        self.count = state["count"]

    def forget(self) -> None:
        """Begin anew."""
        self.count = 0

    async def refresh(self, patience: float) -> None:
        """One more."""
        self.count += round(patience)


class Faulty(WithServer):
    """Raises whatever it is asked."""

    def to_state(self) -> Mapping[str, Any]:
        """Raise."""
        raise KeyError("state")

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Raise."""
        raise KeyError("load")

    def forget(self) -> None:
        """Raise."""
        raise KeyError("forget")

    async def refresh(self, patience: float) -> None:  # noqa: ARG002
        """Raise."""
        raise KeyError("refresh")


class Unmade(WithServer):
    """Cannot be made."""

    def __init__(self, spawner: Any) -> None:  # noqa: ARG002
        raise KeyError("made")


def count_part(_spawner: Any, server: str) -> Iterator[ServerPart]:
    """A part that names the server."""
    yield ServerPart("counter", Place.BESIDE, brief=server)


def faulty_part(_spawner: Any, _server: str) -> Iterator[ServerPart]:
    """A part that cannot be made."""
    yield ServerPart("faulty")
    raise KeyError("part")


def hub_with(**extensions: HubExtension) -> HubExtensions:
    """The extensions of a hub."""
    hub = HubExtensions(Extensions())
    hub.parts = tuple(Part(Extension(name, "About."), adds) for name, adds in extensions.items())
    return hub


COUNTER, FAULTY = HubExtension(with_server=Counter, parts_of=count_part), HubExtension(with_server=Faulty)


async def test_what_is_kept_with_a_server_is_stored_taken_up_refreshed_and_forgotten() -> None:
    """By each extension; the one that raises each time is left out, and named by what has failed."""
    failed: list[tuple[str, str]] = []
    hub = hub_with(faulty=FAULTY, unmade=HubExtension(with_server=Unmade), counter=COUNTER)
    vars(hub)["failed"] = lambda name, what, _error: failed.append((name, what))
    kept = hub.with_server("spawner")
    counter = kept.get(Counter)
    assert counter is not None
    states = [kept.to_state()]
    kept.load({"count": 5})
    await kept.await_each(WithServer.refresh, 2.0)
    states.append(kept.to_state())
    kept.forget()

    assert [*states, kept.to_state()] == [{"count": 1}, {"count": 7}, {"count": 0}]
    assert (counter.spawner, kept.get(Unmade)) == ("spawner", None)
    assert failed == [
        ("unmade", "with_server"),
        *(("faulty", what) for what in ("to_state", "load", "refresh", "to_state", "forget", "to_state")),
    ]


def test_parts_come_in_the_order_of_their_names_and_without_those_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the extension."""
    hub = hub_with(
        zeta=HubExtension(parts_of=lambda _spawner, _server: [ServerPart("zeta")]),
        faulty=HubExtension(parts_of=faulty_part),
        counter=COUNTER,
    )
    caplog.set_level("ERROR")
    parts = hub.parts_of("spawner", "g1")

    assert [(part.name, part.brief) for part in parts] == [("counter", "g1"), ("zeta", "")]


class NoState(WithServer):
    """Stores what no database can, and is a coroutine nowhere."""

    def to_state(self) -> Mapping[str, Any]:
        """What is no JSON."""
        return {"of": object()}

    def refresh(self, patience: float) -> Any:
        """Nothing that could be awaited."""
        return patience


class NoMapping(WithServer):
    """Stores nothing that has keys."""

    def to_state(self) -> Mapping[str, Any]:
        """A number."""
        return 3  # type: ignore[return-value]


async def test_what_an_extension_gives_in_the_wrong_form_stays_its_own_fault() -> None:
    """The server's state is stored, and the page is shown."""
    failed: list[tuple[str, str]] = []
    hub = hub_with(odd=HubExtension(with_server=NoState), number=HubExtension(with_server=NoMapping), counter=COUNTER)
    vars(hub)["failed"] = lambda name, what, _error: failed.append((name, what))
    kept = hub.with_server("spawner")
    await kept.await_each(WithServer.refresh, 2.0)

    assert kept.to_state() == {"count": 3}
    assert failed == [("odd", "refresh"), ("odd", "to_state"), ("number", "to_state")]
