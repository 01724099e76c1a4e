"""Who signs in to the demo's hub, and by what: a password, or a link that does it once.

Every account of the machine can connect to the hub, and a server is a shell: so both secrets are new at each start, and
neither is ever in an argument list, in an address that is sent, or in a log.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyterhub.auth import Authenticator
from jupyterhub.handlers import BaseHandler
from tornado.web import StaticFileHandler
from traitlets import Integer, Unicode

PEOPLE = ("ada", "bob", "admin", "teacher", "student1", "student2", "student3", "student4")
"""The names that may sign in: two users, the administrator, and those of the course."""
STATIC = str(Path(__file__).with_name("static"))
LINK_SECONDS = 600
"""Seconds for which the link works, from the hub's start on."""
LINK_PATH = "/demo"
"""Its path below that of the hub; the key is the fragment, which browsers do not send (RFC 3986, 3.5)."""


class Link:
    """A key that signs in once, in the ``seconds`` after the link is made; an empty one never does."""

    def __init__(self, key: str, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._key, self._clock = key, clock
        self._ends_at = clock() + seconds

    def redeem(self, key: str) -> bool:
        """Whether ``key`` signs in now. If so, it does not again; a wrong key uses up nothing."""
        signs_in = bool(self._key) and self._clock() < self._ends_at and _same(key, self._key)
        if signs_in:
            self._key = ""
        return signs_in


class DemoAuthenticator(Authenticator):
    """One password for all who may sign in; and the link's key, which signs in :attr:`link_name`."""

    password = Unicode(config=True, help="The password; nobody can sign in with an empty one.")
    link_key = Unicode(config=True, help="The key of the link; empty: there is no link.")
    link_seconds = Integer(LINK_SECONDS, config=True, help="Seconds for which the link works.")
    link_name = Unicode(PEOPLE[0], config=True, help="Whom the link signs in.")

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.link = Link(self.link_key, self.link_seconds)

    async def authenticate(self, _handler: BaseHandler, data: Mapping[str, str]) -> str | None:
        """The name, if the password is right."""
        is_right = bool(self.password) and _same(data.get("password", ""), self.password)
        return data.get("username") if is_right else None

    def get_handlers(self, app: object) -> list[tuple[Any, ...]]:
        """JupyterHub's sign-in page, and that of the link with its script."""
        script = (rf"{LINK_PATH}/(link\.js)", StaticFileHandler, {"path": STATIC})
        return [*super().get_handlers(app), (LINK_PATH, LinkHandler), script]


class LinkHandler(BaseHandler):
    """The page that the link opens: its script sends the key in a form."""

    async def get(self) -> None:
        """Show the page, which has no secret."""
        await self._show(refused=False)

    async def post(self) -> None:
        """Sign in, or say that the link does not."""
        if not self.authenticator.link.redeem(self.get_body_argument("key", "")):
            self.log.warning("A link was refused: it was used before, is too old, or has never been valid.")
            self.set_status(403)
            await self._show(refused=True)
            return
        authenticator = self.authenticator
        user = await self.login_user({"username": authenticator.link_name, "password": authenticator.password})
        self.redirect(self.get_next_url(user))

    async def _show(self, *, refused: bool) -> None:
        page = self.render_template(
            "demo_link.html",
            refused=refused,
            minutes=self.authenticator.link_seconds // 60,
            xsrf=self.xsrf_token.decode("ascii"),
            login_url=self.settings["login_url"],
        )
        self.set_header("Cache-Control", "no-store")
        self.finish(await page)


def _same(one: str, other: str) -> bool:
    """Whether two secrets are equal; the time that this takes does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())
