"""A spawner that a hub's configuration names brings the rest of this package with it, whichever way it is named.

``gpu-profiles`` and ``jupyterhub_gpuspawner.GPUProfilesSpawner`` come through the package's own ``__getattr__``. But a
class can be had from the module that defines it, too, and that may have been imported long before the hub was there.
So these modules look at who takes a spawner from them (``__class__`` of a module, see the Python data model).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class SpawnerModule(ModuleType):
    """A module that registers this package with the hub of this process, when a spawner is taken from it."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("GPU") and "jupyterhub.app" in sys.modules:
            import_module("jupyterhub_gpuspawner.hub.registration").register()
        return found


def watch(module: str) -> None:
    """Let the spawners of ``module`` be watched."""
    sys.modules[module].__class__ = SpawnerModule


def require() -> None:
    """Raise ConfigError in a hub that has been set up without this package; pass where there is no hub."""
    if "jupyterhub.app" in sys.modules:
        import_module("jupyterhub_gpuspawner.hub.registration").require()
