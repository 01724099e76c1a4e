"""``gpuspawner-run`` beside the launcher, where the server and its terminals find it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.folder import launcher_folder

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

ENTRY = "jupyterhub_gpuspawner.extensions.several_nodes.node.step:main"
"""What the command runs in the launcher's archive."""
COMMANDS = "bin"
"""The folder of ``gpuspawner-run``."""
_NOT_FOUND = "BASH_FUNC_command_not_found_handle%%"
"""The variable in which bash exports and imports the function that it runs if it finds no command (bash(1)).

A function called ``gpuspawner-run`` would do, but for bash in POSIX mode: that complains about such a name.
"""
_BASHRC = "/etc/bash.bashrc"
"""What interactive bashes read on Debian, Ubuntu, SUSE and Arch, whose login shells begin with a PATH of their own."""


def provide(_settings: object, environ: MutableMapping[str, str], _command: Sequence[str]) -> None:
    """Write ``gpuspawner-run`` beside the launcher, and add its folder to the PATH, as the last one; raises OSError.

    Only in a job, and where the launcher has a folder of its own. A login shell, as JupyterLab's terminals are, may set
    its own PATH. So bash finds the command also if it is not there, and where an interactive one has its own handler of
    that (Ubuntu's command-not-found) the prompt adds the folder again. Others have its full path in
    ``GPUSPAWNER_RUN``.
    """
    launcher, python = environ.get("GPUSPAWNER_LAUNCHER", ""), environ.get("GPUSPAWNER_PYTHON", "")
    folder = launcher_folder(environ)
    if not environ.get("SLURM_JOB_ID") or not python or not folder:
        return
    target = os.path.join(folder, COMMANDS)
    command = os.path.join(target, "gpuspawner-run")
    words = f'{shell_quoted(python)} -I {shell_quoted(launcher)} --entry {ENTRY} "$@"'
    paths = environ.get("PATH", os.defpath).split(os.pathsep)
    environ["PATH"] = os.pathsep.join([*[path for path in paths if path != target], target])
    environ["GPUSPAWNER_RUN"] = command
    environ.setdefault(_NOT_FOUND, _HANDLE.format(words))
    if os.path.exists(_BASHRC):
        prompt = f"case :$PATH: in *:{shell_quoted(target)}:*) ;; *) PATH=$PATH:{shell_quoted(target)} ;; esac"
        others = environ.get("PROMPT_COMMAND", "").split("\n")
        environ["PROMPT_COMMAND"] = "\n".join([*(line for line in others if line and line != prompt), prompt])
    os.makedirs(target, mode=0o700, exist_ok=True)
    script = f"#!/bin/sh\nexec {words}\n".encode()
    with open(command, "wb") as file:
        file.write(script)
        os.fchmod(file.fileno(), 0o700)
    if not os.access(command, os.X_OK):
        _keep_in_memory(command, script)


_HANDLE = """() {{
    if [ "$1" = gpuspawner-run ]; then shift; {}; return; fi
    command printf '%s: %s: command not found\\n' "${{0##*/}}" "$1" >&2
    return 127
}}"""


def shell_quoted(word: str) -> str:
    """``word`` for a POSIX shell; :mod:`shlex` would load :mod:`re`."""
    return "'" + word.replace("'", "'\\''") + "'"


def _keep_in_memory(command: str, script: bytes) -> None:
    """Have ``command`` in a folder that is mounted noexec lead to a file in memory, which the server inherits."""
    inherited = child.keep_open(child.unnamed_file(os.path.basename(command)))
    os.write(inherited, script)
    os.fchmod(inherited, 0o700)
    os.unlink(command)
    os.symlink(f"/proc/{os.getpid()}/fd/{inherited}", command)
    if not os.access(command, os.X_OK):
        raise PermissionError(f"nothing may be executed in {os.path.dirname(command)}")
