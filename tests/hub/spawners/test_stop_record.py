"""Who stopped a server, as its record says it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from jupyterhub.scopes import Scope

from jupyterhub_gpuspawner.hub.events.life import Life
from jupyterhub_gpuspawner.hub.spawners.server import note_stopper, stopper_of
from jupyterhub_gpuspawner.records.record import Stopper


@dataclass(frozen=True)
class Requester:
    """A user or a service of the hub."""

    name: str
    kind: str = "user"


ADMIN = {"admin:servers": Scope.ALL, "delete:servers": Scope.ALL}
REQUESTERS = {
    "the owner": (Requester("ada"), {"delete:servers": {"user": {"ada"}}}, Stopper.OWNER),
    "the owner, who is an admin": (Requester("ada"), ADMIN, Stopper.OWNER),
    "an admin": (Requester("root"), ADMIN, Stopper.ADMIN),
    "an instructor": (Requester("ina"), {"delete:servers": {"group": {"dl"}}}, Stopper.INSTRUCTOR),
    "a culler": (Requester("cull-idle", "service"), {"delete:servers": Scope.ALL}, Stopper.SERVICE),
    "a service with an admin's rights": (Requester("ada", "service"), ADMIN, Stopper.SERVICE),
}


@pytest.mark.parametrize(("requester", "scopes", "expected"), REQUESTERS.values(), ids=REQUESTERS.keys())
def test_whoever_stops_a_server_acts_as_something(
    requester: Requester, scopes: dict[str, object], expected: Stopper
) -> None:
    """By kind, name and rights of the requester."""
    assert stopper_of(requester, Requester("ada"), scopes) is expected


def test_a_stop_is_noted_with_the_session() -> None:
    """Of the spawner that starts the server, where that is one of ours; another one has no sessions."""
    life = Life()
    note_stopper(SimpleNamespace(child_spawner=SimpleNamespace(life=life)), Stopper.ADMIN)
    note_stopper(SimpleNamespace(child_spawner=None), Stopper.ADMIN)

    assert life.stopper is Stopper.ADMIN
