"""A server's certificates (``internal_ssl``), from the job's environment into files that are the job's own.

The hub's files are on the hub's machine. Their contents travel as the token does, in the environment that sbatch
hands on, and never in the script; here they become files with mode 0600 in the launcher's private folder, which goes
with the job.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FILES = ("JUPYTERHUB_SSL_KEYFILE", "JUPYTERHUB_SSL_CERTFILE", "JUPYTERHUB_SSL_CLIENT_CA")
"""What JupyterHub's servers read; each names a file."""
CONTENT = "_CONTENT"
"""Added to the name: the variable that has the file's content, in base64."""


def unpack(environ: MutableMapping[str, str], folder: str) -> None:
    """Write the files into ``folder``, name them in ``environ`` and take the contents out of it.

    Raises OSError or ValueError; the contents are taken out all the same.
    """
    contents = {name: environ.pop(name + CONTENT) for name in FILES if name + CONTENT in environ}
    for name, content in contents.items():
        path = os.path.join(folder, name.lower() + ".pem")
        # a second launch in the same job, such as one of srun's, finds the first one's
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64decode(content, validate=True))
        environ[name] = path
