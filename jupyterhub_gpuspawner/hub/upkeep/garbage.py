"""Leave the objects of a started hub out of Python's garbage collections.

A full collection visits every object of the process and holds the event loop meanwhile: 0.2 seconds for the modules,
tables and handlers of a hub alone. Those live as long as the hub does, so they are set aside once, when it has started
(gc.freeze). What is made later is collected as before.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.site.tasks import every

if TYPE_CHECKING:
    from jupyterhub.app import JupyterHub


def set_aside() -> None:
    """Collect what is garbage now, and leave all other objects out of later collections."""
    gc.collect()
    gc.freeze()


def begin_garbage(app: JupyterHub) -> None:
    """Set the objects of the hub aside once it has started."""
    every(app, 0, set_aside, "Setting the hub's objects aside from garbage collections")
