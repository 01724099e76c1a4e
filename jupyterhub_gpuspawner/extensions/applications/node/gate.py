"""The command of an application that runs behind the hub's sign-in: the Python that has jupyter-server-proxy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROXY = "jupyter-standaloneproxy"
"""A command of jupyter-server-proxy, which shows which Python has it."""
RUN_GATE = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]; import gpuspawner_gate as gate; gate.main()"
)
"""Runs ``gpuspawner_gate.py`` from the launcher's archive."""


def command(_settings: object, words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command for ``words``: a mark, the command that would start JupyterLab, and the arguments of the gate.

    jupyter-server-proxy is looked for beside the latter and in the PATH. Raises CommandError where there is none:
    without it the application must not start.
    """
    import shutil

    folders = (os.path.dirname(words[1]), environ.get("PATH"))
    proxy = shutil.which(PROXY, path=os.pathsep.join(filter(None, folders)))
    if proxy is None:
        child.complain(
            f"{PROXY}: no such command; the job's environment needs jupyterhub and jupyter-server-proxy >= 4.6"
        )
        raise child.CommandError(child.NO_COMMAND, PROXY)
    with open(proxy, "rb") as file:
        first = file.readline(4096).decode(errors="replace")
    named = [word for word in first[2:].split() if os.path.basename(word).startswith("python")]
    python = named[0] if first.startswith("#!") and named else os.path.join(os.path.dirname(proxy), "python3")
    return [python, "-c", RUN_GATE, environ.get("GPUSPAWNER_LAUNCHER", ""), *words[2:]]
