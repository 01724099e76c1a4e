"""``GET /hub/api/gpuspawner/profiles[/user]`` and ``POST /hub/api/gpuspawner/trial[/user]``: profiles and dry runs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

from jupyterhub_gpuspawner.cluster.availability import Chance
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.api.profiles_document import profiles_document, trial_document
from jupyterhub_gpuspawner.hub.api.trial import Trial, trial_of
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.site.account import allowed_groups, job_owner
from jupyterhub_gpuspawner.hub.site.profile_status import profile_statuses
from jupyterhub_gpuspawner.hub.spawners.server import job_ids_of, with_profiles
from jupyterhub_gpuspawner.hub.start.build import site_defaults

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.errors import GPUSpawnerError
    from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner

BODY_LIMIT = 65536
"""Bytes at most of the body of a trial."""


class OfUser(APIHandler):
    """A handler for one user: the caller, or the user that the address names."""

    def asked_user(self, user_name: str | None) -> str:
        """The user's name; raises 403 without credentials, 400 for a service that names no user."""
        if self.current_user is None:
            raise web.HTTPError(403, "Missing or invalid credentials.")
        if not user_name and not isinstance(self.current_user, User):
            raise web.HTTPError(400, "A service must name a user in the URL.")
        return user_name or str(self.current_user.name)

    def spawner_of(self, user_name: str) -> GPUProfilesSpawner:
        """The spawner of the user's default server, running or not; raises 404 for an unknown user or no profiles."""
        user = self.find_user(user_name)
        spawner = with_profiles(user.spawners[""]) if user is not None else None
        if spawner is None:
            raise web.HTTPError(404, "There is no such user, or this hub offers no profiles.")
        return spawner

    def refuse(self, error: GPUSpawnerError, **more: str) -> None:
        """Answer with what the caller may know of the error; an administrator also reads its ``detail``."""
        if not isinstance(error, RequestError):
            self.log.error("%s %s: %s", self.request.method, self.request.path, error)
        if error.for_admin and is_admin(self.parsed_scopes):
            more["detail"] = error.for_admin
        self.set_status(error.status_code)
        answer = {"status": error.status_code, "message": error.told, "reason": error.reason, **more}
        self.finish(json.dumps(answer))


class ProfilesHandler(OfUser):
    """The profiles that a user may start, the options of each, and when it would start now."""

    async def get(self, user_name: str | None = None) -> None:
        """The profiles document, version 1, of the user or the caller. Needs the scope `servers` for that user."""
        await self._answer(self.asked_user(user_name))

    @needs_scope("servers")
    async def _answer(self, user_name: str) -> None:
        spawner = self.spawner_of(user_name)
        await spawner.look_at_profiles()
        try:
            offered = spawner.offered()
            site = spawner.slurm_site()
            connection, defaults = site.connection(), site_defaults(site)
        except ConfigError as error:
            self.refuse(error)
            return
        snapshot = await connection.cluster.recent() if any(profile.kind == "slurm" for profile in offered) else None
        owner = job_owner(site.exec_prefix, user_name)
        found = profile_statuses(
            offered,
            username=user_name,
            groups=spawner.groups_of_user(),
            snapshot=snapshot,
            now=datetime.now().astimezone(),
            defaults=defaults,
            owner=owner,
            own_jobs=job_ids_of([spawner.user]),
            unix_groups=await allowed_groups(snapshot, owner),
            site_queue_limit=site.queue_limit,
        )
        document = profiles_document(found, snapshot, silent=connection.silent)
        self.write(json.dumps(document.to_json()))


class TrialHandler(OfUser):
    """A dry run of a choice: Slurm is asked as the user, and no job is created."""

    async def post(self, user_name: str | None = None) -> None:
        """The trial document, version 1, for a body ``{"user_options": {...}}``; 400 with the `field` at fault."""
        await self._answer(self.asked_user(user_name))

    @needs_scope("servers")
    async def _answer(self, user_name: str) -> None:
        spawner = self.spawner_of(user_name)
        options = self._options()
        await spawner.look_at_profiles()
        try:
            request = spawner.resolve(options)
            trial = NOT_SLURM.get(request.kind) or await trial_of(spawner.rehearsal(request))
        except RequestError as error:
            self.refuse(error, field=error.field)
            return
        except ConfigError as error:
            self.refuse(error)
            return
        self.write(json.dumps(trial_document(trial).to_json()))

    def _options(self) -> dict[str, Any]:
        if len(self.request.body) > BODY_LIMIT:
            raise web.HTTPError(413, f"The options are larger than {BODY_LIMIT} bytes.")
        body = self.get_json_body()
        options = body.get("user_options", {}) if isinstance(body, dict) else None
        if not isinstance(options, dict) or set(body) - {"user_options"}:
            raise web.HTTPError(400, 'The body must be {"user_options": {...}}.')
        return options


NOT_SLURM = {
    "local": Trial(Chance.NOW, "starts at once, on the hub's own machine"),
    "other": Trial(Chance.UNKNOWN, "starts without Slurm"),
}
"""By a profile's kind."""

HANDLERS = [
    (r"/api/gpuspawner/profiles", ProfilesHandler),
    (r"/api/gpuspawner/profiles/([^/]+)", ProfilesHandler),
    (r"/api/gpuspawner/trial", TrialHandler),
    (r"/api/gpuspawner/trial/([^/]+)", TrialHandler),
]
