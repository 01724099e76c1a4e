"""The private folder from which the launcher runs: locked while the server runs; folders of killed jobs are removed.

The companion of JupyterLab is unpacked into it, and found by ``JUPYTER_PATH`` and ``JUPYTER_CONFIG_PATH``.

The batch script creates the folder and removes it at its end. A job that is killed outright, as one that does not end
within Slurm's ``KillWait``, does not get that far. So every launch removes this user's folders of this node that no
process has locked, once they are ten minutes old and their script has ended, or else after a day. The lock (flock(2))
belongs to an open file that the server inherits, and ends with the server. Nodes may share the parent folder (TMPDIR on
NFS or Lustre), but see only their own locks of folders there; so the folder's name contains that of the node.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence


_NAME = re.compile(r"gpuspawner\.(?P<node>[A-Za-z0-9._-]+)\.[A-Za-z0-9]{10}", re.ASCII)
_FILES = (
    *("launch.pyz", "plan.json", "port", "app.sock", "session.sock", "shell"),
    *("jupyterhub_ssl_keyfile.pem", "jupyterhub_ssl_certfile.pem", "jupyterhub_ssl_client_ca.pem"),
)
COMPANION = "lab"
"""The folder of the companion."""
COMMANDS = "bin"
"""The folder of ``gpuspawner-run``."""
_NOT_FOUND = "BASH_FUNC_command_not_found_handle%%"
"""The variable in which bash exports and imports the function that it runs if it finds no command (bash(1)).

A function called ``gpuspawner-run`` would do, but for bash in POSIX mode: that complains about such a name.
"""
_BASHRC = "/etc/bash.bashrc"
"""What interactive bashes read on Debian, Ubuntu, SUSE and Arch, whose login shells begin with a PATH of their own."""
CONTAINERS = ("apptainer", "singularity")
"""Commands that run a server in a container."""
USUALLY_BOUND = ("/tmp", "/var/tmp", "/dev/shm")
"""What Apptainer makes available in every container, beside the home."""
_MEMBER = "lab.json"
"""In the archive: paths and texts of the companion's files (``lab``)."""
_SHELL = "shell"
"""The file with the pid of the batch script's shell and the job's id, between which is a blank."""
_YOUNG = 86400.0
"""Seconds for which a new folder may be unlocked: a site's own script may copy data before the launcher runs."""
_BRIEF = 600.0
"""The same where the script's shell is gone; it may be in another PID namespace."""
_SAFE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def own(environ: Mapping[str, str]) -> str:
    """The launcher's own folder, which is removed with the job; empty where it has none, as if it is kept in memory."""
    folder = os.path.dirname(environ.get("GPUSPAWNER_LAUNCHER", ""))
    return folder if os.path.basename(folder).startswith("gpuspawner.") else ""


def hold(environ: Mapping[str, str]) -> None:
    """Lock the launcher's folder for this process and the server it becomes; remove unlocked ones of the same node.

    Raises OSError.
    """
    parent, own_name = os.path.split(own(environ))
    own_match = _NAME.fullmatch(own_name)
    if not own_match:
        return
    descriptor = os.open(os.path.join(parent, own_name), _SAFE)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    child.keep_open(descriptor)
    for name in os.listdir(parent):
        match = _NAME.fullmatch(name)
        if match and name != own_name and match["node"] == own_match["node"]:
            _remove_if_left(os.path.join(parent, name))


def _remove_if_left(folder: str) -> None:
    """Remove a folder if it belongs to this user and no process has locked it; leave anything unexpected alone."""
    try:
        descriptor = os.open(folder, _SAFE)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        young = _BRIEF if _is_abandoned(descriptor) else _YOUNG
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > young:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            names = os.listdir(descriptor)
            for file in _FILES:
                if file in names:
                    os.unlink(file, dir_fd=descriptor)
            for inner in (COMPANION, COMMANDS):
                if inner in names:
                    import shutil

                    shutil.rmtree(os.path.join(folder, inner), ignore_errors=True)
            os.rmdir(folder)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _is_abandoned(descriptor: int) -> bool:
    """Whether the shell that made this folder has ended; False if that is not known. Raises OSError."""
    try:
        with open(os.open(_SHELL, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor), "rb") as file:
            words = file.read(64).decode("ascii", "replace").split()
    except FileNotFoundError:
        return False
    return len(words) == 2 and words[0].isdigit() and not child.has_variable(int(words[0]), f"SLURM_JOB_ID={words[1]}")


def bring_run(environ: MutableMapping[str, str]) -> None:
    """Write ``gpuspawner-run`` beside the launcher, and add its folder to the PATH, as the last one; raises OSError.

    Only in a job, and where the launcher has a folder of its own. A login shell, as JupyterLab's terminals are, may set
    its own PATH. So bash finds the command also if it is not there, and where an interactive one has its own handler of
    that (Ubuntu's command-not-found) the prompt adds the folder again. Others have its full path in
    ``GPUSPAWNER_RUN``.
    """
    launcher, python = environ.get("GPUSPAWNER_LAUNCHER", ""), environ.get("GPUSPAWNER_PYTHON", "")
    folder = own(environ)
    if not environ.get("SLURM_JOB_ID") or not python or not folder:
        return
    target = os.path.join(folder, COMMANDS)
    command = os.path.join(target, "gpuspawner-run")
    words = f'{shell_quoted(python)} -I {shell_quoted(launcher)} --run "$@"'
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


def bring_companion(environ: MutableMapping[str, str], program: str = "") -> None:
    """Unpack the companion beside the launcher, and name its folder to Jupyter; raises OSError.

    Where the launcher has no folder of its own (it is kept in memory) there is no companion. If ``program``, the
    server's, is a container, it gets the folder bound, read-only, unless Apptainer binds it anyway.
    """
    if not own(environ):
        return
    folder = os.path.join(own(environ), COMPANION)
    _unpack_companion(environ["GPUSPAWNER_LAUNCHER"], folder)
    for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH"):
        paths = [path for path in environ.get(name, "").split(os.pathsep) if path and path != folder]
        environ[name] = os.pathsep.join([*paths, folder])
    usual = (*USUALLY_BOUND, *filter(None, [environ.get("HOME")]))
    in_container = os.path.basename(program) in CONTAINERS
    if in_container and not any(folder.startswith(f"{prefix}/") for prefix in usual):
        for name in ("APPTAINER_BIND", "SINGULARITY_BIND"):
            environ[name] = ",".join(filter(None, [environ.get(name), f"{folder}:{folder}:ro"]))


def _unpack_companion(launcher: str, folder: str) -> None:
    import json
    from zipimport import zipimporter

    for path, text in json.loads(zipimporter(launcher).get_data(_MEMBER)).items():
        file = os.path.join(folder, *path.split("/"))
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with open(file, "w", encoding="utf-8") as writing:
            writing.write(text)


# Make files of a server's certificates (``internal_ssl``), whose contents are in the job's environment.
#
# The hub's own files are on the hub's machine. Like the token, their contents are passed in the environment that sbatch
# forwards, never in the script. For the server they become files with mode 0600 in the launcher's private folder, which
# is removed with the job. Where there is no such folder, as for a launcher on another node, they are kept in memory.

FILES = ("JUPYTERHUB_SSL_KEYFILE", "JUPYTERHUB_SSL_CERTFILE", "JUPYTERHUB_SSL_CLIENT_CA")
"""Variables that JupyterHub's servers read; each names a file."""
CONTENT = "_CONTENT"
"""Suffix of the variable that holds the file's content, in base64."""


def unpack_certificates(environ: MutableMapping[str, str], folder: str) -> None:
    """Write the files into ``folder``, set their names in ``environ``, and remove their contents from it.

    If the folder cannot hold them, as that of a launcher in memory, the server inherits files in memory. Raises OSError
    or ValueError; the contents are removed in any case.
    """
    import base64

    for name, content in _contents(environ):
        path = os.path.join(folder, name.lower() + ".pem")
        try:
            # a second launch in the same job, such as a task of srun, finds the files of the first
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(base64.b64decode(content, validate=True))
        except OSError:
            path = _in_memory(name, content, inherited=True)
        environ[name] = path


def certificates_in_memory(environ: MutableMapping[str, str]) -> None:
    """As :func:`unpack_certificates`, into files in memory, which end with this process."""
    for name, content in _contents(environ):
        environ[name] = _in_memory(name, content, inherited=False)


def for_another_process(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that inherits no open file: it finds those in memory by this process's pid."""
    own_files = f"/proc/{os.getpid()}/fd/"
    named = {name: environ[name].replace("/proc/self/fd/", own_files) for name in FILES if name in environ}
    return {**environ, **named}


def _in_memory(name: str, content: str, *, inherited: bool) -> str:
    import base64

    file = child.unnamed_file(name)
    os.set_inheritable(file, inherited)
    with os.fdopen(file, "wb", closefd=False) as writing:
        writing.write(base64.b64decode(content, validate=True))
    return f"/proc/self/fd/{file}"


def _contents(environ: MutableMapping[str, str]) -> list[tuple[str, str]]:
    """The variables and their contents, which are removed from ``environ``."""
    return [(name, environ.pop(name + CONTENT)) for name in FILES if name + CONTENT in environ]


# The command of an application that runs behind the hub's sign-in: the Python that has jupyter-server-proxy.

PROXY = "jupyter-standaloneproxy"
"""A command of jupyter-server-proxy, which shows which Python has it."""
RUN_GATE = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]; import gpuspawner_gate as gate; gate.main()"
)
"""Runs ``singleuser/gpuspawner_gate.py`` from the launcher's archive."""


def behind(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command for ``words``: that which would start JupyterLab, and the arguments of the gate.

    jupyter-server-proxy is looked for beside the first of them and in the PATH. Exits with 127 where there is none:
    without it the application must not start.
    """
    import shutil

    folders = (os.path.dirname(words[0]), environ.get("PATH"))
    proxy = shutil.which(PROXY, path=os.pathsep.join(filter(None, folders)))
    if proxy is None:
        child.complain(
            f"{PROXY}: no such command; the job's environment needs jupyterhub and jupyter-server-proxy >= 4.6"
        )
        raise SystemExit(child.NO_COMMAND)
    with open(proxy, "rb") as file:
        first = file.readline(4096).decode(errors="replace")
    named = [word for word in first[2:].split() if os.path.basename(word).startswith("python")]
    python = named[0] if first.startswith("#!") and named else os.path.join(os.path.dirname(proxy), "python3")
    return [python, "-c", RUN_GATE, environ.get("GPUSPAWNER_LAUNCHER", ""), *words[1:]]
