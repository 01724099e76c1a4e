"""``/hub/gpuspawner/home/events``: the cards of a person's servers, and what they are told, as these change."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from jupyterhub.handlers.base import BaseHandler
from sqlalchemy.orm import Session
from tornado import web

from jupyterhub_gpuspawner.extensions.live_pages.streams import EventStream, LivePage
from jupyterhub_gpuspawner.hub.extension import Notice
from jupyterhub_gpuspawner.hub.server.card import ServerCard
from jupyterhub_gpuspawner.hub.site.database import AWAY, roll_back
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.server import refresh_servers
from jupyterhub_gpuspawner.hub.web.handlers import OpenStreams

SOON, LATER = 3.0, 10.0
"""Seconds between two looks at a person's servers, while one of them starts or stops, and while none does."""
CHANGING = frozenset({"waiting", "starting", "stopping"})
PATH = "gpuspawner/home/events"
"""Below the hub's base URL; the home page's script listens there."""
FIRST, CARD, MESSAGES = "home_first.html", "home_card.html", "gpuspawner_messages.html"


@dataclass(frozen=True)
class HomeSnapshot:
    """A person's servers and messages at one moment."""

    cards: tuple[ServerCard, ...]
    messages: tuple[Notice, ...] = ()
    versions: Mapping[str, str] = field(init=False)
    """Of each card by its server's name, in order; the default server has one in any case."""

    def __post_init__(self) -> None:
        versions = {card.name: card.version for card in self.cards}
        versions.setdefault("", f"{bool(self.cards)}")
        object.__setattr__(self, "versions", versions)

    @property
    def version(self) -> str:
        """A checksum of everything but the time left: the page's script counts it down."""
        content = [*self.versions.items(), *(message.at for message in self.messages)]
        return f"{zlib.crc32(repr(content).encode()):08x}"


def version(cards: Iterable[ServerCard], messages: Iterable[Notice]) -> str:
    """The version of a home page that shows these, for its script."""
    return HomeSnapshot(tuple(cards), tuple(messages)).version


class LiveHome(LivePage[HomeSnapshot]):
    """The home page of one person, made once for all their tabs."""

    def __init__(self, handler: BaseHandler) -> None:
        super().__init__()
        self._user: Any = handler.current_user
        self._session: Session = handler.db
        self._namespace = {**handler.template_namespace, "user": self._user}
        self._templates = {name: handler.get_template(name) for name in (FIRST, CARD, MESSAGES)}
        self._html: dict[tuple[str, str], str] = {}

    async def make(self) -> HomeSnapshot:
        """The page now."""
        tools = self._namespace["gpuspawner"]
        try:
            await refresh_servers(self._user.all_spawners())
            return HomeSnapshot(tools.cards(self._user), tuple(tools.notices(self._user)))
        except AWAY:
            roll_back(self._session)  # JupyterHub does not: it cannot answer a stream with an error any more
            raise

    def pause(self, now: HomeSnapshot) -> float:
        """Until the next look."""
        return SOON if any(card.state in CHANGING for card in now.cards) else LATER

    async def event(self, now: HomeSnapshot, last: HomeSnapshot | None) -> str:
        """The cards that have changed since ``last``, or all of them, as JSON."""
        before = last.versions if last is not None else {}
        cards = {card.name: card for card in now.cards}
        changed = {
            name: await self._card(name, version, cards.get(name), now)
            for name, version in now.versions.items()
            if before.get(name) != version
        }
        self._html = {key: html for key, html in self._html.items() if now.versions.get(key[0]) == key[1]}
        return json.dumps(
            {
                "version": now.version,
                "order": list(now.versions),
                "cards": changed,
                "messages": await self._rendered(MESSAGES, messages=now.messages),
            }
        )

    async def _card(self, name: str, version: str, card: ServerCard | None, now: HomeSnapshot) -> str:
        html = self._html.get((name, version))
        if html is None:
            template = CARD if card is not None else FIRST
            html = self._html[name, version] = await self._rendered(template, card=card, cards=now.cards)
        return html

    async def _rendered(self, template: str, **shown: object) -> str:
        return str(await self._templates[template].render_async(**self._namespace, **shown))


class OpenHomes(WeakValueDictionary[str, LiveHome]):
    """Those that somebody looks at, by the person's name."""


class HomeStreams(OpenStreams):
    """The streams that each person has open."""

    limit = 6


class HomeEvents(EventStream):
    """An event for each change of the reader's home page."""

    @web.authenticated
    async def get(self) -> None:
        """The events since ``version``."""
        user: Any = self.current_user
        homes = state_of(self.settings).of(OpenHomes)
        home = homes.get(user.name)
        if home is None:
            home = homes[user.name] = LiveHome(self)
        await self.send_events(HomeStreams, user.name, home.events(self.get_argument("version", "")))
