"""What is mailed to whom, and when: one loop looks each minute, and when a server becomes ready or its start fails.

A mail waits in the database until the server has taken it, or it is of no use any more; a restart of the hub changes
nothing. One is sent twice only if the hub ends between the server's answer and its own note of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from email.message import EmailMessage
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlunparse

from jupyterhub.app import JupyterHub
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.extensions.mail.message import is_address, mail, one_line
from jupyterhub_gpuspawner.extensions.mail.settings import GPUMail
from jupyterhub_gpuspawner.extensions.mail.store import Mail, Outbox
from jupyterhub_gpuspawner.hub.extension import Letter, WithServer
from jupyterhub_gpuspawner.hub.extensions import extensions_of
from jupyterhub_gpuspawner.hub.job.cause import STOPS
from jupyterhub_gpuspawner.hub.job.session import Ended, Event, Ready, Stream
from jupyterhub_gpuspawner.hub.site.background import every
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.server import Server, kept_with, server_of, server_title
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.tasks import contained
from jupyterhub_gpuspawner.words import duration

if TYPE_CHECKING:
    import aiosmtplib

POLL_SECONDS = 60.0
"""Seconds between two looks."""
USEFUL = 12 * 3600.0
"""Seconds for which it is tried to send that a server is ready."""
TIMEOUT = 20.0
"""Seconds for each answer of the SMTP server, and for a hook's."""


class NotSent(GPUSpawnerError):
    """The SMTP server takes no mails now."""


class Wish(WithServer):
    """Whether the user of a server wants mails about it, until it ends."""

    wanted = False

    def to_state(self) -> Mapping[str, Any]:
        """Stored, so that a restart of the hub changes nothing."""
        return {"mail": True} if self.wanted else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on."""
        self.wanted = state.get("mail") is True

    def forget(self) -> None:
        """The next server is asked for anew."""
        self.wanted = False


class Told(NamedTuple):
    """That something has happened to a server."""

    session: str
    server: Server
    ready: bool


class NoMail(Enum):
    """Why somebody gets no mail."""

    ENOUGH = "enough"
    """They have had all the mails of a day."""
    RAISED = "raised"
    """The site's function has raised, or has not answered."""
    NO_ADDRESS = "no address"
    """What there is for them is none."""
    REFUSED = "refused"
    """The SMTP server does not take a mail to them."""


class Post:
    """Mails of one hub; it sends none until :func:`begin_mail` has found settings."""

    def __init__(self) -> None:
        self.settings: GPUMail | None = None
        self.wake = asyncio.Event()
        self._told: list[Told] = []
        self._logged: set[tuple[str, NoMail]] = set()
        self._over: set[int] = set()
        """Ids of mails that are sent, or cannot be, and that the database still has as waiting."""

    @property
    def on(self) -> bool:
        """Whether the admin has set it up."""
        return self.settings is not None

    def begin(self, app: JupyterHub, settings: GPUMail) -> None:
        """Send mails from now on."""
        self.settings, self._app, self.outbox = settings, app, Outbox(app.db)
        state_of(app.tornado_settings).of(Stream).subscribe(self._take)
        every(app, POLL_SECONDS, self.run_once, "Sending mails", wake=self.wake)

    def tell(self, told: Told) -> None:
        """Mail this with the next look, which is at once; nothing is asked of the database here."""
        self._told.append(told)
        self.wake.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, Ready):
            ready = True
        elif isinstance(event, Ended) and not event.served and event.cause.kind not in STOPS:
            ready = False
        else:
            return
        user = self._app.users.get(event.username)
        spawner = user.spawners.get(event.servername) if user is not None else None
        wish = kept_with(spawner, Wish) if spawner is not None else None
        if wish is not None and wish.wanted:
            self.tell(Told(event.session, server_of(spawner, with_start=False), ready))

    async def run_once(self, now: float | None = None) -> None:
        """One look. Raises NotSent, and SQLAlchemyError."""
        assert self.settings is not None
        now = time.time() if now is None else now
        told = tuple(self._told)
        letters = [*(letter_of(each, now) for each in told), *self._due(now)]
        if letters:
            over = self.outbox.add(letters, now=now, per_day=self.settings.per_day)
            for name in over:
                self._log_once(name, NoMail.ENOUGH, "has had all the mails of a day", "c.GPUMail.per_day")
        del self._told[: len(told)]
        due = []
        for waiting in self.outbox.due(now):
            if waiting.id in self._over:
                self._done(waiting)  # while that fails nothing is sent
            else:
                due.append(waiting)
        addresses = await self._addresses({mail.user for mail in due})
        if mails := [(mail, self._message(mail, addresses[mail.user])) for mail in due if addresses[mail.user]]:
            await self._send(mails)

    def _due(self, now: float) -> Iterator[Letter]:
        """What there is to tell of servers and by extensions."""
        assert self.settings is not None
        wished = set()
        for user in list(self._app.users.values()):
            for spawner in list(user.spawners.values()):
                wish = kept_with(spawner, Wish)
                if wish is not None and wish.wanted and spawner.ready and not spawner.pending:
                    server = server_of(spawner, with_start=False)
                    wished.add((server.user, server.name))
                    yield from before_end(server, now, 60.0 * self.settings.before_end)
        settings = self._app.tornado_settings
        for letter in extensions_of(settings).letters(settings, now):
            if letter.server is None or (letter.user, letter.server) in wished:
                yield letter

    async def _addresses(self, names: Collection[str]) -> Mapping[str, str]:
        """The address of each, asked for side by side: one for whom none comes holds the others' mails once."""
        return dict(zip(names, await asyncio.gather(*map(self._address, names)), strict=True))

    async def _address(self, name: str) -> str:
        """The address of a user; empty where there is none now, which is logged."""
        assert self.settings is not None
        source, user = self.settings.address, self._app.users.get(name)
        if user is None:
            return ""
        try:
            found = await contained(lambda: source(user), seconds=TIMEOUT) if callable(source) else None
        except Exception as error:  # noqa: BLE001 - whatever the site's function raises
            self._log_once(name, NoMail.RAISED, f"{type(error).__name__}: {error}", "c.GPUMail.address")
            return ""
        address = found if callable(source) else source.replace("{user}", name)
        if not is_address(address):
            if address:
                self._log_once(name, NoMail.NO_ADDRESS, f"{address!r} is no address", "c.GPUMail.address")
            return ""
        return str(address)

    def _log_once(self, user: str, why: NoMail, fault: str, where: str) -> None:
        """Log it until a mail to them is sent; the text of the same fault may differ each time."""
        if (user, why) not in self._logged:
            self._logged.add((user, why))
            get_logger().warning("No mail to %s: %s (%s)", user, fault, where)

    def _message(self, waiting: Mail, address: str) -> EmailMessage:
        assert self.settings is not None
        public = self._app.tornado_settings["public_url"]
        hub = urlunparse(public._replace(path=self._app.hub.base_url))
        return mail(
            sender=self.settings.sender,
            to=address,
            subject=waiting.subject,
            text=waiting.text,
            link=waiting.link,
            hub=hub,
            at=waiting.at,
        )

    async def _send(self, mails: list[tuple[Mail, EmailMessage]]) -> None:
        """Send these over one connection. Raises NotSent, and then the others are sent later; and SQLAlchemyError."""
        import aiosmtplib  # of an extra: the settings refuse a server without it

        assert self.settings is not None
        try:
            async with await client_of(self.settings) as client:
                for waiting, message in mails:
                    try:
                        await client.send_message(message)
                    except (aiosmtplib.SMTPRecipientsRefused, aiosmtplib.SMTPDataError) as error:
                        if any(400 <= code < 500 for code in _codes(error)):
                            continue  # such as of a mailbox that is full: with the next look
                        fault = f"the server refused it: {in_words(error)}"
                        self._log_once(waiting.user, NoMail.REFUSED, fault, "c.GPUMail.server")
                    else:
                        self._logged -= {(waiting.user, why) for why in NoMail if why is not NoMail.ENOUGH}
                    self._over.add(waiting.id)
                    self._done(waiting)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise NotSent(f"{self.settings.server}: {in_words(error)}", hint="See c.GPUMail.") from error

    def _done(self, waiting: Mail) -> None:
        """Note that it is over. Raises SQLAlchemyError."""
        self.outbox.done(waiting)
        self._over.discard(waiting.id)


async def client_of(settings: GPUMail) -> aiosmtplib.SMTP:
    """The client of the SMTP server, not yet connected. Raises OSError where the password cannot be read."""
    import aiosmtplib

    host, _, port = settings.server.partition(":")
    password = await asyncio.to_thread(Path(settings.password_file).read_text) if settings.user else ""
    return aiosmtplib.SMTP(
        hostname=host,
        port=int(port or (465 if settings.security == "tls" else 25)),
        username=settings.user or None,
        password=password.strip() or None,
        use_tls=settings.security == "tls",
        start_tls={"if offered": None, "starttls": True, "tls": False}[settings.security],
        timeout=TIMEOUT,
    )


def _codes(error: Any) -> list[int]:
    """The SMTP codes of a refusal."""
    return [refused.code for refused in getattr(error, "recipients", [error])]


def in_words(error: Any) -> str:
    """What the server has answered, each answer with its code, or why it has not; one line without its full stop."""
    answers = (
        f"{refused.code} {refused.message}" if hasattr(refused, "code") else str(refused)
        for refused in getattr(error, "recipients", [error])
    )
    return one_line("; ".join(answers)).removesuffix(".")


def before_end(server: Server, now: float, seconds: float) -> Iterator[Letter]:
    """That a running server ends in less than so many seconds; once for each end, which may be put off."""
    ends = server.placement.ends_at if server.placement is not None else None
    ends_at = parse_time(ends).timestamp() if ends is not None else 0.0
    started = server.placement.started_at if server.placement is not None else None
    if started is not None and ends_at - parse_time(started).timestamp() <= seconds:
        return  # whoever chose so little time knows that
    if now < ends_at <= now + seconds:
        title = server_title(server)
        yield Letter(
            server.user,
            f"end {server.job_id} {ends_at:.0f}",
            subject=f"{title} ends in {duration(ends_at - now)}",
            text=f"{title} ends at {clock(ends_at)}. Save your work before then.",
            until=ends_at,
        )


def letter_of(told: Told, now: float) -> Letter:
    """That a server is ready, or was not started."""
    server, title = told.server, server_title(told.server)
    path = "/".join(quote(part, safe="") for part in (server.user, server.name) if part)
    if told.ready:
        subject, text = f"{title} is ready", f"{title} is ready, and its time has begun."
    else:
        subject, text = f"{title} was not started", f"{title} could not be started. Its page says why."
    about = f"{'ready' if told.ready else 'failed'} {told.session}"
    return Letter(server.user, about, subject=subject, text=text, link=f"spawn-pending/{path}", until=now + USEFUL)


def clock(at: float) -> str:
    """``14:30 CET``, of the hub's time zone."""
    return time.strftime("%H:%M %Z", time.localtime(at))


def begin_mail(app: JupyterHub) -> None:
    """Send mails where the admin has set a server."""
    settings = GPUMail(config=app.config)
    if settings.server:
        state_of(app.tornado_settings).of(Post).begin(app, settings)
