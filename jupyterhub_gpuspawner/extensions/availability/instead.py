"""The profiles that would start now, for a user whose server waits in the queue, and a start of one in its place.

They are judged as on the form, by the last snapshot of the cluster that all pages share: a page asks Slurm nothing. A
place is given up only for a profile that is still free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from markupsafe import Markup
from tornado import web

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.extensions.availability import words
from jupyterhub_gpuspawner.extensions.availability.forecast import forecast_of, site_of
from jupyterhub_gpuspawner.hub.choose.offer import ProfileStatus, statuses_of
from jupyterhub_gpuspawner.hub.server.waiting import OF_THIS_PAGE, SwitchPage
from jupyterhub_gpuspawner.hub.spawners.offers import chooses_freely, refusal_of_choice
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import server_of, with_profiles
from jupyterhub_gpuspawner.hub.start.attempt import Line
from jupyterhub_gpuspawner.hub.web.handlers import pending_url, server_named
from jupyterhub_gpuspawner.profiles.resolve import ALTERNATIVES
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.gpu_model import gpu_model

AT_MOST = 2
"""Alternatives that a page shows."""
MAX_AGE = 90.0
"""Seconds; an older snapshot no longer says what is free now. While servers wait there is a new one every minute."""


@dataclass(frozen=True)
class Alternative:
    """A profile that would start now, with each option at its default."""

    slug: str
    display_name: str
    gets: tuple[str, ...]
    """Its resources, in a few words each."""


async def alternatives(spawner: GPUProfilesSpawner, *, fresh: bool = False) -> tuple[Alternative, ...]:
    """What the user of this waiting server could start now, the closest to what was asked for first.

    ``fresh``: by a snapshot that is as new as the form's.
    """
    try:
        offered = spawner.offered()
        site = site_of(spawner, offered)
        wanted = spawner.resolve(spawner.user_options)
        if fresh:
            await site.snapshots()
        statuses = statuses_of(spawner, offered, await forecast_of(spawner, site, site.latest, max_age=MAX_AGE))
    except (ConfigError, RequestError):  # logged where the profiles are read; its profile is no longer offered
        return ()
    return tuple(
        Alternative(status.profile.slug, status.profile.display_name, status.gets)
        for status in closest(wanted.resources, statuses)
    )


def closest(wanted: Resources, statuses: Sequence[ProfileStatus]) -> tuple[ProfileStatus, ...]:
    """The profiles that start now and request something else than ``wanted``, the closest one first.

    For GPUs: the same model, or at least as much GPU memory; then other GPUs; then none. Without GPUs: others without
    GPUs first. Among these the number of GPUs that is nearest to what was asked for, then the order of the profiles.
    """
    free = (
        (status, status.resources)
        for status in statuses
        if status.availability is not None and status.availability.chance is Chance.NOW
    )
    others = [(status, resources) for status, resources in free if resources is not None and resources != wanted]
    return tuple(other for other, resources in sorted(others, key=lambda pair: _distance(wanted, pair[1])))


def _distance(request: Resources, offered: Resources) -> tuple[int, int]:
    wanted, count = _count(request), _count(offered)
    if not wanted or not count:
        return (0 if wanted == count else 2), abs(wanted - count)
    return (0 if _as_powerful(request, offered) else 1), abs(wanted - count)


def _count(resources: Resources) -> int:
    """GPUs in all; a request for shards counts as one, since they are parts of a GPU."""
    return (resources.gpus or min(resources.shards or 0, 1)) * resources.node_count


def _as_powerful(wanted_resources: Resources, offered: Resources) -> bool:
    """Whether each GPU is of the same model, or has at least as much memory; any GPU will do where none was named."""
    if bool(wanted_resources.shards) != bool(offered.shards):
        return False
    if not wanted_resources.gpu_type:
        return True
    if not offered.gpu_type:
        return False
    wanted, model = gpu_model(wanted_resources.gpu_type), gpu_model(offered.gpu_type)
    if wanted.name == model.name and None in (wanted.memory_gb, model.memory_gb):
        return True
    return wanted.memory_gb is not None and model.memory_gb is not None and model.memory_gb >= wanted.memory_gb


NOT_FREE = f"{OF_THIS_PAGE}not-free"
"""Query parameter of the page that follows: the profile was no longer free, and the place is kept."""


class InsteadPage(SwitchPage):
    """Starts a profile that is free in place of a server that waits, then redirects to its page."""

    _taken = False

    async def wanted(self, spawner: GPUProfilesSpawner) -> Mapping[str, str]:
        """The choice of the profile; empty where it is not free, or is the one that waits."""
        slug = self.get_body_argument("profile", "")
        if spawner.child_profile == slug:
            return {}
        self._taken = slug not in (alternative.slug for alternative in await alternatives(spawner, fresh=True))
        return {} if self._taken else {"profile": slug}

    def not_switched(self) -> dict[str, str]:
        """Says on the page that follows that the profile is no longer free."""
        return {NOT_FREE: "1"} if self._taken else {}


class AlternativesPage(BaseHandler):
    """Stores what is accepted as well in place of a server that waits, then redirects to its page."""

    @web.authenticated
    @needs_scope("servers")
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to the page of the server; changes nothing where it no longer waits."""
        user, spawner_named = server_named(self, user_name, server_name)
        spawner = with_profiles(spawner_named)
        if not chooses_freely(self, user_name):
            raise web.HTTPError(403, "%s", refusal_of_choice(self.settings))
        if spawner is not None and server_of(spawner, with_start=False).waits_in_line:
            accepted = ",".join(self.get_body_arguments(ALTERNATIVES))
            options = {**spawner.user_options, ALTERNATIVES: accepted}
            try:
                spawner.resolve(options)
            except RequestError as error:
                raise web.HTTPError(400, "%s", error.for_user) from error
            spawner.user_options = options
            if spawner.orm_spawner is not None:
                spawner.orm_spawner.user_options = options
                self.db.commit()
        self.redirect(pending_url(self.hub.base_url, user, server_name), status=303)


def _acceptable(spawner: GPUProfilesSpawner) -> Mapping[str, str]:
    """The names of what may be accepted in place of a server that waits, by slug."""
    try:
        return {request.profile.slug: request.profile.display_name for request in spawner.alternatives()}
    except ConfigError:  # logged where the profiles are read
        return {}


async def below_wait(handler: BaseHandler, spawner: Any) -> Markup:
    """What is free instead of a server that waits, each with a button."""
    server, profiles = server_of(spawner, with_start=False), with_profiles(spawner)
    waits = server.pending == "spawn" and server.line is Line.WAITING
    own = spawner.user is handler.current_user
    html = await handler.render_template(
        "gpuspawner_instead.html",
        user=spawner.user,
        server_name=spawner.name,
        instead=(await alternatives(profiles))[:AT_MOST] if profiles is not None and waits else (),
        next=handler.get_query_argument("next", ""),
        switch_note=words.not_free(own=own) if NOT_FREE in handler.request.arguments and server.waits_in_line else "",
        own=own,
        acceptable=_acceptable(profiles) if profiles is not None and server.waits_in_line else {},
        accepted=str(spawner.user_options.get(ALTERNATIVES, "")).split(","),
        looks=profiles is not None and profiles.may_look,
    )
    return Markup(html)  # noqa: S704 - the template has escaped its texts
