"""Folders of a launch on the node: the launcher's own, and those to which the server must be able to write.

The launcher runs from a private folder, which is locked while the server runs. The batch script creates it and removes
it at its end. A job that is killed outright, as one that does not end within Slurm's ``KillWait``, does not get that
far. So every launch removes this user's folders of this node that no process has locked, once they are ten minutes old
and their script has ended, or else after a day. The lock (flock(2)) belongs to an open file that the server inherits,
and ends with the server. Nodes may share the parent folder (TMPDIR on NFS or Lustre), but see only their own locks of
folders there; so the folder's name contains that of the node.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.wire.documents import StartFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from jupyterhub_gpuspawner.node.child import Say

_NAME = re.compile(r"gpuspawner\.(?P<node>[A-Za-z0-9._-]+)\.[A-Za-z0-9]{10}", re.ASCII)
_FILES = (
    *("launch.pyz", "plan.json", "port", "shell"),
    *("jupyterhub_ssl_keyfile.pem", "jupyterhub_ssl_certfile.pem", "jupyterhub_ssl_client_ca.pem"),
)
_SHELL = "shell"
"""The file with the pid of the batch script's shell and the job's id, between which is a blank."""
_YOUNG = 86400.0
"""Seconds for which a new folder may be unlocked: a site's own script may copy data before the launcher runs."""
_BRIEF = 600.0
"""The same where the script's shell is gone; it may be in another PID namespace."""
_SAFE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
WRITE_SECONDS = 2.0
"""Seconds for a byte in each of the folders together that a start waits for."""
SILENT = ("home_silent", "log_silent", "tmp_silent")
"""Faults of a folder that took no byte so far."""
FILES = ("JUPYTERHUB_SSL_KEYFILE", "JUPYTERHUB_SSL_CERTFILE", "JUPYTERHUB_SSL_CLIENT_CA")
"""Variables that JupyterHub's servers read; each names a file."""
CONTENT = "_CONTENT"
"""Suffix of the variable that holds the file's content, in base64."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def launcher_folder(environ: Mapping[str, str]) -> str:
    """The launcher's own folder, which is removed with the job; empty where it has none, as if it is kept in memory."""
    folder = os.path.dirname(environ.get("GPUSPAWNER_LAUNCHER", ""))
    return folder if os.path.basename(folder).startswith("gpuspawner.") else ""


def lock_and_clean_up(environ: Mapping[str, str]) -> None:
    """Lock the launcher's folder for this process and the server it becomes; remove unlocked ones of the same node.

    Raises OSError.
    """
    parent, own_name = os.path.split(launcher_folder(environ))
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
    """Remove a folder if it belongs to this user and no process has locked it; a file that is unexpected stays."""
    try:
        descriptor = os.open(folder, _SAFE)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        young = _BRIEF if _is_abandoned(descriptor) else _YOUNG
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > young:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with os.scandir(descriptor) as entries:
                inner = list(entries)
            for entry in inner:
                if entry.is_dir(follow_symlinks=False):
                    import shutil

                    shutil.rmtree(os.path.join(folder, entry.name), ignore_errors=True)
                elif entry.name in _FILES or stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    os.unlink(entry.name, dir_fd=descriptor)
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


def unpack_certificates(environ: MutableMapping[str, str], folder: str) -> None:
    """Write the files of a server's certificates (``internal_ssl``) into the launcher's folder, with mode 0600.

    The hub's own files are on the hub's machine. Like the token, their contents are passed in the environment that
    sbatch forwards, never in the script; there, the files' names replace them. If the folder cannot hold files, as that
    of a launcher in memory, the server inherits files in memory. Raises OSError or ValueError; the contents
    are removed in any case.
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


def faulty_folder(
    environ: Mapping[str, str], log: str, seconds: float | None = None
) -> tuple[StartFailure | None, str]:
    """Write a byte to the user's home, the log's folder and that for temporary files, in a child process.

    Returns the first fault, and a sentence with the system's word for it. The log's folder (``log``, see
    :func:`log_folder`) has no other fault than to be full: slurmd has opened the log there, perhaps by a path that this
    job does not see. ``seconds`` are :data:`WRITE_SECONDS`, if there is no other number. Raises OSError if no process
    can be had.
    """
    seconds = WRITE_SECONDS if seconds is None else seconds
    folders = {"tmp": environ.get("TMPDIR") or "/tmp", "log": log, "home": environ.get("HOME", "")}
    names = {path: name for name, path in folders.items() if path}  # of several names for one folder the last

    def write(say: Say) -> None:
        for path in reversed(names):
            say(path=path)
            fault = _fault_of_write(path)
            if fault in _FULL or (fault is not None and names[path] != "log"):
                say(path=path, code=fault)
                return

    documents, finished = child.ask_documents(write, seconds)
    code = documents[-1].get("code") if documents else None
    if code is None and (finished or not documents):
        return None, ""
    path = documents[-1]["path"]
    name = names[path]
    if code is None:
        return StartFailure(f"{name}_silent", path), f"A byte could not be written to {path} within {seconds:g} s."
    how = "full" if code in _FULL else "unwritable"
    return StartFailure(f"{name}_{how}", path), f"{path} cannot be written: {os.strerror(code)}."


def _fault_of_write(folder: str) -> int | None:
    """Write a byte to a new file, and remove it; returns the error's number, None if all is well."""
    path = os.path.join(folder, f".gpuspawner-{os.urandom(6).hex()}")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return error.errno or errno.EIO
    try:
        try:
            os.write(file, b"\n")
        finally:
            os.close(file)  # a file server says only now that there is no room
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        os.unlink(path)
    return None


def log_folder() -> str:
    """The folder of the job's log; empty where standard error is no file with a name."""
    try:
        path = os.readlink("/proc/self/fd/2")
        return os.path.dirname(path) if stat.S_ISREG(os.fstat(2).st_mode) and path.startswith("/") else ""
    except OSError:
        return ""
