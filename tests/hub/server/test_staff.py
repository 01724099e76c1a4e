"""Who is staff for a server: for them its profile's limits on more time do not hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub.scopes import has_scope, parse_scopes

from jupyterhub_gpuspawner.hub.course.rights import instructor_scopes
from jupyterhub_gpuspawner.hub.server.api import staff_for
from jupyterhub_gpuspawner.hub.spawners.offers import SETTING
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile
from tests.standins.hub_spawner import HubSpawner

ADA = SimpleNamespace(name="ada", groups=[SimpleNamespace(name="course-deep"), SimpleNamespace(name="lab")])
THESIS = HubSpawner(ADA, ready=True, chosen=ChosenProfile("thesis", "slurm"))
LESSON = HubSpawner(ADA, "lab", ready=True, chosen=ChosenProfile("course-deep", "slurm"))
BOOK = SimpleNamespace(courses_of=lambda user: [SimpleNamespace(slug="deep")] if user == "ada" else [])

SHARED = ["servers!server=ada/", "servers!server=ada/lab"]
TEACHES = [*instructor_scopes("course-deep"), *SHARED]
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
    "who teaches its course": ("user", "tea", [s for s in TEACHES if s != "servers!group=course-deep"], LESSON, True),
}


@pytest.mark.parametrize(("kind", "name", "scopes", "server", "is_staff"), CASES.values(), ids=CASES.keys())
def test_who_is_staff_for_a_server(kind: str, name: str, scopes: list[str], server: Any, is_staff: bool) -> None:
    """Neither the server's own user nor anybody with whom the server is shared."""
    parsed = parse_scopes(frozenset(scopes))
    handler: Any = SimpleNamespace(
        current_user=SimpleNamespace(kind=kind, name=name),
        parsed_scopes=parsed,
        settings={SETTING: BOOK},
        has_scope=lambda scope: has_scope(scope, parsed),
    )

    assert staff_for(handler, server) == (name if is_staff else "")
