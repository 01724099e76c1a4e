"""The shell lines that have each of a job's other nodes report what the job has there.

One ``srun`` in the background starts the launcher on every node but the first, for the second that it takes. ``srun``
creates one job step and so asks slurmctld the same few questions for two nodes as for sixteen. The launcher travels in
two environment variables of the step: if a node does not answer, ``srun`` sends no standard input to the others either.
Nothing is installed or left on the nodes.

``srun`` starts once the server's own launcher is done, and the launchers on the nodes have a low priority, so that the
server starts as soon as without them.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import BOOT

LONGEST = 131072
"""Bytes of an environment variable, with its name, that Linux accepts (``MAX_ARG_STRLEN``)."""
PIECE = 120000
"""Bytes of the launcher in the first of the two."""

MAIN = "jupyterhub_gpuspawner.extensions.several_nodes.node.other_node:main"


def other_nodes() -> str:
    """Lines for a job on several nodes; they follow those of :mod:`.shell` that find Python."""
    values = {"@PIECE@": str(PIECE), "@REST@": str(PIECE + 1), "@BOOT@": shlex.quote(BOOT), "@MAIN@": MAIN}
    script = Path(__file__).with_name("other_nodes.sh").read_text("utf-8").rstrip("\n")
    for name, value in values.items():
        script = script.replace(name, value)
    return script
