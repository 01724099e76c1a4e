"""The companion's server extension: asks the hub for the browser extension, with the token that this server has.

It runs inside the single-user server, in that server's Python (3.9 or newer), and imports nothing of this package. The
browser asks it below the server's own address, so that neither the hub's cookies nor a token reach the page's scripts.
A hub that does not answer is 204, and one line in this server's log until it answers again.

The use of the server's GPUs does not come from the hub: the process that samples it writes the last sample beside this
file.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.httpclient import AsyncHTTPClient, HTTPRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Of the hub's session document."""
FRESH = 15.0
"""Seconds for which an answer of the hub serves all of this server's browser tabs."""
TIMEOUT = 10.0
"""Seconds for which the hub is waited for; more time is Slurm's to give, and may take longer."""
SLOW = 60.0
USAGE_FILE = Path(__file__).resolve().with_name("usage.json")
USAGE_VERSION = 1
"""Of the document in it."""
USAGE_LATE = 3
"""Intervals after which a sample is too old to say anything of now."""
LATE = "The use is unknown: it was not measured lately."
ANSWER_LIMIT = 1_000_000
"""Bytes; a picture of a large node has about a hundred thousand."""


@dataclass(frozen=True)
class Answer:
    """What the hub answered; status 0: it did not."""

    status: int = 0
    body: bytes = b""
    policy: str = ""
    """Its Content-Security-Policy."""

    def document(self) -> dict[str, Any]:
        """The JSON object in it; empty where there is none."""
        try:
            document = json.loads(self.body)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


class Hub:
    """The hub's REST API as this server may use it."""

    def __init__(self, environ: Mapping[str, str], log: Any) -> None:
        self._environ = environ
        self._log = log
        self._away = False
        self._session = Answer()
        self._asked_at = 0.0
        self._turn = asyncio.Lock()
        self._client = AsyncHTTPClient(force_instance=True, max_body_size=ANSWER_LIMIT)

    async def session(self) -> Answer:
        """The session document; an answer that is younger than :data:`FRESH` is given again."""
        async with self._turn:
            if not self._session.status or time.monotonic() - self._asked_at > FRESH:
                answer = await self._ask("GET", "/gpuspawner/session")
                valid = answer.status == 200 and answer.document().get("version") == VERSION
                self._note(answer, valid=valid)
                self._session = answer if valid else Answer()
                self._asked_at = time.monotonic()
            return self._session

    async def picture(self) -> Answer:
        """The picture of the node, as SVG."""
        return await self._ask("GET", "/gpuspawner/session/picture")

    async def change(self, action: str) -> Answer:
        """``extend`` asks for as much more time as the profile says, ``keep`` that the idle server is left alone."""
        names = [self._environ.get("JUPYTERHUB_USER", ""), self._environ.get("JUPYTERHUB_SERVER_NAME", "")]
        path = "/".join(quote(name, safe="") for name in names if name)
        answer = await self._ask("POST", f"/gpuspawner/servers/{path}/{action}", timeout=SLOW)
        self._session = Answer()  # it is another one now
        return answer

    async def _ask(self, method: str, path: str, *, timeout: float = TIMEOUT) -> Answer:
        environ = self._environ
        request = HTTPRequest(
            environ["JUPYTERHUB_API_URL"].rstrip("/") + path,
            method=method,
            headers={"Authorization": f"token {environ['JUPYTERHUB_API_TOKEN']}"},
            allow_nonstandard_methods=True,  # a POST without a body
            follow_redirects=False,
            connect_timeout=TIMEOUT,
            request_timeout=timeout,
            client_key=environ.get("JUPYTERHUB_SSL_KEYFILE") or None,
            client_cert=environ.get("JUPYTERHUB_SSL_CERTFILE") or None,
            ca_certs=environ.get("JUPYTERHUB_SSL_CLIENT_CA") or None,
        )
        try:
            answer = await self._client.fetch(request, raise_error=False)
        except Exception as error:  # noqa: BLE001 - no connection, a certificate, a body that is too large
            self._log.debug("gpuspawner: the hub: %s", error)
            return Answer()
        status = 0 if answer.code == 599 else answer.code  # 599: tornado's, for a time-out
        return Answer(status, answer.body or b"", answer.headers.get("Content-Security-Policy", ""))

    def _note(self, answer: Answer, *, valid: bool) -> None:
        if not valid and not self._away:
            reason = f"HTTP {answer.status}" if answer.status else "no answer"
            self._log.info("gpuspawner: the hub does not tell when this session ends (%s); asking again", reason)
        self._away = not valid


def latest_usage(file: Path, now: float) -> dict[str, Any] | None:
    """The last sample of the server's GPUs, with its age in seconds; None where nothing is measured.

    Of an old one, whose process has ended or hangs, the values are left out: they are unknown.
    """
    try:
        usage = json.loads(file.read_text("utf-8"))
        if usage.get("version") != USAGE_VERSION or not isinstance(usage["gpus"], list):
            return None
        age = max(0.0, now - float(usage["at"]))
        if age > USAGE_LATE * float(usage["interval"]):
            usage |= {"short": usage["short"] and "GPU use unknown", "gpus": [], "host": {}, "problems": [LATE]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return {**usage, "age": round(age)}


class _Handler(APIHandler):
    _track_activity = False
    """A page that counts the time down is no activity of its user: an idle server stays idle."""

    def _log(self) -> None:
        """No line in the server's log for what a page asks twice a minute."""
        if self.get_status() >= 400:
            super()._log()

    @property
    def hub(self) -> Hub:
        """The hub of this server."""
        hub: Hub = self.settings["gpuspawner_hub"]
        return hub

    async def answer(self, content: dict[str, Any] | bytes | None, content_type: str = "application/json") -> None:
        """Answer with the content, or with 204 where there is none."""
        self.set_status(200 if content is not None else 204)
        await self.finish(content, set_content_type=content_type)


class SessionHandler(_Handler):
    """The hub's session document as it is; 204 where the hub does not answer."""

    @web.authenticated
    async def get(self) -> None:
        """200 or 204."""
        session = await self.hub.session()
        await self.answer(session.document() if session.status else None)


class ActionHandler(_Handler):
    """*More time* and *Keep*; the hub's answer with its status, and 503 where there is none."""

    @web.authenticated
    async def post(self) -> None:
        """Ask the hub."""
        done = await self.hub.change(self.request.path.rpartition("/")[2])
        self.set_status(done.status or 503)
        await self.finish(done.document() or {"message": "The hub does not answer at the moment. Try again later."})


class UsageHandler(_Handler):
    """The last sample of the server's own GPUs, also while the hub does not answer; 204 where nothing is measured."""

    @web.authenticated
    async def get(self) -> None:
        """200 or 204."""
        await self.answer(latest_usage(USAGE_FILE, time.time()))


class PictureHandler(_Handler):
    """The picture of the node, which a page may show as an image and nothing else; 204 where there is none."""

    @web.authenticated
    async def get(self) -> None:
        """200 or 204."""
        picture = await self.hub.picture()
        self.set_header("Content-Security-Policy", picture.policy or "default-src 'none'; sandbox")
        self.set_header("X-Content-Type-Options", "nosniff")
        await self.answer(picture.body if picture.status == 200 else None, "image/svg+xml")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "gpuspawner_companion"}]


def _load_jupyter_server_extension(app: Any) -> None:
    """Add the addresses, in a server that a hub has started."""
    if not (os.environ.get("JUPYTERHUB_API_URL") and os.environ.get("JUPYTERHUB_API_TOKEN")):
        return
    web_app = app.web_app
    web_app.settings["gpuspawner_hub"] = Hub(dict(os.environ), app.log)
    handlers: dict[str, type[_Handler]] = {
        "session": SessionHandler,
        "extend": ActionHandler,
        "keep": ActionHandler,
        "usage": UsageHandler,
        "picture": PictureHandler,
    }
    base = url_path_join(web_app.settings["base_url"], "gpuspawner")
    web_app.add_handlers(".*$", [(url_path_join(base, name), handler) for name, handler in handlers.items()])
