"""Whether the user of a start that was kept may still have its server, by the hub's database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jupyterhub import orm
from sqlalchemy import text
from sqlalchemy.orm import Session
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from tests.fixtures.databases import hub_session

OVERRIDES = {
    "fast": {"groups": ["fast"], "spawner_override": {"req_partition": "gpu"}},
    "more": {"groups": ["more"], "spawner_override": {"req_nice": "7"}},
}
PROFILES = [
    {"display_name": "Light", "slug": "light", "slurm": {"cpus": 1}},
    {"display_name": "Vision", "slug": "vision", "slurm": {"cpus": 2}, "allow": {"groups": ["vision"]}},
]


@pytest.fixture
def session() -> Iterator[Session]:
    """A hub's database with a user who has a server and is in two groups, and with another group."""
    with hub_session() as session:
        user = orm.User(name="ann")
        user.groups = [orm.Group(name="fast"), orm.Group(name="vision")]
        session.add_all([user, orm.Group(name="more"), orm.Spawner(user=user, name="lab")])
        session.commit()
        yield session


def group(session: Session, name: str) -> Any:
    return session.query(orm.Group).filter_by(name=name).one()


def new_spawner(session: Session, spawner_class: type[GPUSlurmSpawner], **settings: Any) -> Any:
    """The spawner of that server."""
    spawner: Any = spawner_class(config=Config({"Spawner": {"group_overrides": OVERRIDES}}), **settings)
    spawner.orm_spawner = session.query(orm.Spawner).one()
    spawner.user = spawner.orm_spawner.user
    return spawner


async def refusal(spawner: Any) -> str:
    """Why the user may not start the server; empty where they may."""
    try:
        await spawner.ask_right_again()
    except RequestError as error:
        return error.message
    return ""


def without_group(name: str) -> Callable[[Session], None]:
    def leave(session: Session) -> None:
        session.query(orm.User).one().groups.remove(group(session, name))
        session.commit()

    return leave


def with_more(session: Session) -> None:
    session.query(orm.User).one().groups.append(group(session, "more"))
    session.commit()


def without_server(session: Session) -> None:
    """As the hub deletes a named server."""
    session.delete(session.query(orm.Spawner).one())
    session.commit()


def without_user(session: Session) -> None:
    """As the hub deletes a user."""
    session.delete(session.query(orm.User).one())
    session.commit()


def without_user_by_hand(session: Session) -> None:
    """As an administrator does in the database itself."""
    session.execute(text("DELETE FROM spawners"))
    session.execute(text("DELETE FROM users"))
    session.commit()


DELETED = "The server was deleted while its start was kept for later."
GROUPS = "The groups of its user have changed while the start was kept for later, and with them what it gets."
CHANGES: dict[str, tuple[Callable[[Session], None], str]] = {
    "nothing": (lambda _: None, ""),
    "a group whose overrides it had is left": (without_group("fast"), GROUPS),
    "a group is joined": (with_more, ""),
    "the server is deleted": (without_server, DELETED),
    "the user is deleted": (without_user, DELETED),
    "the user is deleted by hand": (without_user_by_hand, DELETED),
}


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES)
async def test_what_was_lost_since_the_start_was_asked_for(
    session: Session, change: Callable[[Session], None], why: str
) -> None:
    """With profiles and without."""
    spawner = new_spawner(session, GPUSlurmSpawner)
    await spawner.apply_group_overrides()
    change(session)

    assert await refusal(spawner) == why


@pytest.mark.parametrize(
    ("profile", "name", "why"),
    [
        ("light", "vision", ""),
        ("light", "fast", ""),
        ("vision", "vision", "You cannot use Vision now: it is reserved for the group vision."),
    ],
)
async def test_a_group_that_is_left_matters_where_the_profile_is_for_it(
    session: Session, profile: str, name: str, why: str
) -> None:
    """Its overrides had not been applied."""
    spawner = new_spawner(session, GPUProfilesSpawner, profiles=PROFILES)
    spawner.user_options = {"profile": profile}
    without_group(name)(session)

    assert await refusal(spawner) == why


async def test_a_start_that_goes_on_has_what_its_profile_is_now(session: Session) -> None:
    """Its author has changed what it requests; settings of a hook's are not touched."""
    spawner = new_spawner(session, GPUProfilesSpawner, profiles=PROFILES)
    spawner.user_options = {"profile": "light"}
    spawner.prepare(spawner.resolve(spawner.user_options))
    spawner.environment = {"HOOK": "1"}
    spawner.profiles = [{"display_name": "Light", "slug": "light", "slurm": {"cpus": 3}}]
    await spawner.ask_right_again()

    assert (spawner.request.resources.cpus, spawner.environment) == (3, {"HOOK": "1"})


async def test_a_profile_that_is_no_job_any_more_is_another_one(session: Session) -> None:
    """What was chosen is not there."""
    spawner = new_spawner(session, GPUProfilesSpawner, profiles=PROFILES)
    spawner.user_options = {"profile": "light"}
    spawner.profiles = [{"display_name": "Light", "slug": "light", "kind": "local"}]

    assert await refusal(spawner) == "The profile was changed while the start was kept for later."
