"""``/hub/api/gpuspawner/messages``: what administrators tell people on the hub's pages and in JupyterLab."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tornado import web

from jupyterhub_gpuspawner.extensions.messages.store import EVERYBODY, Audience, Kind, Message, clean_text, messages_of
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.hub.spawners.server import server_of
from jupyterhub_gpuspawner.hub.web.handlers import RESTHandler
from jupyterhub_gpuspawner.slurm.estimate import utc

VERSION = 1
DEFAULT_MINUTES = 24 * 60
"""Minutes that a message is shown, unless the request says otherwise."""
SHOWN_AT_MOST = 30 * 24 * 60
NAME_LIMIT = 255
"""Characters of a name."""


@dataclass(frozen=True)
class ShownMessage:
    """A message, and to whom it is."""

    to: dict[str, str | bool]
    """As in a request."""
    sender: str
    text: str
    at: str
    """ISO 8601, UTC."""
    until: str


@dataclass(frozen=True)
class MessagesDocument:
    """Administrators' messages that are shown now."""

    messages: tuple[ShownMessage, ...]
    """The newest first."""
    servers: int | None = None
    """After a new message: the active servers whose users it is shown to now."""
    version: int = VERSION


@dataclass(frozen=True)
class MessageRequest:
    """The body of a request."""

    to: Audience
    text: str = ""
    minutes: int = DEFAULT_MINUTES


def audiences(user_name: str, spawners: list[Any]) -> Iterator[Audience]:
    """The audiences of administrators' messages to which a user with these servers belongs."""
    yield EVERYBODY
    yield Audience(Kind.USER, user=user_name)
    for spawner in spawners:
        server = server_of(spawner, with_start=False)
        if server.active:
            yield Audience(Kind.SERVER, server.name, user_name)
            yield Audience(Kind.PROFILE, server.profile)
            placement = server.placement
            nodes = (placement.node, *(node.node for node in placement.other_nodes)) if placement is not None else ()
            yield from (Audience(Kind.NODE, node) for node in nodes)
            if server.cluster:
                yield Audience(Kind.CLUSTER, server.cluster)
                yield from (Audience(Kind.NODE, f"{server.cluster}/{node}") for node in nodes)


class MessagesHandler(RESTHandler):
    """Messages of administrators, for whoever has the scope `admin:servers` without a filter."""

    async def get(self) -> None:
        """The messages document, version 1: what is shown now."""
        self._check_scope()
        self._answer()

    async def post(self) -> None:
        """Show a message in the place of the last one to the same people; 400 names the field."""
        self._check_scope()
        request = self._parsed_message()
        now = time.time()
        message = Message(request.to, str(self.current_user.name), request.text, now, now + 60 * request.minutes)
        messages_of(self.db).keep([message])
        self.log.info("%s has sent a message to %s", message.sender, to_json(request.to))
        self._answer(servers=self._reached(request.to))

    async def delete(self) -> None:
        """Withdraw the message to these people; 404 where there is none."""
        self._check_scope()
        if not messages_of(self.db).withdraw(self._parsed_message(with_text=False).to):
            raise web.HTTPError(404, "There is no such message.")
        self._answer()

    def _check_scope(self) -> None:
        if self.current_user is None or not is_admin(self.parsed_scopes):
            raise web.HTTPError(403, "Messages need the scope admin:servers for all servers.")

    def _parsed_message(self, *, with_text: bool = True) -> MessageRequest:
        try:
            request = parse_message(self.limited_body(), with_text=with_text)
        except ValueError as error:
            raise web.HTTPError(400, "%s", error) from error
        if with_text and request.to.user and self.find_user(request.to.user) is None:
            raise web.HTTPError(404, "There is no such user.")
        return request

    def _reached(self, to: Audience) -> int:
        users = [self.find_user(to.user)] if to.user else list(self.users.values())
        spawners = [spawner for user in users if user is not None for spawner in user.spawners.values()]
        return sum(spawner.active and to in audiences(spawner.user.name, [spawner]) for spawner in spawners)

    def _answer(self, servers: int | None = None) -> None:
        shown = (message for message in messages_of(self.db).shown() if message.to.kind is not Kind.COURSE)
        self.write(asdict(MessagesDocument(tuple(map(_shown, shown)), servers)))


def parse_message(body: object, *, with_text: bool = True) -> MessageRequest:
    """The body of a request; raises ValueError, which names the field."""
    if not isinstance(body, dict):
        raise ValueError("The body must be a JSON object.")
    fields = ("message", "minutes", "to") if with_text else ("to",)
    strange = sorted(map(str, set(body) - set(fields)))
    if strange:
        raise ValueError(f"{strange[0]}: there is no such field; there are {', '.join(fields)}.")
    to = _audience(body.get("to"))
    if not with_text:
        return MessageRequest(to)
    message, minutes = body.get("message"), body.get("minutes", DEFAULT_MINUTES)
    text = clean_text(message) if isinstance(message, str) else ""
    if not text:
        raise ValueError("message: must be a text.")
    if type(minutes) is not int or not 1 <= minutes <= SHOWN_AT_MOST:
        raise ValueError(f"minutes: must be a whole number from 1 to {SHOWN_AT_MOST}.")
    return MessageRequest(to, text, minutes)


_FORMS = (
    'to: must be {"everybody": true}, {"user": name}, {"user": name, "server": name}, {"profile": slug}, '
    '{"cluster": name}, {"node": name} or {"cluster": name, "node": name}.'
)


_KINDS = {
    frozenset({"user"}): Kind.USER,
    frozenset({"user", "server"}): Kind.SERVER,
    frozenset({"profile"}): Kind.PROFILE,
    frozenset({"cluster"}): Kind.CLUSTER,
    frozenset({"node"}): Kind.NODE,
    frozenset({"cluster", "node"}): Kind.NODE,
}
"""By the keys of a request."""


def _audience(document: object) -> Audience:
    if document == {"everybody": True}:
        return EVERYBODY
    kind = _KINDS.get(frozenset(document)) if isinstance(document, dict) else None
    if kind is None or not isinstance(document, dict):
        raise ValueError(_FORMS)
    for key, value in sorted(document.items()):
        is_name = isinstance(value, str) and value.isprintable() and len(value) <= NAME_LIMIT
        if not is_name or not (value or key == "server"):
            raise ValueError(f"to.{key}: must be a name.")
    name = "/".join(document[key] for key in ("cluster", "profile", "server", "node") if key in document)
    return Audience(kind, name, document.get("user", ""))


def to_json(audience: Audience) -> dict[str, str | bool]:
    """An administrator's audience as in a request."""
    if audience.kind is Kind.HUB:
        return {"everybody": True}
    cluster, _, node = audience.name.rpartition("/")
    if audience.kind is Kind.NODE and cluster:
        return {"cluster": cluster, "node": node}
    user: dict[str, str | bool] = {"user": audience.user} if audience.user else {}
    return user if audience.kind is Kind.USER else {**user, audience.kind.value: audience.name}


def _shown(message: Message) -> ShownMessage:
    return ShownMessage(to_json(message.to), message.sender, message.text, utc(message.at), utc(message.until))


HANDLERS = [(r"/api/gpuspawner/messages", MessagesHandler)]
