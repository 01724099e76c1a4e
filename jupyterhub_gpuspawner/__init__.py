"""JupyterHub on the GPUs of a Slurm cluster.

Spawners are imported on first access (PEP 562), so that the launcher on the compute
node, which shares this package's core, never imports JupyterHub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner

__version__ = "0.1.0"
__all__ = ["GPUProfilesSpawner", "GPUSlurmSpawner", "__version__"]

_LAZY = {
    "GPUProfilesSpawner": "jupyterhub_gpuspawner.hub.spawners.profiles",
    "GPUSlurmSpawner": "jupyterhub_gpuspawner.hub.spawners.slurm",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        value: object = getattr(import_module(_LAZY[name]), name)
        # a hub's configuration takes a spawner of ours from here, by entry point or by name
        import_module("jupyterhub_gpuspawner.hub.registration").register()
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
