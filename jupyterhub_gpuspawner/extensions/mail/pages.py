"""The button on the waiting page, and ``/hub/gpuspawner/mail``, where each person ends all mails or allows them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from markupsafe import Markup
from tornado import web

from jupyterhub_gpuspawner.extensions.mail.post import Post, Told, Wish
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.profiles import job_spawner
from jupyterhub_gpuspawner.hub.spawners.server import kept_with, server_of
from jupyterhub_gpuspawner.hub.web.handlers import pending_url, server_named

NOT_SET_UP = "This hub sends no mails."


async def below_wait(handler: BaseHandler, spawner: Any) -> Markup:
    """A button for the user of a server that is being started, in a hub that sends mails."""
    post, wish = state_of(handler.settings).of(Post), kept_with(spawner, Wish)
    if post.settings is None or wish is None or spawner.user is not handler.current_user:
        return Markup()
    html = await handler.render_template(
        "gpuspawner_mail_wish.html",
        user=spawner.user,
        server_name=spawner.name,
        wanted=wish.wanted,
        allowed=post.outbox.wants(spawner.user.name),
        minutes=post.settings.before_end,
        per_day=post.settings.per_day,
    )
    return Markup(html)  # noqa: S704 - the template has escaped its texts


class _OfMail(BaseHandler):
    """What these handlers share."""

    @property
    def post_office(self) -> Post:
        """404 in a hub that sends none."""
        post = state_of(self.settings).of(Post)
        if not post.on:
            raise web.HTTPError(HTTPStatus.NOT_FOUND, NOT_SET_UP)
        return post


class WishPage(_OfMail):
    """Ask for mails about one's own server until it ends, or take that back; the waiting page follows."""

    @web.authenticated
    async def post(self, user_name: str, server_name: str = "") -> None:
        """303 to the server's page. Nobody asks for others: 404."""
        post = self.post_office
        user, spawner = server_named(self, user_name, server_name)
        ours, wish = job_spawner(spawner), kept_with(spawner, Wish)
        if user is not self.current_user or ours is None or wish is None:
            raise web.HTTPError(HTTPStatus.NOT_FOUND, "There is no such server.")
        if spawner.active:
            wish.wanted = self.get_body_argument("wanted", "") == "1"
            ours.row.store_soon()
            session = ours.life.session
            if wish.wanted and spawner.ready and session is not None:  # it became so before this click
                post.tell(Told(session.id, server_of(spawner, with_start=False), ready=True))
        self.redirect(pending_url(self.hub.base_url, user, server_name), status=HTTPStatus.SEE_OTHER)


class MailPage(_OfMail):
    """Whether the reader gets any mails."""

    @web.authenticated
    async def get(self) -> None:
        """With a button that changes it."""
        user: Any = self.current_user
        allowed = self.post_office.outbox.wants(user.name)
        self.finish(await self.render_template("gpuspawner_mail.html", allowed=allowed))

    @web.authenticated
    async def post(self) -> None:
        """303 to the page."""
        user: Any = self.current_user
        self.post_office.outbox.allow(user.name, allowed=self.get_body_argument("allowed", "") == "1")
        self.redirect(self.request.path, status=HTTPStatus.SEE_OTHER)
