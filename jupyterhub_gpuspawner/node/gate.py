"""The command of an application that runs behind the hub's sign-in: the Python that has jupyter-server-proxy."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PROXY = "jupyter-standaloneproxy"
"""A command of jupyter-server-proxy, which shows which Python has it."""
RUN_GATE = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]; import gpuspawner_gate as gate; gate.main()"
)
"""Runs ``singleuser/gpuspawner_gate.py`` from the launcher's archive."""


def behind(words: Sequence[str], environ: Mapping[str, str], complain: Callable[[str], None]) -> list[str]:
    """The command for ``words``: that which would start JupyterLab, and the arguments of the gate.

    jupyter-server-proxy is looked for beside the first of them and in the PATH. Exits with 127 where there is none:
    without it the application must not start.
    """
    folders = (os.path.dirname(words[0]), environ.get("PATH"))
    proxy = shutil.which(PROXY, path=os.pathsep.join(filter(None, folders)))
    if proxy is None:
        complain(f"{PROXY}: no such command; the job's environment needs jupyterhub and jupyter-server-proxy >= 4.6")
        raise SystemExit(127)
    with open(proxy, "rb") as file:
        first = file.readline(4096).decode(errors="replace")
    named = [word for word in first[2:].split() if os.path.basename(word).startswith("python")]
    python = named[0] if first.startswith("#!") and named else os.path.join(os.path.dirname(proxy), "python3")
    return [python, "-c", RUN_GATE, environ.get("GPUSPAWNER_LAUNCHER", ""), *words[1:]]
