"""The stream of a person's home page: what an event has, and how often a card is rendered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import DictLoader, Environment
from sqlalchemy.exc import OperationalError

from jupyterhub_gpuspawner.extensions.live_pages.home import CARD, FIRST, LATER, MESSAGES, SOON, HomeSnapshot, LiveHome
from jupyterhub_gpuspawner.hub.extension import Notice
from jupyterhub_gpuspawner.hub.server.card import ServerCard, server_cards
from jupyterhub_gpuspawner.hub.spawners.server import Server

ADA = SimpleNamespace(name="ada")
LAB, TRAIN = Server(name="lab", display_name="lab", ready=True), Server(name="train", display_name="train", ready=True)
STOPPING = Server(name="train", display_name="train", ready=True, pending="stop")


class Home(LiveHome):
    """The home page of Ada, with templates that count."""

    def __init__(self) -> None:
        self.rendered: list[str] = []
        templates = {
            CARD: "{{ note(card.name) }}<section>{{ card.title }}, {{ card.word }}</section>",
            FIRST: "<section>Start one</section>",
            MESSAGES: "{% for message in messages %}{{ message.text }}{% endfor %}",
        }
        environment = Environment(autoescape=True, enable_async=True, loader=DictLoader(templates))
        namespace = {"note": self._note}
        super().__init__(
            SimpleNamespace(
                current_user=ADA, db=None, template_namespace=namespace, get_template=environment.get_template
            )
        )

    def _note(self, name: str) -> str:
        self.rendered.append(name)
        return ""

    async def told(self, now: HomeSnapshot, last: HomeSnapshot | None = None) -> dict[str, Any]:
        """The event of a change."""
        return dict(json.loads(await self.event(now, last)))


def home(*servers: Server, messages: tuple[Notice, ...] = ()) -> HomeSnapshot:
    """The page of these servers."""
    return HomeSnapshot(server_cards(servers), messages)


async def test_an_event_has_the_cards_that_changed() -> None:
    """And the order of all, with the place of the default server."""
    before, after = home(LAB, TRAIN), home(LAB, STOPPING)

    assert await Home().told(after, before) == {
        "version": after.version,
        "order": ["lab", "train", ""],
        "cards": {"train": "<section>Server train, stopping</section>"},
        "messages": "",
    }


async def test_a_person_without_a_server_is_invited() -> None:
    """In an event, as on the page; beside another card it is another invitation."""
    assert (await Home().told(home()))["cards"] == {"": "<section>Start one</section>"}
    assert home().version != home(LAB).version


async def test_a_card_is_rendered_once_for_all_tabs() -> None:
    """And again when it has changed."""
    page, first, second = Home(), home(LAB, TRAIN), home(LAB, STOPPING)
    for now, last in ((first, None), (first, None), (second, first), (second, first)):
        await page.told(now, last)

    assert page.rendered == ["lab", "train", "train"]


def test_a_page_is_looked_at_more_often_while_something_changes() -> None:
    """In seconds."""
    page = Home()

    assert [page.pause(now) for now in (home(LAB), home(LAB, STOPPING), home())] == [LATER, SOON, LATER]


async def test_a_stream_goes_on_when_the_database_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is away nobody knows what has changed, and the session is rolled back: others use it."""
    looks: Iterator[HomeSnapshot | OperationalError] = iter(
        [home(LAB), OperationalError("SELECT", {}, OSError()), home(STOPPING)]
    )

    class Tools:
        def cards(self, _user: Any) -> tuple[ServerCard, ...]:
            now = next(looks)
            if isinstance(now, OperationalError):
                raise now
            return now.cards

        def notices(self, _user: Any) -> tuple[Notice, ...]:
            return ()

    class Session:
        rolled_back = 0

        def rollback(self) -> None:
            self.rolled_back += 1

    page, session = Home(), Session()
    monkeypatch.setattr(page, "_user", SimpleNamespace(all_spawners=list))
    monkeypatch.setattr(page, "_session", session)
    monkeypatch.setitem(page._namespace, "gpuspawner", Tools())
    sent: list[str | None] = []
    async for event in page.events("", interval=0.0):
        sent.append(event)
        page.expire()
        if len(sent) == 3:
            break

    assert [event and sorted(json.loads(event)["cards"]) for event in sent] == [["", "lab"], None, ["train"]]
    assert session.rolled_back == 1
