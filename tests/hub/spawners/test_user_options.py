"""Who may choose what runs in a user's server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.scopes import has_scope, parse_scopes
from sqlalchemy.exc import OperationalError
from tornado import web

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.extension import ProfilesOf
from jupyterhub_gpuspawner.hub.jupyterhub_compat import HAS_DISPLAY_NAMES, START_SERVERS, posted_options
from jupyterhub_gpuspawner.hub.spawners.offers import (
    apply_user_options,
    may_start_alone,
    occasion_of,
    refusal_of_choice,
)
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from tests.fixtures.databases import hub_session, new_database
from tests.standins.occasion import FAULT, LESSONS, OCCASION, offering, spawner_for

TAUGHT = f"{START_SERVERS}!group=course-lesson"


def request_of(name: str, scopes: Sequence[str], kind: str = "user") -> Any:
    """The handler of a request by somebody with these scopes."""
    parsed = parse_scopes(set(scopes))
    requester = SimpleNamespace(name=name, kind=kind)
    return SimpleNamespace(
        current_user=requester,
        parsed_scopes=parsed,
        has_scope=lambda scope: has_scope(scope, parsed),
        settings=offering(LESSONS),
    )


OWN, LESSON = {"profile": "test"}, {"profile": "course-lesson"}
STARTS: dict[str, tuple[Any, Mapping[str, str], bool]] = {
    "the user": (request_of("train1", [f"{START_SERVERS}!user=train1"]), OWN, True),
    "the hub itself": (None, OWN, True),
    "who starts everybody's servers": (request_of("portal", [START_SERVERS], "service"), OWN, True),
    "an administrator of the user's servers": (request_of("kim", ["admin:servers!user=train1"]), OWN, True),
    "an instructor, the course": (request_of("ada", [TAUGHT]), LESSON, True),
    "an instructor, another profile": (request_of("ada", [TAUGHT]), OWN, False),
    "an instructor of another course": (request_of("bob", [f"{START_SERVERS}!group=course-maths"]), LESSON, False),
    "a friend with whom the server is shared": (request_of("eve", [f"{START_SERVERS}!server=train1/"]), OWN, False),
    "a service with the user's name": (request_of("train1", [TAUGHT], "service"), OWN, False),
}


@pytest.mark.parametrize(("handler", "options", "starts"), STARTS.values(), ids=STARTS.keys())
async def test_who_may_choose_what_is_started_for_a_user(
    handler: Any, options: Mapping[str, str], starts: bool
) -> None:
    """Whoever else starts a server for somebody gets the profile of a course that they teach, and nothing else."""
    of_train1 = spawner_for("train1", LESSONS)
    of_train1.handler = handler

    try:
        await apply_user_options(of_train1, options)
        refusal = ""
    except web.HTTPError as error:
        refusal = vars(error)["jupyterhub_message"]

    refused = (refusal_of_choice(offering(LESSONS)), "")
    assert (refusal, of_train1.child_profile) == (("", options["profile"]) if starts else refused)


@pytest.mark.parametrize(
    ("extensions", "refusal"),
    [
        (
            [LESSONS],
            "For somebody else you can start a lesson that you give, and nothing else. To choose a profile or options "
            "for them, you need the scope admin:servers.",
        ),
        ([], "To choose a profile or options for somebody else, you need the scope admin:servers."),
    ],
    ids=["lessons", "no extension"],
)
def test_a_refused_choice_names_what_can_be_started_for_somebody_else(
    extensions: Sequence[ProfilesOf], refusal: str
) -> None:
    """Which only an extension knows."""
    assert refusal_of_choice(offering(*extensions)) == refusal


async def test_the_options_of_a_start_are_kept_whatever_else_the_hub_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterHub rolls back what is not committed at the next request, and a hook may take its time."""
    of_train1 = spawner_for("train1", LESSONS)
    monkeypatch.setattr(of_train1, "prepare", lambda _request: None)
    with hub_session(new_database(tmp_path)) as session:
        of_train1.orm_spawner = row = orm.Spawner(name="", user=orm.User(name="train1"), user_options={})
        session.add(row)
        session.commit()
        await apply_user_options(of_train1, OWN)
        session.rollback()

        assert row.user_options == of_train1.user_options == OWN


async def test_a_database_that_goes_away_before_the_choice_is_read_costs_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the folder of profiles is read; the user's groups are read when the database is there again."""
    of_train1, away = spawner_for("train1", LESSONS), [OperationalError("SELECT", {}, Exception("shut down"))]
    prepared, resolve = list[JobRequest](), of_train1.resolve

    def resolve_from_database(options: Mapping[str, object]) -> JobRequest:
        if away:
            raise away[0]
        return resolve(options)

    monkeypatch.setattr("jupyterhub_gpuspawner.hub.site.database.PAUSES", (0.01,))
    monkeypatch.setattr(of_train1, "resolve", resolve_from_database)
    monkeypatch.setattr(of_train1, "prepare", prepared.append)
    with hub_session(new_database(tmp_path)) as session:
        of_train1.orm_spawner = row = orm.Spawner(name="", user=orm.User(name="train1"), user_options={})
        session.add(row)
        session.commit()
        commit = session.commit

        def commit_later() -> None:
            if away:
                raise away.pop()
            commit()

        monkeypatch.setattr(session, "commit", commit_later)
        await apply_user_options(of_train1, OWN)

    assert [request.profile.slug for request in prepared] == ["test"]


POSTED: dict[str, tuple[Any, bool]] = {
    "the course": (LESSON, True),
    "with an option": ({**LESSON, "venv": "/home/ada/venv"}, False),
    "another course": ({"profile": "course-maths"}, False),
    "another profile": (OWN, False),
    "no profile": ({}, False),
    "no text": ({"profile": ["course-lesson"]}, False),
    "no options": ([], False),
}


@pytest.mark.parametrize(("options", "right"), POSTED.values(), ids=POSTED.keys())
def test_what_an_instructor_may_have_stored_for_a_user(options: object, right: bool) -> None:
    """JupyterHub stores what is posted before it asks the spawner."""
    assert may_start_alone(request_of("ada", [TAUGHT]), options) is right


BODIES: dict[str, tuple[object, object]] = {
    "nothing": (None, None),
    "options alone": (OWN, OWN),
    "options": ({"user_options": OWN}, OWN if HAS_DISPLAY_NAMES else {"user_options": OWN}),
    "a name alone": ({"display_name": "Lab"}, None if HAS_DISPLAY_NAMES else {"display_name": "Lab"}),
}


@pytest.mark.oldest
@pytest.mark.parametrize(("body", "options"), BODIES.values(), ids=BODIES.keys())
def test_the_options_in_a_body_are_those_that_jupyterhub_takes(body: object, options: object) -> None:
    """JupyterHub 5 takes all of it."""
    assert posted_options(body) == options


@pytest.mark.parametrize(
    ("user", "refusal"),
    [("train1", ""), ("kim", "kim takes no lessons.")],
)
def test_what_an_extension_offers_is_for_those_to_whom_it_is_offered(user: str, refusal: str) -> None:
    """Others read how they stand; the request says for what the profile is offered."""
    spawner = spawner_for(user, LESSONS)
    try:
        offer = spawner.resolve(LESSON).offer
        told, occasion = "", offer.occasion if offer is not None else None
    except RequestError as error:
        told, occasion = str(error), None

    assert (told, occasion) == (refusal, None if refusal else OCCASION)
    assert spawner.profile_errors() == (FAULT,)


async def test_an_extension_that_fails_to_offer_takes_nothing_from_the_hubs_profiles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor from what another one offers; it is named in the log."""

    def raises(*_: Any) -> Any:
        raise LookupError("of no use")

    spawner = spawner_for("train1", ProfilesOf(raises, raises, raises, raises, raises), LESSONS)
    await spawner.refresh_profiles()

    assert [profile.slug for profile in spawner.offered()] == ["test", "usual", "course-lesson"]
    assert spawner.resolve(LESSON).offered_by == "lesson"
    assert spawner.profile_errors() == (FAULT,)
    assert occasion_of(spawner.user.settings, "course-lesson") == OCCASION
    assert {record.getMessage() for record in caplog.records} == {
        "The extension lessons is left out here, since its profiles_of failed: LookupError: of no use"
    }
