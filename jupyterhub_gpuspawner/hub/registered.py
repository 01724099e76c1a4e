"""Whether the hub of this process has been set up with this package, as :mod:`.registration` records it."""

from __future__ import annotations

import sys
from weakref import WeakSet

from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.errors import ConfigError

_HUBS: WeakSet[JupyterHub] = WeakSet()


def this_hub() -> JupyterHub | None:
    """Return the hub of this process; None in other programs, and in a hub that is still being constructed."""
    app = sys.modules.get("jupyterhub.app")  # not imported for this: it takes half a second
    return app.JupyterHub.instance() if app is not None and app.JupyterHub.initialized() else None


def record(hub: JupyterHub) -> bool:
    """Record that ``hub`` is set up with this package; return False if it was recorded before."""
    new = hub not in _HUBS
    _HUBS.add(hub)
    return new


def require_registration() -> None:
    """Raise ConfigError in a hub that was set up without this package; do nothing in other programs."""
    hub = this_hub()
    if hub is not None and hub not in _HUBS:
        raise ConfigError(
            "this hub was set up without jupyterhub-gpuspawner, so no server can report to it.",
            where="c.JupyterHub.spawner_class",
            hint='Set it to "gpu-profiles", or to a subclass of a spawner imported from jupyterhub_gpuspawner.',
        )
