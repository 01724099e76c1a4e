"""The private folder from which the launcher runs: locked while the server runs; folders of killed jobs are removed.

The companion of JupyterLab is unpacked into it, and found by ``JUPYTER_PATH`` and ``JUPYTER_CONFIG_PATH``.

The batch script creates the folder and removes it at its end. A job that is killed outright does not get that far. So
every launch removes this user's folders of this node that no process has locked. The lock (flock(2)) belongs to an open
file that the server inherits, and ends with the server. Nodes may share the parent folder (TMPDIR on NFS or Lustre),
but see only their own locks of folders there; so the folder's name contains that of the node.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_NAME = re.compile(r"gpuspawner\.(?P<node>[A-Za-z0-9._-]+)\.[A-Za-z0-9]{10}", re.ASCII)
_FILES = (
    *("launch.pyz", "plan.json", "port", "app.sock", "session.sock"),
    *("jupyterhub_ssl_keyfile.pem", "jupyterhub_ssl_certfile.pem", "jupyterhub_ssl_client_ca.pem"),
)
COMPANION = "lab"
"""The folder of the companion."""
COMMANDS = "bin"
"""The folder of ``gpuspawner-run``."""
_FUNCTION = "BASH_FUNC_gpuspawner-run%%"
"""The variable in which bash exports and imports a function of this name."""
CONTAINERS = ("apptainer", "singularity")
"""Commands that run a server in a container."""
USUALLY_BOUND = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only compared
"""What Apptainer makes available in every container, beside the home."""
_MEMBER = "lab.json"
"""In the archive: paths and texts of the companion's files (``lab``)."""
_YOUNG = 60.0
"""Seconds for which a new folder may be unlocked, since its job is just starting."""
_FIRST = 100
"""Lowest file descriptor for locks: scripts use the small numbers for their own files."""
_SAFE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def hold(folder: str) -> None:
    """Lock ``folder`` for this process and the server it becomes, and remove unlocked folders of the same node.

    Raises OSError.
    """
    parent, own = os.path.split(folder)
    own_match = _NAME.fullmatch(own)
    if not own_match:
        return
    descriptor = os.open(folder, _SAFE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST)
    finally:
        os.close(descriptor)
    for name in os.listdir(parent):
        match = _NAME.fullmatch(name)
        if match and name != own and match["node"] == own_match["node"]:
            _remove_if_left(os.path.join(parent, name))


def _remove_if_left(folder: str) -> None:
    """Remove a folder if it belongs to this user and no process has locked it; leave anything unexpected alone."""
    try:
        descriptor = os.open(folder, _SAFE)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _YOUNG:
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


def bring_run(environ: MutableMapping[str, str]) -> None:
    """Write ``gpuspawner-run`` beside the launcher, and add its folder to the PATH, as the last one; raises OSError.

    Only in a job, and where the launcher has a folder of its own. A login shell, as JupyterLab's terminals are, may set
    its own PATH: bash gets the command as an exported function, too, and others have its full path in
    ``GPUSPAWNER_RUN``.
    """
    launcher, python = environ.get("GPUSPAWNER_LAUNCHER", ""), environ.get("GPUSPAWNER_PYTHON", "")
    folder = os.path.dirname(launcher)
    if not environ.get("SLURM_JOB_ID") or not python or not os.path.basename(folder).startswith("gpuspawner."):
        return
    target = os.path.join(folder, COMMANDS)
    command = os.path.join(target, "gpuspawner-run")
    quoted = ["'" + word.replace("'", "'\\''") + "'" for word in (python, launcher)]
    words = f'{" -I ".join(quoted)} --run "$@"'
    paths = environ.get("PATH", os.defpath).split(os.pathsep)
    environ["PATH"] = os.pathsep.join([*[path for path in paths if path != target], target])
    environ["GPUSPAWNER_RUN"] = command
    environ[_FUNCTION] = f"() {{ {words}; }}"
    os.makedirs(target, mode=0o700, exist_ok=True)
    script = f"#!/bin/sh\nexec {words}\n".encode()
    with open(command, "wb") as file:
        file.write(script)
        os.fchmod(file.fileno(), 0o700)
    if not os.access(command, os.X_OK):
        _keep_in_memory(command, script)


def _keep_in_memory(command: str, script: bytes) -> None:
    """Have ``command`` in a folder that is mounted noexec lead to a file in memory, which the server inherits."""
    file = os.memfd_create(os.path.basename(command), 0)
    try:
        os.write(file, script)
        os.fchmod(file, 0o700)
        inherited = fcntl.fcntl(file, fcntl.F_DUPFD, _FIRST)
    finally:
        os.close(file)
    os.unlink(command)
    os.symlink(f"/proc/{os.getpid()}/fd/{inherited}", command)
    if not os.access(command, os.X_OK):
        raise PermissionError(f"nothing may be executed in {os.path.dirname(command)}")


def bring_companion(environ: MutableMapping[str, str], *, in_container: bool) -> None:
    """Unpack the companion beside the launcher, and name its folder to Jupyter; raises OSError.

    Where the launcher has no folder of its own (it is kept in memory) there is no companion. A container gets the
    folder bound, read-only, unless it is in one of the places that Apptainer binds anyway.
    """
    launcher = environ.get("GPUSPAWNER_LAUNCHER", "")
    parent, own = os.path.split(os.path.dirname(launcher))
    if not own.startswith("gpuspawner."):
        return
    folder = os.path.join(parent, own, COMPANION)
    _unpack(launcher, folder)
    for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH"):
        paths = [path for path in environ.get(name, "").split(os.pathsep) if path and path != folder]
        environ[name] = os.pathsep.join([*paths, folder])
    usual = (*USUALLY_BOUND, *filter(None, [environ.get("HOME")]))
    if in_container and not any(parent == prefix or parent.startswith(f"{prefix}/") for prefix in usual):
        for name in ("APPTAINER_BIND", "SINGULARITY_BIND"):
            environ[name] = ",".join(filter(None, [environ.get(name), f"{folder}:{folder}:ro"]))


def _unpack(launcher: str, folder: str) -> None:
    import json
    from zipimport import zipimporter

    for path, text in json.loads(zipimporter(launcher).get_data(_MEMBER)).items():
        file = os.path.join(folder, *path.split("/"))
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with open(file, "w", encoding="utf-8") as writing:
            writing.write(text)
