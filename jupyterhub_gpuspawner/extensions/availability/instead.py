"""The profiles that would start now, for a user whose server waits in the queue, and a start of one in its place.

They are judged as on the form, by the last snapshot of the cluster that all pages share: a page asks Slurm nothing. A
place is given up only for a profile that is still free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from markupsafe import Markup
from tornado import web

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.extensions.availability import words
from jupyterhub_gpuspawner.extensions.availability.forecast import forecast_of, site_of
from jupyterhub_gpuspawner.hub.choose.gets import Gets
from jupyterhub_gpuspawner.hub.choose.likeness import closest
from jupyterhub_gpuspawner.hub.choose.offer import free, statuses_of
from jupyterhub_gpuspawner.hub.server.waiting import OF_THIS_PAGE, SwitchPage
from jupyterhub_gpuspawner.hub.spawners.offers import chooses_freely, refusal_of_choice
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import server_of, with_profiles
from jupyterhub_gpuspawner.hub.start.attempt import Line
from jupyterhub_gpuspawner.hub.web.handlers import pending_url, server_named
from jupyterhub_gpuspawner.profiles.resolve import ALTERNATIVES

AT_MOST = 3
"""Alternatives that a page shows."""
MAX_AGE = 90.0
"""Seconds; an older snapshot no longer says what is free now. While servers wait there is a new one every minute."""


@dataclass(frozen=True)
class Alternative:
    """A profile that would start now, with each option at its default."""

    slug: str
    display_name: str
    gets: Gets
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
    starts_now = {status.profile.slug: status for status, _ in free(statuses)}
    nearest = closest(wanted.resources, {status.profile.slug: resources for status, resources in free(statuses)})
    return tuple(
        Alternative(slug, starts_now[slug].profile.display_name, starts_now[slug].gets or Gets()) for slug in nearest
    )


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
