"""Files with the hub's secrets: whether JupyterHub would accept them, and who can read them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.site.configuration import COOKIE_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

COOKIE = Code(
    "cookie-secret-exposed",
    "The file with the hub's cookie secret can be read by other accounts: JupyterHub refuses to start.",
)
TLS = Code("tls-file", "A certificate or key of the hub's is missing, or its key can be read by every account.")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def cookie_secret_file(context: Context) -> Path | None:
    """The file in which the hub keeps its cookie secret; None if its folder is not known."""
    return context.site.file(str(context.site.config.JupyterHub.get("cookie_secret_file", COOKIE_FILE)))


async def check_secrets(context: Context) -> list[Finding]:
    """Look at the files' modes."""
    hub = context.site.config.JupyterHub
    found = []
    cookie = cookie_secret_file(context)
    mode = _mode(cookie) if cookie is not None else None
    if mode is not None and mode & _OTHERS and not hub.get("cookie_secret") and not os.environ.get("JPY_COOKIE_SECRET"):
        found.append(
            COOKIE.error(
                "c.JupyterHub.cookie_secret_file",
                f"{cookie} can be read by others (mode {mode:04o}), and JupyterHub does not start with it.",
                f"Run chmod 600 {cookie}.",
            )
        )
    for name in ("ssl_key", "ssl_cert"):
        file = hub.get(name)
        if not isinstance(file, str) or not file:
            continue
        where, path = f"c.JupyterHub.{name}", context.site.file(file)
        if path is None:
            text = f"{file} is in the working directory of the hub, which is not known here."
            found.append(TLS.warning(where, text, "Give the full path of a file in PEM format."))
            continue
        mode = _mode(path)
        if mode is None:
            found.append(TLS.error(where, f"there is no file {file}.", "Give the full path of a file in PEM format."))
        elif name == "ssl_key" and mode & stat.S_IROTH:
            found.append(
                TLS.error(where, f"every account can read {file} (mode {mode:04o}).", f"Run chmod 600 {file}.")
            )
    return found


def _mode(path: Path) -> int | None:
    """The permission bits of a file; None if there is none, or this account may not look."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None
    except OSError:
        return 0
