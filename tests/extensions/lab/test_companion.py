"""The companion's server extension, in a Jupyter server's web application, with a stand-in for the hub."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from jupyter_server.auth import IdentityProvider, PasswordIdentityProvider
from tornado import web
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from jupyterhub_gpuspawner.extensions.lab import gpuspawner_companion as companion
from jupyterhub_gpuspawner.extensions.lab.files import companion_files

SESSION: dict[str, Any] = {"version": 1, "ends_at": "2026-03-02T17:00:05+00:00", "messages": []}
EXTENDED = {"version": 1, "possible": False, "extended": 1800}
KEEP_ANSWER = {"version": 1, "state": "idle", "kept": 1800}
REFUSED = {"status": 409, "message": "This server cannot be extended again.", "reason": "used"}
AWAY = {"message": "The hub does not answer at the moment. Try again later."}


POLICY = "default-src 'none'; style-src 'sha256-c3R5bGU='; sandbox"
"""What the hub lets its picture do."""


class FakeHub(web.RequestHandler):
    """Answers as it is told and notes what it was asked."""

    answers: ClassVar[dict[str, tuple[int, str]]] = {}
    requests: ClassVar[list[tuple[str, str, str]]] = []

    async def get(self) -> None:
        self._answer("GET")

    async def post(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        path = self.request.uri or ""
        self.requests.append((method, path, self.request.headers.get("Authorization", "")))
        status, body = self.answers.get(path.rpartition("/")[2], (404, ""))
        self.set_status(status)
        self.set_header("Content-Security-Policy", POLICY)
        self.finish(body)


@pytest.fixture
async def hub_url() -> AsyncIterator[str]:
    """The address of the stand-in's API."""
    FakeHub.answers, FakeHub.requests = {}, []
    socket, port = bind_unused_port()
    server = HTTPServer(web.Application([(".*", FakeHub)]))
    server.add_socket(socket)
    yield f"http://127.0.0.1:{port}/hub/api"
    server.stop()


class Everybody(PasswordIdentityProvider):
    """Whoever asks is the server's user, as after the hub's sign-in."""

    async def get_user(self, handler: Any) -> Any:
        return IdentityProvider().generate_anonymous_user(handler)


def lab_at(base: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[HTTPServer, str]:
    """A web application of a Jupyter server with the extension in it."""
    for name in ("JUPYTERHUB_API_URL", "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_USER", "JUPYTERHUB_SERVER_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    application = web.Application(
        [], base_url=base, identity_provider=Everybody(), disable_check_xsrf=True, allow_unauthenticated_access=True
    )
    companion._load_jupyter_server_extension(SimpleNamespace(web_app=application, log=logging.getLogger("lab")))
    socket, port = bind_unused_port()
    server = HTTPServer(application)
    server.add_socket(socket)
    return server, f"http://127.0.0.1:{port}{base}gpuspawner"


@pytest.fixture
def lab(hub_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of the extension in ada's server named ``two``."""
    environ = {
        "JUPYTERHUB_API_URL": hub_url,
        "JUPYTERHUB_API_TOKEN": "the-token",
        "JUPYTERHUB_USER": "ada@example.org",
        "JUPYTERHUB_SERVER_NAME": "two",
    }
    server, url = lab_at("/user/ada/two/", environ, monkeypatch)
    yield url
    server.stop()


async def fetched(url: str, method: str = "GET") -> tuple[int, Any]:
    """Status and JSON of an answer; None without a body."""
    client = AsyncHTTPClient()
    answer = await client.fetch(url, method=method, raise_error=False, allow_nonstandard_methods=True)
    return answer.code, json.loads(answer.body) if answer.body else None


ANSWERS: dict[str, tuple[str, str, tuple[int, str] | None, tuple[int, Any]]] = {
    "the session": ("GET", "session", (200, json.dumps(SESSION)), (200, SESSION)),
    "a session of another version": ("GET", "session", (200, '{"version": 2}'), (204, None)),
    "a session that is no object": ("GET", "session", (200, "[1]"), (204, None)),
    "a session that is no JSON": ("GET", "session", (200, "<html>"), (204, None)),
    "an older hub": ("GET", "session", (404, ""), (204, None)),
    "a hub in trouble": ("GET", "session", (503, ""), (204, None)),
    "too many questions": ("GET", "session", (429, ""), (204, None)),
    "a token that is no longer valid": ("GET", "session", (403, ""), (204, None)),
    "a session too large": ("GET", "session", (200, json.dumps({**SESSION, "x": "x" * 1_000_000})), (204, None)),
    "more time": ("POST", "extend", (200, json.dumps(EXTENDED)), (200, EXTENDED)),
    "no more time": ("POST", "extend", (409, json.dumps(REFUSED)), (409, REFUSED)),
    "keeping": ("POST", "keep", (200, json.dumps(KEEP_ANSWER)), (200, KEEP_ANSWER)),
    "more time, without words": ("POST", "extend", (502, ""), (502, AWAY)),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_browser_gets_what_the_hub_says(lab: str, name: str) -> None:
    """What is not understood is no content, which the page takes as silence."""
    method, path, answer, expected = ANSWERS[name]
    FakeHub.answers = {path: answer} if answer is not None else {}

    assert await fetched(f"{lab}/{path}", method) == expected


async def test_the_hub_is_asked_with_the_servers_own_token(lab: str) -> None:
    """About this server alone; names are quoted; several tabs share one answer until the end is moved."""
    FakeHub.answers = {"session": (200, json.dumps(SESSION)), "extend": (200, json.dumps(EXTENDED))}
    for path, method in (("session", "GET"), ("session", "GET"), ("extend", "POST"), ("session", "GET")):
        await fetched(f"{lab}/{path}", method)

    session = ("GET", "/hub/api/gpuspawner/session", "token the-token")
    extend = ("POST", "/hub/api/gpuspawner/servers/ada%40example.org/two/extend", "token the-token")
    assert FakeHub.requests == [session, extend, session]


SAMPLE: dict[str, Any] = {
    "version": 1,
    "at": 1000.0,
    "interval": 30.0,
    "simulated": False,
    "short": "GPU 83 %, 21 of 40 GB",
    "gpus": [["slice 1 of GPU 2", "83 %, 21 of 40 GB", 83]],
    "host": {"memory": "2.1 of 8 GiB", "bars": [["memory", "2.1 of 8 GiB", 26]], "low_since": None},
    "problems": [],
}
UNKNOWN = {**SAMPLE, "short": "GPU use unknown", "gpus": [], "host": {}, "problems": [companion.LATE]}
WITHOUT_GPUS = {**SAMPLE, "short": "", "gpus": []}
SAMPLES: dict[str, tuple[str | None, float, dict[str, Any] | None]] = {
    "of now": (json.dumps(SAMPLE), 1012.0, {**SAMPLE, "age": 12}),
    "two intervals ago": (json.dumps(SAMPLE), 1060.0, {**SAMPLE, "age": 60}),
    "too old": (json.dumps(SAMPLE), 1091.0, {**UNKNOWN, "age": 91}),
    "too old, and without GPUs": (json.dumps(WITHOUT_GPUS), 1091.0, {**UNKNOWN, "short": "", "age": 91}),
    "a clock set back": (json.dumps(SAMPLE), 400.0, {**SAMPLE, "age": 0}),
    "none": (None, 1000.0, None),
    "of another version": (json.dumps({**SAMPLE, "version": 2}), 1000.0, None),
    "half written": ('{"version": 1, "at"', 1000.0, None),
    "a list": ("[1]", 1000.0, None),
    "of nonsense": ('{"version": 1, "at": 1, "interval": 1, "gpus": 3}', 1.0, None),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_last_sample_is_shown_as_long_as_it_tells_of_now(tmp_path: Path, name: str) -> None:
    """With its age; of an old one, whose sampler was killed or hangs, the use is unknown. Other files are none."""
    text, now, expected = SAMPLES[name]
    file = tmp_path / "usage.json"
    if text is not None:
        file.write_text(text)

    assert companion.latest_usage(file, now) == expected


async def test_the_use_of_the_gpus_is_shown_without_the_hub(
    lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked; where nothing is measured there is no content."""
    monkeypatch.setattr(companion, "USAGE_FILE", tmp_path / "usage.json")
    nothing = await fetched(f"{lab}/usage")
    sample = {**SAMPLE, "at": time.time()}
    (tmp_path / "usage.json").write_text(json.dumps(sample))
    status, document = await fetched(f"{lab}/usage")

    assert nothing == (204, None)
    assert (status, {**document, "age": 0}) == (200, {**sample, "age": 0})
    assert FakeHub.requests == []


async def test_the_picture_is_an_image_and_nothing_else(lab: str) -> None:
    """A script in it would not run, even where somebody opens it as a page."""
    FakeHub.answers = {"picture": (200, "<svg/>")}
    answer = await AsyncHTTPClient().fetch(f"{lab}/picture")

    assert answer.body == b"<svg/>"
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert answer.headers.get_list("Content-Security-Policy") == [POLICY]


async def test_a_hub_that_is_away_is_one_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And no content for the page, each time; only a click on *More time* is told."""
    caplog.set_level(logging.INFO, "lab")
    unused, port = bind_unused_port()
    unused.close()
    environ = {"JUPYTERHUB_API_URL": f"http://127.0.0.1:{port}/hub/api", "JUPYTERHUB_API_TOKEN": "t"}
    server, url = lab_at("/user/ada/", environ, monkeypatch)
    try:
        answers = [await fetched(f"{url}/session") for _ in range(3)]
        extended = await fetched(f"{url}/extend", "POST")
    finally:
        server.stop()

    assert answers == [(204, None)] * 3
    assert extended == (503, AWAY)
    assert [record.getMessage() for record in caplog.records if record.name == "lab"] == [
        "gpuspawner: the hub does not tell when this session ends (no answer); asking again"
    ]


def test_the_companion_is_small() -> None:
    """Every job carries it, and every browser loads it."""
    assert sum(len(text.encode()) for text in companion_files().values()) <= 40_000


async def test_without_a_hub_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JupyterLab that somebody starts by hand in the same environment has no such address."""
    server, url = lab_at("/", {}, monkeypatch)
    try:
        answer = await AsyncHTTPClient().fetch(f"{url}/session", raise_error=False)
    finally:
        server.stop()

    assert answer.code == 404
