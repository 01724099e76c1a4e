"""``DELETE /hub/api/users/USER/server`` of JupyterHub, which remembers who asked it to stop the server."""

from __future__ import annotations

from typing import Any

from jupyterhub.apihandlers.users import UserServerAPIHandler

from jupyterhub_gpuspawner.hub.spawners.stop_record import note_stopper, stopper_of


class ServerHandler(UserServerAPIHandler):
    """JupyterHub's handler; the session's record says who stopped the server."""

    async def stop_single_user(self, user: Any, server_name: str = "") -> Any:
        """JupyterHub calls this once it has checked that the requester may stop the server."""
        stopper = stopper_of(self.current_user, user, self.parsed_scopes)
        note_stopper(user.spawners[server_name], stopper)
        return await super().stop_single_user(user, server_name)
