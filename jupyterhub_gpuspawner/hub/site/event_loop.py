"""Keeps the hub's event loop going beside threads and the collection of garbage.

Large answers of Slurm are read in threads, which share the interpreter's lock with the event loop. By default a thread
keeps it for 5 ms at a time, and the event loop needs it for each of its turns.

A full collection visits every object of the process and holds the event loop meanwhile: 0.2 seconds for the modules,
tables and handlers of a hub alone. Those live as long as the hub does, so they are set aside once (gc.freeze), before
the hub restores its servers: what is set aside and refers to itself, as spawners do, is never freed.
"""

from __future__ import annotations

import gc
import sys

from jupyterhub.app import JupyterHub

SWITCH_SECONDS = 0.001
"""How long a thread that computes keeps the event loop waiting for the interpreter's lock."""


def set_aside() -> None:
    """Collect what is garbage now, and leave all other objects out of later collections."""
    gc.collect()
    gc.freeze()


def begin_garbage(app: JupyterHub) -> None:  # noqa: ARG001 - as each work of a hub that begins
    """Have threads give way to the event loop, and set aside what the hub has loaded; it has no servers yet."""
    sys.setswitchinterval(SWITCH_SECONDS)
    set_aside()
