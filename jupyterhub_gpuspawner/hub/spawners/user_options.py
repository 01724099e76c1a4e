"""Applies the user options of one start: JupyterHub's ``apply_user_options``; and who may choose them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyterhub.scopes import Scope

from jupyterhub_gpuspawner.courses.course_profile import PREFIX, group_name
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub.job.ending import database_away, spawn_failure
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, session_of
from jupyterhub_gpuspawner.hub.site.database import TO_START, takes_changes, written
from jupyterhub_gpuspawner.profiles.resolve import JobRequest

FOR_OTHERS = (
    "For somebody else you can start the profile of a course that you teach, and nothing else. To choose a profile or "
    "options for them, you need the scope admin:servers."
)


async def apply_user_options(spawner: Any, user_options: Mapping[str, object]) -> None:
    """Check the options of form, link or REST, store them normalised, and build the child of a profiles spawner."""
    await spawner.refresh_profiles()
    if not await takes_changes(spawner.orm_spawner, TO_START):  # whom a profile is for is read from the database
        raise database_away()
    try:
        request = spawner.resolve(user_options)
        spawner.prepare(request)
    except GPUSpawnerError as error:
        raise spawn_failure(error, server=spawner._log_name, contact=spawner.contact) from error  # noqa: SLF001 - ours
    spawner.user_options = dict(request.options)
    session = session_of(spawner.orm_spawner)
    if session is None:
        return

    def write() -> None:
        spawner.orm_spawner.user_options = dict(request.options)
        session.commit()

    # at once: JupyterHub rolls back at the next request of anybody what a hook that awaits has left uncommitted
    if not await written(session, write, TO_START):
        raise database_away()


def chooses_freely(handler: Any, user_name: str) -> bool:
    """Whether the sender of a request may choose the profile and options of a user's servers.

    They decide what runs as the user, so that is the user alone, and who starts the servers of all users or administers
    this user's. Others can start servers for the sake of a course, or since one was shared with them.
    """
    requester = handler.current_user
    if requester.kind == "user" and requester.name == user_name:
        return True
    everybody = handler.parsed_scopes.get(START_SERVERS) is Scope.ALL
    return everybody or bool(handler.has_scope(f"admin:servers!user={user_name}"))


def is_taught_course(handler: Any, options: Any) -> bool:
    """Whether these options name the profile of a course whose servers the sender of a request may start, alone."""
    profile = options.get("profile") if isinstance(options, dict) and len(options) == 1 else None
    return isinstance(profile, str) and profile.startswith(PREFIX) and _may_start(handler, profile.removeprefix(PREFIX))


def refuse_choice_of_others(spawner: Any, request: JobRequest) -> None:
    """Raise RequestError where somebody starts for another user what is not a course of theirs.

    A start without a request is the hub's own.
    """
    handler = spawner.handler
    if handler is None or chooses_freely(handler, spawner.user.name):
        return
    if not request.course or not _may_start(handler, request.course):
        raise RequestError(FOR_OTHERS, field="profile")


def _may_start(handler: Any, course: str) -> bool:
    return bool(handler.has_scope(f"{START_SERVERS}!group={group_name(course)}"))
