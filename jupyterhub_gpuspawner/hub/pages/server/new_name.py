"""The name of a new server, as its user has typed it on the home page."""

from __future__ import annotations

import re
import unicodedata

from jupyterhub_gpuspawner.errors import RequestError

try:
    from jupyterhub import slugs
except ImportError:  # JupyterHub 5: the name in the URL is the name
    slugs = None

LONGEST_NAME = 255
"""Characters of a server's name, as in JupyterHub's database."""

PATH_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII | re.IGNORECASE)
"""Names of servers that are the same in a URL's path."""


def new_server_name(typed: str) -> tuple[str, str]:
    """Return name and display name of a new server from what its user has typed; raises RequestError.

    JupyterHub 6 makes the name from the display name, as its own home page does. Before, the two are the same, and the
    name is a part of a URL's path.
    """
    shown = " ".join(unicodedata.normalize("NFC", typed).split())
    if not shown or len(shown) > LONGEST_NAME or not shown.isprintable():
        raise RequestError(
            f"The name of a server must have 1 to {LONGEST_NAME} printable characters.",
            field="name",
            hint="Choose one.",
        )
    if slugs is not None:
        if not slugs.is_valid_display_name(shown):
            raise RequestError("The name of a server cannot have this character.", field="name", hint="Choose another.")
        return slugs.safe_slug(shown, avoid_collisions=False), shown
    if not PATH_NAME.fullmatch(shown):
        raise RequestError(
            "The name of a server can have letters, digits, hyphens, dots and underscores, and begins with a letter or "
            "a digit.",
            field="name",
            hint="Choose another one.",
        )
    return shown, shown
