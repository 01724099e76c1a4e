"""Mails to users about their servers, taken by a real SMTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from traitlets.config import Config

from jupyterhub_gpuspawner.extension import Extensions, installed
from jupyterhub_gpuspawner.extensions.mail import post as mailing
from jupyterhub_gpuspawner.extensions.mail.post import NotSent, Post, Told, Wish, before_end, in_words
from jupyterhub_gpuspawner.extensions.mail.settings import GPUMail
from jupyterhub_gpuspawner.extensions.mail.store import Outbox
from jupyterhub_gpuspawner.hub.extension import HubExtension, Letter
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, Part
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from jupyterhub_gpuspawner.hub.job.session import Ended, Event, Ready
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners.server import Server, kept_with
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from tests.fixtures.databases import hub_session
from tests.standins.hub_spawner import HubSpawner

smtp = pytest.importorskip("aiosmtpd.smtp", reason="`scripts/setup test` installs it")
aiosmtplib = pytest.importorskip("aiosmtplib", reason="`scripts/setup test` installs it")

NOW = 1_900_000_000.0
MAIL = Extensions(tuple(extension for extension in installed() if extension.name == "mail"))
EVENT: dict[str, Any] = {"session": "s1", "username": "ada", "job_id": "12", "at": NOW}


class Box:
    """What an SMTP server does: it takes each mail, or gives the next of its answers."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.mails: list[EmailMessage] = []

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:
        """An answer that is not for the data."""
        if self.answers and not self.answers[0].startswith("data"):
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        """An answer for the data."""
        if self.answers:
            return self.answers.pop(0).removeprefix("data ")
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"

    @property
    def told(self) -> list[tuple[str, str]]:
        """To whom mails came, and their subjects."""
        return [(str(mail["To"]), str(mail["Subject"])) for mail in self.mails]


@asynccontextmanager
async def server_of(box: Box) -> AsyncIterator[str]:
    """The address of an SMTP server."""
    server = await asyncio.get_running_loop().create_server(lambda: smtp.SMTP(box), "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def session() -> Iterator[Any]:
    """That of the hub's database."""
    with hub_session() as of_hub:
        yield of_hub


class Hub:
    """A hub whose users have one server each."""

    def __init__(self, session: Any, *names: str, letters: Callable[..., Any] | None = None) -> None:
        self.session, self.state = session, HubState()
        extensions = HubExtensions(MAIL, self.state)
        if letters is not None:
            extensions.parts += (Part(SimpleNamespace(name="other"), HubExtension(letters=letters)),)  # type: ignore[arg-type]
        self.settings = {KEY: self.state, "public_url": urlparse("https://hub.example.org/")}
        self.users = {name: SimpleNamespace(name=name, settings=self.settings, spawners={}) for name in names}
        for user in self.users.values():
            user.spawners[""] = HubSpawner(user)

    def ask(self, *names: str) -> None:
        """These want mails."""
        for name in names:
            wish = kept_with(self.users[name].spawners[""], Wish)
            assert wish is not None
            wish.wanted = True

    def post(self, server: str, **settings: Any) -> Post:
        """Its mails, as after a start of the hub; its loop has not begun."""
        post = Post()
        config = Config(JupyterHub={"public_url": "https://hub.example.org/"})
        wanted: dict[str, Any] = {"sender": "hub@example.org", "address": "{user}@example.org", **settings}
        post.settings = GPUMail(config=config, server=server, **wanted)
        hub = SimpleNamespace(base_url="/hub/")
        post._app = SimpleNamespace(users=self.users, tornado_settings=self.settings, hub=hub)
        post.outbox = Outbox(self.session)
        return post


def happened(post: Post, *events: Event) -> None:
    """The hub's servers publish these."""
    for event in events:
        post._take(event)


async def test_who_has_asked_gets_one_mail_that_names_the_server_alone(session: Any) -> None:
    """With a link to it, and where mails end; others get none."""
    hub, box = Hub(session, "ada", "bob"), Box()
    hub.ask("ada")
    async with server_of(box) as server:
        post = hub.post(server)
        happened(post, Ready(**EVENT), Ready(**EVENT), Ready(**{**EVENT, "username": "bob"}))
        await post.run_once(NOW)
        await post.run_once(NOW + 60)

    assert box.told == [("ada@example.org", "My server is ready")]
    (mail,) = box.mails
    assert mail.get_content().replace("\r\n", "\n") == (
        "My server is ready, and its time has begun.\n\nhttps://hub.example.org/hub/spawn-pending/ada\n\n--\n"
        "Mails of https://hub.example.org/hub/. End or allow them: https://hub.example.org/hub/gpuspawner/mail\n"
    )
    assert (mail["Auto-Submitted"], mail["List-Unsubscribe"]) == (
        "auto-generated",
        "<https://hub.example.org/hub/gpuspawner/mail>",
    )


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Ended(**EVENT, begun_at=NOW, cause=Cause(Kind.START_FAILED)), ["My server was not started"]),
        (Ended(**EVENT, begun_at=NOW, cause=Cause(Kind.STOPPED_BY_USER)), []),
        (Ended(**EVENT, begun_at=NOW, served=True, cause=Cause(Kind.TIME_LIMIT)), []),
    ],
)
async def test_an_end_is_told_where_the_server_never_became_ready_and_nobody_stopped_it(
    session: Any, event: Event, told: list[str]
) -> None:
    """Who waits for a mail does not wait for ever."""
    hub, box = Hub(session, "ada"), Box()
    hub.ask("ada")
    async with server_of(box) as server:
        post = hub.post(server)
        happened(post, event)
        await post.run_once(NOW)
    assert [subject for _, subject in box.told] == told


async def test_a_restarted_hub_sends_what_the_one_before_could_not(session: Any) -> None:
    """While nothing listens, each look fails; then the mail goes once."""
    hub, box = Hub(session, "ada"), Box()
    hub.ask("ada")
    async with server_of(Box()) as gone:
        pass
    post = hub.post(gone)
    happened(post, Ready(**EVENT))
    with pytest.raises(NotSent):
        await post.run_once(NOW)
    async with server_of(box) as server:
        restarted = hub.post(server)
        await restarted.run_once(NOW + 600)
        await hub.post(server).run_once(NOW + 1200)
    assert box.told == [("ada@example.org", "My server is ready")]


async def test_a_database_that_takes_no_changes_sends_no_mail_twice(session: Any) -> None:
    """The mail whose sending could not be noted is noted later, and the others wait until then."""
    hub, box = Hub(session, "ada", "bob"), Box()
    async with server_of(box) as server:
        post = hub.post(server)
        letters = [Letter(name, "x", "A subject", "A text.", until=NOW + 6000) for name in ("ada", "bob")]
        post.outbox.add(letters, now=NOW, per_day=5)
        session.execute(text("PRAGMA query_only = ON"))
        for look in range(3):
            with pytest.raises(OperationalError):
                await post.run_once(NOW + 60 * look)
        during = list(box.told)
        session.execute(text("PRAGMA query_only = OFF"))
        await post.run_once(NOW + 600)
        await post.run_once(NOW + 660)

    assert during == [("ada@example.org", "A subject")]
    assert box.told == [*during, ("bob@example.org", "A subject")]


async def test_a_mail_that_comes_too_late_is_not_sent(session: Any) -> None:
    """That a server is ready is of no use the next day."""
    hub, box = Hub(session, "ada"), Box()
    post = hub.post("127.0.0.1:9")
    post.outbox.add([Letter("ada", "x", "A subject", "A text.", until=NOW + 60)], now=NOW, per_day=5)
    async with server_of(box) as server:
        await hub.post(server).run_once(NOW + 61)
    assert box.told == []


async def test_a_server_that_says_nothing_is_left_after_a_while(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the mail is kept."""
    monkeypatch.setattr(mailing, "TIMEOUT", 0.2)
    hub, writers = Hub(session, "ada"), []
    hub.ask("ada")

    async def silent(_reader: Any, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        post = hub.post(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        happened(post, Ready(**EVENT))
        with pytest.raises(NotSent):
            await post.run_once(NOW)
        for writer in writers:
            writer.close()
    assert len(post.outbox.due(NOW)) == 1


@pytest.mark.parametrize(
    ("answer", "kept"),
    [("550 no such user", 0), ("data 554 spam", 0), ("452 mailbox full", 1), ("data 451 greylisted", 1)],
)
async def test_a_refused_mail_keeps_no_other_one_back(session: Any, answer: str, kept: int) -> None:
    """One that may be taken later is kept, another is not."""
    hub, box = Hub(session, "ada", "bob"), Box(answer)
    hub.ask("ada", "bob")
    async with server_of(box) as server:
        post = hub.post(server)
        happened(post, Ready(**EVENT), Ready(**{**EVENT, "username": "bob"}))
        await post.run_once(NOW)
    assert box.told == [("bob@example.org", "My server is ready")]
    assert [mail.user for mail in post.outbox.due(NOW)] == ["ada"] * kept


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiosmtplib.SMTPHeloError(554, "No mails here.\nNot\x1b from you."), "554 No mails here. Not from you"),
        (aiosmtplib.SMTPNotSupported("STARTTLS is not supported."), "STARTTLS is not supported"),
        (
            aiosmtplib.SMTPRecipientsRefused(
                [aiosmtplib.SMTPRecipientRefused(550, f"No {name} here", name) for name in ("ada", "bob")]
            ),
            "550 No ada here; 550 No bob here",
        ),
        (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused"),
    ],
    ids=["an answer", "none", "of two recipients", "no server"],
)
def test_what_a_server_answers_is_one_line(error: Exception, words: str) -> None:
    """As it was written, with its code."""
    assert in_words(error) == words


async def test_a_name_of_a_server_cannot_add_a_header_or_a_recipient(session: Any) -> None:
    """It is one line of the subject; an address is one address or none."""
    hub, box = Hub(session, "ada", "eve,bob@example.org\nBcc: all"), Box()
    async with server_of(box) as server:
        post = hub.post(server)
        evil = "lab\r\nBcc: bob@example.org\r\n\r\nBody\u2028"
        post.tell(Told("s1", Server("ada", "lab", display_name=evil), ready=True))
        post.tell(Told("s2", Server("eve,bob@example.org\nBcc: all"), ready=True))
        await post.run_once(NOW)
    (mail,) = box.mails
    assert (mail["To"], mail["Bcc"]) == ("ada@example.org", None)
    assert mail["Subject"] == "Server lab Bcc: bob@example.org Body is ready"


async def _of_directory(user: Any) -> str | None:
    if user.name == "bob":
        raise KeyError("mail")
    return None if user.name == "cat" else f"{user.name}@directory.example.org"


async def test_a_function_that_knows_no_address_or_raises_concerns_nobody_else(
    session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names it once."""
    hub, box = Hub(session, "ada", "bob", "cat"), Box()
    hub.ask("ada", "bob", "cat")
    async with server_of(box) as server:
        post = hub.post(server, address=_of_directory)
        happened(post, *(Ready(**{**EVENT, "username": name}) for name in ("bob", "cat", "ada")))
        await post.run_once(NOW)
        await post.run_once(NOW + 60)
    assert box.told == [("ada@directory.example.org", "My server is ready")]
    assert caplog.text.count("No mail to bob: KeyError: 'mail' (c.GPUMail.address)") == 1


async def test_a_function_that_hangs_holds_no_other_mail(
    session: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many it hangs for: all are asked at once, and the others' mails go with the same look."""
    monkeypatch.setattr(mailing, "TIMEOUT", 0.5)
    others = [f"u{number}" for number in range(50)]
    hub, box = Hub(session, "ada", *others), Box()
    hub.ask("ada", *others)
    asked: set[str] = set()
    all_asked = asyncio.Event()

    async def hangs(user: Any) -> str:
        asked.add(user.name)
        if len(asked) > len(others):
            all_asked.set()
        await (all_asked if user.name == "ada" else asyncio.Event()).wait()
        return "ada@example.org"

    async with server_of(box) as server:
        post = hub.post(server, address=hangs)
        happened(post, *(Ready(**{**EVENT, "username": name}) for name in (*others, "ada")))
        await post.run_once(NOW)
    assert box.told == [("ada@example.org", "My server is ready")]
    assert caplog.text.count("c.GPUMail.address") == len(others)


async def test_a_fault_is_logged_once_whatever_its_words_until_a_mail_is_sent(
    session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one with the number of a request."""
    hub, box = Hub(session, "ada"), Box()
    hub.ask("ada")
    faults = [ConnectionError(f"request {number}") for number in range(4)]
    answers: list[Any] = [*faults[:2], "ada@example.org", *faults[2:]]

    def answer(_user: Any) -> Any:
        (first, *answers[:]) = answers
        if isinstance(first, Exception):
            raise first
        return first

    async with server_of(box) as server:
        post = hub.post(server, address=answer)
        for number, session_id in enumerate(("s1", "s1", "s1", "s2", "s2")):
            happened(post, Ready(**{**EVENT, "session": session_id}))
            await post.run_once(NOW + 60 * number)
    assert box.told == [("ada@example.org", "My server is ready")]
    assert [record.getMessage() for record in caplog.records if "No mail to" in record.getMessage()] == [
        f"No mail to ada: ConnectionError: request {number} (c.GPUMail.address)" for number in (0, 2)
    ]


async def test_a_person_gets_so_many_mails_a_day_and_none_once_they_have_said_so(session: Any) -> None:
    """Until they allow them again."""
    hub, box = Hub(session, "ada"), Box()

    async def start(number: int) -> None:
        post.tell(Told(f"s{number}", Server("ada"), ready=True))
        await post.run_once(NOW + number)

    async with server_of(box) as server:
        post = hub.post(server, per_day=2)
        for number in range(4):
            await start(number)
        assert len(box.mails) == 2
        await start(86410)
        assert len(box.mails) == 3
        post.outbox.allow("ada", allowed=False)
        await start(86411)
        assert len(box.mails) == 3
        post.outbox.allow("ada", allowed=True)
        await start(86412)
        assert len(box.mails) == 4


async def test_what_extensions_tell_of_a_server_is_for_those_who_have_asked(session: Any) -> None:
    """What is of no server, such as of a session that an instructor teaches, is told in any case, and once."""

    def letters(_settings: Any, now: float) -> Iterator[Letter]:
        for user in ("ada", "bob"):
            yield Letter(user, "idle 12", "It is idle", "It is.", until=now + 60, server="")
        yield Letter("bob", "evening deep", "52 seats for 50 people: Deep", "It is tomorrow.", until=now + 60)

    hub, box = Hub(session, "ada", "bob", letters=letters), Box()
    hub.ask("ada")
    hub.users["ada"].spawners[""].ready = True
    async with server_of(box) as server:
        for later in (0, 60):
            await hub.post(server).run_once(NOW + later)
    assert box.told == [
        ("ada@example.org", "It is idle"),
        ("bob@example.org", "52 seats for 50 people: Deep"),
    ]


def test_an_end_is_near_once_and_again_after_more_time() -> None:
    """By the end itself."""
    first, later = (
        Server("ada", job_id="12", placement=PlacementDocument(job_id="12", node="g1", ends_at=at))
        for at in ("2030-03-17T18:00:00+00:00", "2030-03-17T20:00:00+00:00")
    )
    ends = 1_900_000_800.0

    def about(server: Server, now: float) -> list[str]:
        return [letter.about for letter in before_end(server, now, 1800)]

    assert about(first, ends - 1801) == about(first, ends) == about(later, ends) == []
    assert about(first, ends - 1800) == about(first, ends - 60) == [f"end 12 {ends:.0f}"]
    assert about(later, ends + 7000) == [f"end 12 {ends + 7200:.0f}"]


def test_a_wish_is_stored_with_the_server_and_ends_with_it(session: Any) -> None:
    """A restart of the hub changes nothing."""
    hub = Hub(session, "ada")
    hub.ask("ada")
    extensions = hub.users["ada"].spawners[""].server_extensions
    stored = extensions.to_state()
    extensions.forget()
    after = extensions.to_state()
    extensions.load(stored)
    assert (stored, after, extensions.to_state()) == ({"mail": True}, {}, {"mail": True})
