"""A server over REST: what it may know of itself, and who is staff for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.scopes import has_scope, parse_scopes

from jupyterhub_gpuspawner.hub.extension import Notice, ServerPart
from jupyterhub_gpuspawner.hub.job.cause import Kind as CauseKind
from jupyterhub_gpuspawner.hub.server.api import session_document, staff_for
from jupyterhub_gpuspawner.hub.server.stop import stopper_of
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.profiles.offered import Occasion
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument
from tests.standins.hub_spawner import HubSpawner
from tests.standins.occasion import LESSONS, offering

NOW = 1_772_442_000.0
SERVER = Server(
    user="ada",
    ready=True,
    profile="k80",
    profile_name="A GPU (K80)",
    job_id="12",
    placement=PlacementDocument(
        job_id="12",
        node="g1",
        gpus=(PlacedGpu(index=1, name="Tesla K80", memory_mib=11441),),
        cpus="0-3",
        ends_at="2026-03-02T10:00:00+00:00",
    ),
)
MESSAGES = (
    Notice("Down at 12.", "root", NOW - 30),
    Notice("Open notebook 3.\nNow.", "tea", NOW - 60, of="Deep learning"),
)
DOCUMENT = {
    "version": 1,
    "now": "2026-03-02T09:00:00+00:00",
    "ends_at": "2026-03-02T10:00:00+00:00",
    "profile": "A GPU (K80)",
    "job_id": "12",
    "node": "g1",
    "has": ("1 \N{MULTIPLICATION SIGN} K80, 12 GB", "4 CPUs"),
    "gpus": ("1 \N{MULTIPLICATION SIGN} K80, 12 GB",),
    "messages": (
        {"course": "", "at": "2026-03-02T08:59:30+00:00", "text": "Down at 12.", "sender": "root"},
        {"course": "Deep learning", "at": "2026-03-02T08:59:00+00:00", "text": MESSAGES[1].text, "sender": "tea"},
    ),
}


def test_a_running_server_with_messages() -> None:
    """Its end, GPUs and more time as on the home page; a message with the title of its course."""
    document = session_document(SERVER, MESSAGES, now=NOW)

    assert document == DOCUMENT


def test_extensions_say_what_they_show_of_it() -> None:
    """Each by its own keys."""
    parts = (ServerPart("queue", document={"queue": 2, "since": None}), ServerPart("quiet"))
    document = session_document(replace(SERVER, parts=parts), MESSAGES, now=NOW)

    assert document == {**DOCUMENT, "queue": 2, "since": None}


def test_a_server_whose_placement_is_not_known() -> None:
    """The end is unknown, and nothing is guessed."""
    document = session_document(replace(SERVER, placement=None), (), now=NOW)

    assert document == {
        **DOCUMENT,
        "ends_at": None,
        "node": "",
        "has": (),
        "gpus": (),
        "messages": (),
    }


ADA = SimpleNamespace(name="ada", groups=[SimpleNamespace(name="course-deep"), SimpleNamespace(name="lab")])
THESIS = HubSpawner(ADA, ready=True, chosen=ChosenProfile("thesis", "slurm"))
LESSON = HubSpawner(ADA, "lab", ready=True, chosen=ChosenProfile("course-deep", "slurm"))
TEACH = "custom:example:teach"
COURSES = replace(
    LESSONS,
    occasion=lambda _settings, slug: Occasion("deep", "Deep learning", slug) if slug == "course-deep" else None,
    lead_scope=TEACH,
)

SHARED = ["servers!server=ada/", "servers!server=ada/lab"]
TEACHES = [f"{TEACH}!group=course-deep", *SHARED]
ADMIN = ["admin:servers", "delete:servers"]


def sender(kind: str, name: str, scopes: list[str]) -> Any:
    """The handler of a request by a user or a service of this name."""
    parsed = parse_scopes(frozenset(scopes))
    return SimpleNamespace(
        current_user=SimpleNamespace(kind=kind, name=name),
        parsed_scopes=parsed,
        settings=offering(COURSES),
        has_scope=lambda scope: has_scope(scope, parsed),
    )


CASES: dict[str, tuple[str, str, list[str], Any, bool]] = {
    "its user": ("user", "ada", ["servers!user=ada"], THESIS, False),
    "its user, who is an administrator": ("user", "ada", ["admin:servers", "servers"], THESIS, False),
    "an administrator": ("user", "eve", ["admin:servers", "servers"], THESIS, True),
    "a service of its user's name": ("service", "ada", ["servers"], THESIS, True),
    "a friend": ("user", "ben", [SHARED[0], "servers!user=ben"], THESIS, False),
    "a friend with two shared servers": ("user", "ben", SHARED, THESIS, False),
    "who has the scope for its user": ("user", "tea", ["servers!user=ada"], THESIS, True),
    "who has the scope for a group of its user's": ("user", "tea", ["servers!group=lab"], THESIS, True),
    "who has the scope for another group": ("user", "tea", ["servers!group=others", *SHARED], THESIS, False),
    "who teaches its course": ("user", "tea", TEACHES, LESSON, True),
}


@pytest.mark.parametrize(("kind", "name", "scopes", "server", "is_staff"), CASES.values(), ids=CASES.keys())
def test_who_is_staff_for_a_server(kind: str, name: str, scopes: list[str], server: Any, is_staff: bool) -> None:
    """Neither the server's own user nor anybody with whom the server is shared."""
    assert staff_for(sender(kind, name, scopes), server) == (name if is_staff else "")


STOPPERS: dict[str, tuple[str, str, list[str], CauseKind]] = {
    "its user": ("user", "ada", ["delete:servers!user=ada"], CauseKind.STOPPED_BY_USER),
    "its user, who is an administrator": ("user", "ada", ADMIN, CauseKind.STOPPED_BY_USER),
    "an administrator": ("user", "eve", ADMIN, CauseKind.STOPPED_BY_ADMIN),
    "who teaches a course of its user's": ("user", "tea", TEACHES, CauseKind.STOPPED_BY_INSTRUCTOR),
    "who teaches another course": (
        "user",
        "ina",
        [f"{TEACH}!group=course-ml", *SHARED],
        CauseKind.STOPPED_BY_OTHER_USER,
    ),
    "a friend": ("user", "ben", ["delete:servers!server=ada/"], CauseKind.STOPPED_BY_OTHER_USER),
    "a service": ("service", "cull-idle", ["delete:servers"], CauseKind.CULLED),
    "a service of its user's name": ("service", "ada", ADMIN, CauseKind.CULLED),
}


@pytest.mark.parametrize(("kind", "name", "scopes", "stopper"), STOPPERS.values(), ids=STOPPERS.keys())
def test_whoever_stops_a_server_acts_as_something(kind: str, name: str, scopes: list[str], stopper: CauseKind) -> None:
    """By kind, name and rights: with whom a server is shared is no instructor."""
    assert stopper_of(sender(kind, name, scopes), ADA) is stopper
