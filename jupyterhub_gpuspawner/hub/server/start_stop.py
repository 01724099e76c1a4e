"""``/hub/api/users/USER/server`` of JupyterHub: what others may start for a user, and who asked for a stop."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jupyterhub.apihandlers.users import UserServerAPIHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, posted_options
from jupyterhub_gpuspawner.hub.spawners.stop_record import note_stopper, stopper_of
from jupyterhub_gpuspawner.hub.spawners.user_options import FOR_OTHERS, chooses_freely, is_taught_course


class ServerHandler(UserServerAPIHandler):
    """JupyterHub's handler; the session's record says who stopped the server.

    JupyterHub stores the options that come with a request before any spawner sees them, and the user's next start has
    them. So what somebody may not choose for a user is refused here, and once more when it is to be started.
    """

    @needs_scope(START_SERVERS)
    async def post(self, user_name: str, server_name: str = "") -> None:
        """Start a server."""
        options = posted_options(self.get_json_body())
        if options is not None and not is_taught_course(self, options):
            self._only_free(user_name)
        await super().post(user_name, server_name)

    @needs_scope(START_SERVERS)
    async def put(self, user_name: str, server_name: str = "") -> None:
        """Create a named server with its options (JupyterHub 6)."""
        self._only_free(user_name)
        await super().put(user_name, server_name)

    @needs_scope(START_SERVERS)
    async def patch(self, user_name: str, server_name: str = "") -> None:
        """Rename a server, or change its options (JupyterHub 6)."""
        self._only_free(user_name)
        await super().patch(user_name, server_name)

    def _only_free(self, user_name: str) -> None:
        if not chooses_freely(self, user_name):
            raise web.HTTPError(HTTPStatus.FORBIDDEN, "%s", FOR_OTHERS)

    async def stop_single_user(self, user: Any, server_name: str = "") -> Any:
        """JupyterHub calls this once it has checked that the requester may stop the server."""
        stopper = stopper_of(self.current_user, user, self.parsed_scopes)
        note_stopper(user.spawners[server_name], stopper)
        return await super().stop_single_user(user, server_name)
