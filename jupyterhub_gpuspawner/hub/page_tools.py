"""What our templates use under the name ``gpuspawner``: the pages' sentences, and the URLs of static files."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.hub.cluster.page import may_see_cluster
from jupyterhub_gpuspawner.hub.course.page import teaches_any
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.messages.api import messages_to
from jupyterhub_gpuspawner.hub.server.card import server_cards
from jupyterhub_gpuspawner.hub.spawners.server import server_of
from jupyterhub_gpuspawner.hub.text import (
    choose,
    cluster,
    course,
    course_actions,
    health,
    home,
    idle,
    log,
    times,
    usage,
    wait,
)

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.hub.server.card import ServerCard

STATIC = Path(__file__).parent / "web" / "static"


class PageTools:
    """The namespace ``gpuspawner`` in templates; one for all pages of a hub."""

    choose = choose
    wait = wait
    home = home
    idle = idle
    log = log
    cluster = cluster
    course = course
    health = health
    times = times
    usage = usage
    messages = course_actions
    messages_to = staticmethod(messages_to)
    may_see_cluster = staticmethod(may_see_cluster)
    is_admin = staticmethod(is_admin)
    teaches_any = staticmethod(teaches_any)

    @staticmethod
    def cards(user: Any) -> tuple[ServerCard, ...]:
        """The cards of a user's servers, of whatever spawner."""
        return server_cards(map(server_of, user.all_spawners()))

    @staticmethod
    def static(base_url: str, name: str) -> str:
        """Return the URL of a file in ``static/``; it changes with the files, so that browsers may cache them.

        The version is a folder of the URL, so that a script's relative imports have it as well.
        """
        return f"{base_url}gpuspawner/static/{_version()}/{name}"


@lru_cache
def _version() -> str:
    files = sorted(STATIC.iterdir())
    return sha256(b"".join(path.read_bytes() for path in files if path.is_file())).hexdigest()[:12]
