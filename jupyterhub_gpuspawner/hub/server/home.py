"""``/hub/home``: the cards of a person's servers, and a form for one more."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.handlers.pages import HomeHandler
from jupyterhub.scopes import needs_scope
from tornado import web
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.choose.gets import what_a_job_gets
from jupyterhub_gpuspawner.hub.extensions import extensions_for
from jupyterhub_gpuspawner.hub.jupyterhub_compat import delete_named_server, display_name
from jupyterhub_gpuspawner.hub.spawners.server import Server, refresh_servers, server_of, server_title, with_profiles
from jupyterhub_gpuspawner.hub.web.handlers import (
    UNUSED_LINK,
    as_query,
    form_url,
    parse_choice_query,
    server_named,
    title_for,
)

# The name of a new server, as its user has typed it on the home page.

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


# ``/hub/gpuspawner/delete/USER/NAME``: a question, and the deletion of a named server that is not running.


class DeletePage(BaseHandler):
    """Forgets a named server, as JupyterHub does over REST: its name, its last choice, what its spawner keeps."""

    @web.authenticated
    @needs_scope("delete:servers")
    async def get(self, user_name: str, server_name: str) -> None:
        """What is lost, and a button."""
        user, spawner = self._spawner_of(user_name, server_name)
        await self._ask(user, spawner)

    @web.authenticated
    @needs_scope("delete:servers")
    async def post(self, user_name: str, server_name: str) -> None:
        """303 to the home page; 409 where the server is active."""
        user, spawner = self._spawner_of(user_name, server_name)
        if spawner.active:
            self.set_status(HTTPStatus.CONFLICT)
            await self._ask(user, spawner)
            return
        await delete_named_server(user, spawner)
        self.redirect(f"{self.hub.base_url}home", status=HTTPStatus.SEE_OTHER)

    def _spawner_of(self, user_name: str, server_name: str) -> tuple[Any, Any]:
        if not server_name or not self.allow_named_servers:
            raise web.HTTPError(404, "There is no such server.")
        return server_named(self, user_name, server_name)

    async def _ask(self, user: Any, spawner: Any) -> None:
        title = words.title(spawner.name, display_name(spawner))
        html = await self.render_template(
            "delete.html",
            own=user is self.current_user,
            title=title_for(self, user, title),
            active=spawner.active,
        )
        self.finish(html)


@dataclass(frozen=True)
class UnusedLink:
    """A link that has started nothing, since a server was there."""

    server: Server
    """The one that is there, or has ended meanwhile."""
    form: str = ""
    """The address of the form with the link's choice: of the server that has ended, or of :attr:`beside`."""
    fault: str = ""
    """Why the link does not work for its reader."""
    wanted: str = ""
    """What it asks for."""
    query: str = ""
    """The link's choice, as :func:`as_query` writes it."""
    beside: str = ""
    """The name of a further server that could be started; empty where there may be none."""

    @property
    def title(self) -> str:
        """The heading of the server's card."""
        return server_title(self.server)


class HomePage(HomeHandler):
    """JupyterHub's page; its POST leads to the form of a new named server, also without JavaScript."""

    name_fault = ""
    """Why the name cannot be taken."""
    typed = ""
    """The name as it was typed."""
    _link: UnusedLink | None = None

    @web.authenticated
    async def get(self) -> None:
        """JupyterHub's, once the queue and how far servers can be extended are known."""
        await self._show()

    async def _show(self) -> None:
        self._link = await self._unused_link(self.current_user)
        await refresh_servers(self.current_user.all_spawners())
        await cast("Awaitable[None]", super().get())

    @web.authenticated
    async def post(self) -> None:
        """303 to the new server's form; 400 and this page again for a name that is refused, or one too many."""
        self.typed = self.get_body_argument("name", "")
        user: Any = self.current_user
        try:
            name, display_name = await self._new_name(user)
        except RequestError as error:
            self.name_fault = error.message
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._show()
            return
        address = form_url(self.hub.base_url, user, name)
        shown = {"display_name": display_name} if display_name != name else {}
        self.redirect(url_concat(address, shown), status=HTTPStatus.SEE_OTHER)

    async def _new_name(self, user: Any) -> tuple[str, str]:
        """Name and display name of the new server; raises RequestError."""
        if not self.allow_named_servers:
            raise web.HTTPError(400, "Named servers are not enabled.")
        name, display_name = new_server_name(self.typed)
        if name in user.orm_spawners:
            raise RequestError(f"You already have a server named {display_name}.", field="name")
        limit, number = await self.get_current_user_named_server_limit(), _named(user)
        if 0 < limit <= number:
            raise RequestError(words.NOT_MORE.format(number=number, limit=limit), field="name")
        return name, display_name

    def render_template(self, name: str, sync: bool = False, **namespace: Any) -> Any:
        """JupyterHub's, with what the form for a new server shows."""
        if name == "home.html":
            number = _named(namespace["user"])
            namespace.update(name_fault=self.name_fault, typed=self.typed, named_servers=number)
            namespace["unused_link"] = self._link
            namespace["cards"] = self.template_namespace["gpuspawner"].cards(namespace["user"])
        return super().render_template(name, sync=sync, **namespace)

    async def _unused_link(self, user: Any) -> UnusedLink | None:
        """What is said of a link that was not used since a server was there; None where there is none."""
        choice = parse_choice_query(self.get_query_argument(UNUSED_LINK, ""))
        name = self.get_query_argument("server", "")
        spawner = user.spawners.get(name)
        if not choice or spawner is None:
            return None
        server, query = server_of(spawner, with_start=False), as_query(choice)
        there = self.get_query_argument("next", "")  # JupyterHub checks where it leads when it follows it

        def form(of_server: str) -> str:
            address = form_url(self.hub.base_url, user, of_server)
            return url_concat(f"{address}?{query}", {"next": there} if there else {})

        if not server.active:
            return UnusedLink(server, form(name))
        wanted, fault = await self._requested(spawner, choice)
        if fault:
            return UnusedLink(server, fault=fault)
        beside = await self._free_name(user, choice.get("profile", "")) if self.allow_named_servers else ""
        return UnusedLink(server, form(beside) if beside else "", "", wanted, query, beside)

    @staticmethod
    async def _requested(spawner: Any, choice: Mapping[str, str]) -> tuple[str, str]:
        """What a link asks for, such as ``A GPU: 2 x K80 · 4 cores``; or why it cannot be had; the other is empty."""
        profiles = with_profiles(spawner)
        if profiles is None:
            return choice.get("profile", ""), ""
        await profiles.refresh_profiles()
        try:
            request = profiles.resolve(choice)
        except RequestError as error:
            return "", error.message if error.field == "profile" else error.for_user
        except ConfigError as error:  # logged where the profiles are read
            return "", error.for_user
        name = request.profile.display_name
        if request.profile.kind != "slurm":
            return name, ""
        forecast = await extensions_for(profiles).forecast(profiles, [request.profile], asks=False)
        gets = what_a_job_gets(request.resources, forecast.hardware(request.resources)).parts
        return (f"{name}: {' · '.join(gets)}" if gets else name), ""

    async def _free_name(self, user: Any, slug: str) -> str:
        """A name for one more server, made of a profile's; empty where there may be none."""
        limit = await self.get_current_user_named_server_limit()
        if not PATH_NAME.fullmatch(slug) or 0 < limit <= _named(user):
            return ""
        names = (slug, *(f"{slug}-{number}" for number in range(2, 2 + len(user.orm_spawners))))
        return next(name for name in names if name not in user.orm_spawners)


def _named(user: Any) -> int:
    return len(set(user.orm_spawners) - {""})
