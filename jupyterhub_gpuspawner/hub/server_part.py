"""What an extension shows of a server and keeps with it: fields ``parts_of`` and ``with_server`` of a HubExtension."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class Place(Enum):
    """Where on a server's card a part is; parts in one place stand in the order of their names."""

    HEADING = "heading"
    """Below the title, before the time that is left: what the server is for."""
    NOTICE = "notice"
    """Below the time that is left: what its user should know."""
    ACTION = "action"
    """After the notices: what its user can do about it."""
    BESIDE = "beside"
    """Beside all of these, above the picture of the node."""


NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class ServerPart:
    """What an extension shows of one server: on its card, in few words on other pages, and over REST."""

    name: str
    place: Place = Place.NOTICE
    template: str = ""
    """The file that shows it on the card, with the variables ``part``, ``card`` and ``heading``, the id of the card's
    heading; empty where the card does not show it."""
    shown: Any = None
    """What the template shows."""
    version: object = None
    """Another one whenever the card is to be shown anew."""
    brief: str = ""
    """The same in a few words, such as ``GPU 83 %``, for tables with many servers."""
    at_end: str = ""
    """What is said of it on the card of a server that was stopped, as a clause."""
    extend: Callable[[int | None, str], Awaitable[int]] | None = None
    """Gives the server more time: so many minutes, in the name of this instructor or administrator (empty: its user).
    Returns the seconds, and raises GPUSpawnerError. None where this part cannot."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """What a running server reads of it in the document of its session, by key."""


class WithServer:
    """What an extension keeps with one server that is a Slurm job. This one keeps nothing."""

    def __init__(self, spawner: Any) -> None:
        """``spawner`` is the :class:`~.spawners.slurm.GPUSlurmSpawner` of the server."""
        self.spawner = spawner

    def to_state(self) -> Mapping[str, Any]:
        """What is stored in the spawner's state, by keys that are this extension's alone."""
        return NOTHING

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on with the spawner's stored state after a restart of the hub; what cannot be read is dropped."""

    def forget(self) -> None:
        """The server has ended."""

    async def refresh(self, patience: float) -> None:
        """Bring up to date what a page shows of a running server; takes ``patience`` seconds at most."""


class ServerExtensions:
    """What extensions keep with one server. One that raises is told to ``failed``, and the server goes on."""

    def __init__(
        self,
        kept: Sequence[tuple[str, WithServer]] = (),
        failed: Callable[[str, str, BaseException], object] = lambda _name, _what, _error: None,
    ) -> None:
        """``failed`` is called with the extension's name, the method and the error."""
        self._kept, self._failed = tuple(kept), failed

    def get(self, kind: type[T]) -> T | None:
        """What the extension with this class keeps; None where the hub does not have it."""
        return next((kept for _, kept in self._kept if isinstance(kept, kind)), None)

    def to_state(self) -> dict[str, Any]:
        """What all of them store in the spawner's state."""
        return {key: value for state in self._each("to_state", _stored) for key, value in state.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Have each go on with the stored state."""
        list(self._each("load", lambda kept: kept.load(state)))

    def forget(self) -> None:
        """The server has ended."""
        list(self._each("forget", lambda kept: kept.forget()))

    async def refresh(self, patience: float) -> None:
        """Bring all of them up to date; takes ``patience`` seconds at most."""
        await asyncio.gather(*(self._refresh(name, kept, patience) for name, kept in self._kept))

    async def _refresh(self, name: str, kept: WithServer, patience: float) -> None:
        try:
            await kept.refresh(patience)
        except Exception as error:  # noqa: BLE001 - an extension's fault: the page is shown
            self._failed(name, "refresh", error)

    def _each(self, what: str, call: Callable[[WithServer], T]) -> Iterator[T]:
        for name, kept in self._kept:
            try:
                given = call(kept)
            except Exception as error:  # noqa: BLE001 - an extension's fault: the server goes on
                self._failed(name, what, error)
            else:
                yield given


def _stored(kept: WithServer) -> dict[str, Any]:
    """What it stores, as the hub's database would give it back: what is no JSON is refused here, not there."""
    state: dict[str, Any] = json.loads(json.dumps(dict(kept.to_state())))
    return state
