"""A user of the hub's pages, without a browser: sign in, choose a profile, read the page."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests
from bs4 import BeautifulSoup
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path


@dataclass(frozen=True)
class Page:
    """The response to a request."""

    status: int
    url: str
    soup: BeautifulSoup

    @property
    def error(self) -> str:
        """The error on the form's page; empty if there is none."""
        return _text(self.soup, ".spawn-error-msg")

    @property
    def text(self) -> str:
        """The page's text, without the head and the navigation bar."""
        return _text(self.soup, "main.gs-page, body > .container, main .container, .container:last-of-type")


def _text(soup: BeautifulSoup, selector: str) -> str:
    return " ".join(" ".join(part.get_text(" ") for part in soup.select(selector)).split())


class Visitor:
    """A signed-in user."""

    def __init__(self, hub: HubProcess, name: str) -> None:
        self.hub = hub
        self.name = name
        self.session = requests.Session()
        # the proxy may close a connection that it keeps alive at the moment at which it is used again
        again = HTTPAdapter(max_retries=Retry(1, status=0, respect_retry_after_header=False))
        self.session.mount("http://", again)
        self._get("/hub/login")
        form = {"username": name, "password": hub.password, "_xsrf": self._xsrf}
        answer = self.session.post(f"{hub.url}/hub/login", data=form, timeout=30)
        assert answer.ok, answer.text

    @property
    def _xsrf(self) -> str:
        return next(cookie.value or "" for cookie in self.session.cookies if cookie.name == "_xsrf")

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the hub's own pages send."""
        return {"X-XSRFToken": self._xsrf, "Referer": f"{self.hub.url}/hub/"}

    def token(self, **fields: Any) -> str:
        """A token as the token page issues it: with all scopes of the user, or the ones in ``fields``."""
        url = f"{self.hub.url}/hub/api/users/{self.name}/tokens"
        return str(self.session.post(url, json=fields, headers=self.headers, timeout=60).json()["token"])

    def click(self, path: str, **fields: str) -> requests.Response:
        """Send a form of a page, without following where it leads."""
        data = {"_xsrf": self._xsrf, **fields}
        return self.session.post(f"{self.hub.url}{path}", data=data, allow_redirects=False, timeout=60)

    def events(self, user: str, server: str = "", *, seconds: float = 60.0) -> Iterator[dict[str, Any]]:
        """The progress events of a start, as they arrive at a page of the visitor's."""
        return _events(self.session, self.hub, self.headers, server_path(user, server), seconds)

    def _get(self, path: str) -> requests.Response:
        return self.session.get(f"{self.hub.url}{path}", timeout=60)

    def look(self, path: str) -> Page:
        """Open a page of the hub."""
        answer = self._get(path)
        return Page(answer.status_code, answer.url, BeautifulSoup(answer.text, "html.parser"))

    def pending(self, server: str = "") -> Page:
        """The page of a server that is starting, or whose start has just failed."""
        return self.look(f"/hub/spawn-pending/{self.name}/{server}".rstrip("/"))

    def start(self, fields: Mapping[str, str | bytes], server: str = "") -> Page:
        """Fill in the form and click *Start*."""
        return self.send(self.look(f"/hub/spawn/{self.name}/{server}" if server else "/hub/spawn"), fields)

    def send(self, page: Page, fields: Mapping[str, str | bytes]) -> Page:
        """Click *Start* on a page with a form."""
        form = page.soup.select_one("#spawn_form")
        assert form is not None, "there is no form"
        answer = self.session.post(f"{self.hub.url}{form['action']}", data=dict(fields), timeout=60)
        return Page(answer.status_code, answer.url, BeautifulSoup(answer.text, "html.parser"))


def events(hub: HubProcess, user: str, server: str = "", *, seconds: float = 60.0) -> Iterator[dict[str, Any]]:
    """The progress events of a start, as they arrive at a program, until the hub ends the stream."""
    headers = {"Authorization": f"token {hub.token}"}
    return _events(requests.Session(), hub, headers, server_path(user, server), seconds)


def _events(
    session: requests.Session, hub: HubProcess, headers: Mapping[str, str], path: str, seconds: float
) -> Iterator[dict[str, Any]]:
    ends_at = time.monotonic() + seconds
    url = f"{hub.url}/hub/api{path}/progress"
    with session.get(url, headers=dict(headers), stream=True, timeout=30) as answer:
        assert answer.ok, answer.text
        for line in answer.iter_lines(chunk_size=1):
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
            if time.monotonic() > ends_at:
                return
