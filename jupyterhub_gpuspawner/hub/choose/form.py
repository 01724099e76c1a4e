"""The HTML of the form: profiles as radio buttons, each with its options. It works without JavaScript."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.choose import words
from jupyterhub_gpuspawner.hub.choose.offer import (
    VISIT,
    FilledIn,
    Visit,
    filled_in_with_fault,
    of_a_form,
    of_a_link,
    of_the_last_time,
    offers,
    with_courses,
)
from jupyterhub_gpuspawner.hub.job.ending import contact_of
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner
from jupyterhub_gpuspawner.hub.site.profile_status import profile_statuses
from jupyterhub_gpuspawner.hub.spawners.server import job_ids_of
from jupyterhub_gpuspawner.hub.start.build import site_defaults
from jupyterhub_gpuspawner.profiles.profile import doubts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.courses.course_profile import CourseProfile
    from jupyterhub_gpuspawner.hub.choose.offer import Offer
    from jupyterhub_gpuspawner.hub.site.connection import Connection
    from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resources import Resources


# The form's initial values: from a link, from a request that was refused, from the last start, or the defaults.

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Check = Callable[[Mapping[str, object]], object]
    """Raises RequestError for user options that are not allowed."""


# One request of the page on which a server is chosen: what page and form tell each other.


FIRST_PATIENCE = 2.0
"""Seconds that the page waits for Slurm while nothing is known about the cluster."""
PATIENCE = 0.5
"""Seconds that it waits where older data is there to be shown, with its age."""


async def render_form(spawner: GPUProfilesSpawner) -> str:
    """The HTML of this user's form; every text in it is escaped."""
    await spawner.refresh_profiles()
    offered = _offered(spawner)
    connection, defaults, owner, site_queue_limit = _site(spawner, offered)
    snapshot = None
    if connection is not None:
        cluster = connection.cluster
        snapshot = await cluster.recent(patience=PATIENCE if cluster.latest is not None else FIRST_PATIENCE)
    visit = VISIT.get() or Visit()
    visit.filled_in = _filled_in(spawner, visit)
    now = datetime.now().astimezone()
    statuses = profile_statuses(
        offered,
        username=spawner.user.name,
        groups=spawner.groups_of_user(),
        snapshot=snapshot,
        now=now,
        defaults=defaults,
        owner=owner,
        own_jobs=job_ids_of([spawner.user]),
        unix_groups=await allowed_groups(snapshot, owner),
        site_queue_limit=site_queue_limit,
        choice={"profile": visit.filled_in.profile, **visit.filled_in.values},
    )
    if visit.posted is None:
        visit.filled_in = filled_in_with_fault(statuses, visit.filled_in, linked=bool(visit.linked))
    profile_offers = offers(statuses, visit.filled_in, base_url=_base_url(spawner), snapshot=snapshot)
    profile_offers = with_courses(profile_offers, _courses(spawner), visit.filled_in)
    visit.fault_at = fault_at(profile_offers, visit.filled_in)
    visit.closed = nothing_to_start(profile_offers, contact_of(spawner))
    return form_html(
        profile_offers,
        now=now.timestamp(),
        silent=connection is not None and (connection.silent or snapshot is None),
        as_of=snapshot.taken_at if snapshot is not None else None,
        faults=_faults(spawner),
        doubts=_doubts(spawner, offered),
    )


def form_html(
    profile_offers: Sequence[Offer],
    *,
    now: float = 0.0,
    silent: bool = False,
    as_of: float | None = None,
    faults: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> str:
    """The HTML of these offers; ``now`` in seconds since the epoch, ``faults`` and ``doubts`` for administrators.

    ``silent``: Slurm does not respond, and availability is as of ``as_of``, or unknown.
    """
    template = _environment().get_template("options_form.html")
    html = template.render(offers=profile_offers, now=now, silent=silent, as_of=as_of, faults=faults, doubts=doubts)
    return re.sub(r"\s*\n\s*", "\n", html)  # the template's indentation is a third of it


async def render_question(spawner: GPUProfilesSpawner | None) -> str:
    """The HTML in place of a form where the admin wants none: what one click starts.

    ``spawner`` is None in a hub without profiles.
    """
    visit = VISIT.get() or Visit()
    choice: Mapping[str, object] = {}
    if visit.linked and spawner is not None:
        await spawner.refresh_profiles()
        visit.filled_in = _filled_in(spawner, visit)
        choice = {"profile": visit.filled_in.profile, **visit.filled_in.values}
    return _environment().get_template("question.html").render(choice=choice)


def nothing_to_start(profile_offers: Sequence[Offer], contact: str) -> str:
    """Why no server can be started, whatever is chosen; empty where one can, or could."""
    if not profile_offers:
        return words.NO_PROFILE.format(contact=contact)
    return words.ALL_CLOSED if all(offer.closed for offer in profile_offers) else ""


def fault_at(profile_offers: Sequence[Offer], filled_in: FilledIn) -> str:
    """The id of the field at which the error is shown; empty where it belongs to no field."""
    checked = next((offer for offer in profile_offers if offer.checked), None)
    if not filled_in.fault or checked is None:
        return ""
    return next((field.name for field in checked.fields if field.fault), checked.id if filled_in.field else "")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("jupyterhub_gpuspawner.hub.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["say"] = words
    environment.globals["gpuspawner"] = {"times": times}
    return environment


def _offered(spawner: GPUProfilesSpawner) -> tuple[Profile, ...]:
    try:
        return spawner.offered()
    except ConfigError as error:
        spawner.log.error("No profiles can be offered: %s", error)  # noqa: TRY400 - the message is enough
        return ()


def _courses(spawner: GPUProfilesSpawner) -> tuple[CourseProfile, ...]:
    try:
        return spawner.course_profiles()
    except ConfigError:  # logged where the profiles are read
        return ()


def _site(
    spawner: GPUProfilesSpawner, offered: Sequence[Profile]
) -> tuple[Connection | None, Resources | None, str, int | None]:
    """The connection to Slurm, the site's defaults, the jobs' owner and the queue's limit.

    All empty where no profile uses Slurm.
    """
    if not any(profile.kind == "slurm" for profile in offered):
        return None, None, "", None
    try:
        owner = job_owner(spawner.exec_prefix, spawner.user.name)
        return spawner.connection(), site_defaults(spawner.site_settings()), owner, spawner.site_queue_limit
    except ConfigError as error:
        spawner.log.error("Availability cannot be shown: %s", error)  # noqa: TRY400
        return None, None, "", None


def _filled_in(spawner: GPUProfilesSpawner, visit: Visit) -> FilledIn:
    try:
        if visit.posted is not None:
            return of_a_form(visit.posted, visit.refusal)
        if visit.linked:
            return of_a_link(visit.linked, spawner.resolve)
        return of_the_last_time(spawner.user_options, spawner.resolve)
    except ConfigError:  # logged where the profiles are read
        return FilledIn()


def _base_url(spawner: GPUProfilesSpawner) -> str:
    return str(spawner.hub.base_url) if spawner.hub is not None else "/hub/"


def _faults(spawner: GPUProfilesSpawner) -> tuple[str, ...]:
    """Faults in files of profiles, for administrators: paths and fields are nobody else's business."""
    return tuple(str(error) for error in spawner.profile_errors()) if _for_an_admin(spawner) else ()


def _doubts(spawner: GPUProfilesSpawner, offered: Sequence[Profile]) -> tuple[str, ...]:
    """Values of profiles that are almost surely mistakes, for administrators."""
    return tuple(doubt for profile in offered for doubt in doubts_of(profile)) if _for_an_admin(spawner) else ()


def _for_an_admin(spawner: GPUProfilesSpawner) -> bool:
    reader = spawner.handler.current_user if spawner.handler is not None else None
    return reader is not None and bool(reader.admin)
