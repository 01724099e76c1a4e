"""Make files of a server's certificates (``internal_ssl``), whose contents are in the job's environment.

The hub's own files are on the hub's machine. Like the token, their contents are passed in the environment that sbatch
forwards, never in the script. For the server they become files with mode 0600 in the launcher's private folder, which
is removed with the job. Where there is no such folder, as for a launcher on another node, they are kept in memory.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FILES = ("JUPYTERHUB_SSL_KEYFILE", "JUPYTERHUB_SSL_CERTFILE", "JUPYTERHUB_SSL_CLIENT_CA")
"""Variables that JupyterHub's servers read; each names a file."""
CONTENT = "_CONTENT"
"""Suffix of the variable that holds the file's content, in base64."""


def unpack(environ: MutableMapping[str, str], folder: str) -> None:
    """Write the files into ``folder``, set their names in ``environ``, and remove their contents from it.

    If the folder cannot hold them, as that of a launcher in memory, the server inherits files in memory. Raises OSError
    or ValueError; the contents are removed in any case.
    """
    for name, content in _contents(environ):
        path = os.path.join(folder, name.lower() + ".pem")
        try:
            # a second launch in the same job, such as a task of srun, finds the files of the first
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(base64.b64decode(content, validate=True))
        except OSError:
            path = _in_memory(name, content, flags=0)
        environ[name] = path


def in_memory(environ: MutableMapping[str, str]) -> None:
    """As :func:`unpack`, into files in memory, which end with this process (memfd_create(2)); raises as that does."""
    for name, content in _contents(environ):
        environ[name] = _in_memory(name, content, flags=os.MFD_CLOEXEC)


def _in_memory(name: str, content: str, *, flags: int) -> str:
    file = os.memfd_create(name, flags)
    with os.fdopen(file, "wb", closefd=False) as writing:
        writing.write(base64.b64decode(content, validate=True))
    return f"/proc/self/fd/{file}"


def _contents(environ: MutableMapping[str, str]) -> list[tuple[str, str]]:
    """The variables and their contents, which are removed from ``environ``."""
    return [(name, environ.pop(name + CONTENT)) for name in FILES if name + CONTENT in environ]
