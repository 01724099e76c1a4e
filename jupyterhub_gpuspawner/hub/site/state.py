"""What a hub keeps in memory as long as it runs: one object, in its tornado settings.

A class that has one object for each hub is made when it is first asked for: ``state.of(IdleServers)``. A spawner or a
program outside of a hub has a state of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.jupyterhub_compat import this_hub

T = TypeVar("T")
KEY = "gpuspawner"
"""Where the object is in tornado's settings (``handler.settings``, ``user.settings``)."""


class HubState:
    """The objects of one hub, by their class."""

    def __init__(self) -> None:
        self._objects: dict[type, Any] = {}

    def of(self, kind: type[T]) -> T:
        """The hub's object of this class; made without arguments where there is none yet."""
        if kind not in self._objects:
            self.keep(kind())
        instance: T = self._objects[kind]
        return instance

    def keep(self, instance: object) -> None:
        """Have this be the hub's object of its class."""
        self._objects[type(instance)] = instance

    def __contains__(self, kind: type) -> bool:
        return kind in self._objects


def state_of(settings: Mapping[str, Any]) -> HubState:
    """The state of the hub with these tornado settings; a new one for what is no hub that was set up."""
    state: HubState | None = settings.get(KEY)
    return HubState() if state is None else state


def state_for(spawner: Any) -> HubState:
    """The state of this spawner's hub; a new one outside of a hub."""
    return state_of(getattr(spawner.user, "settings", None) or {})


def set_up(app: JupyterHub) -> bool:
    """Give a hub its state, whatever its configuration sets afterwards; False if it has one."""
    if KEY in app.tornado_settings:
        return False
    state = app.tornado_settings[KEY] = HubState()
    app.observe(lambda change: change.new.setdefault(KEY, state), "tornado_settings")
    return True


def require_set_up() -> None:
    """Raise ConfigError in a hub that was set up without this package; do nothing in other programs."""
    hub = this_hub()
    if hub is not None and KEY not in hub.tornado_settings:
        raise ConfigError(
            "this hub was set up without jupyterhub-gpuspawner, so no server can report to it.",
            where="c.JupyterHub.spawner_class",
            hint='Set it to "gpu-profiles", or to a subclass of a spawner imported from jupyterhub_gpuspawner.',
        )
