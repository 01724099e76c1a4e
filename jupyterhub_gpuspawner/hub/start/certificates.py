"""A server's certificates (``internal_ssl``) for a job's environment; ``node/certificates.py`` makes files of them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = {
    "keyfile": "JUPYTERHUB_SSL_KEYFILE_CONTENT",
    "certfile": "JUPYTERHUB_SSL_CERTFILE_CONTENT",
    "cafile": "JUPYTERHUB_SSL_CLIENT_CA_CONTENT",
}
"""JupyterHub's name of a file -> the variable that has its content, in base64."""


def contents(paths: Mapping[str, str]) -> dict[str, str]:
    """The variables for these files, as ``Spawner.cert_paths`` has them; raises ConfigError for one that is not there.

    Reads files: not for the hub's loop.
    """
    try:
        return {
            VARIABLES[name]: base64.b64encode(Path(path).read_bytes()).decode()
            for name, path in paths.items()
            if name in VARIABLES
        }
    except OSError as error:
        raise ConfigError(
            f"The server's certificate cannot be read: {error}.",
            where="c.JupyterHub.internal_ssl",
            hint="Look at c.JupyterHub.internal_certs_location.",
        ) from error
