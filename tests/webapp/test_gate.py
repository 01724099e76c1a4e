"""What stands before an application: the folder of its socket, and what of requests and answers passes."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tornado.httputil import HTTPHeaders

from jupyterhub_gpuspawner.webapp.gpuspawner_gate import (
    LONGEST_PATH,
    for_application,
    from_elsewhere,
    own_cookie,
    socket_folder,
)


@pytest.mark.parametrize(
    ("name", "mode", "jobs_own"),
    [
        ("gpuspawner.abcdefghij", 0o700, True),
        ("gpuspawner.abcdefghij", 0o750, False),
        ("else", 0o700, False),
        ("x" * LONGEST_PATH + "/gpuspawner.abcdefghij", 0o700, False),
    ],
)
def test_a_socket_lies_in_a_folder_that_only_its_user_enters(name: str, mode: int, jobs_own: bool) -> None:
    """In the job's, where that is one and the path of the socket fits; otherwise in a new one."""
    with TemporaryDirectory() as short:  # tmp_path alone may be longer than a socket's path
        job = Path(short) / name
        job.mkdir(parents=True)
        job.chmod(mode)

        folder, new = socket_folder(f"{job}/launch.pyz")

        assert (folder == str(job), new) == (jobs_own, not jobs_own)
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        if new:
            shutil.rmtree(folder)


LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "elsewhere"),
    [
        ("GET", {}, False),
        ("POST", {}, False),  # no browser: a script with a token
        ("POST", {"Origin": "http://hub.example"}, False),
        ("POST", {"Origin": "https://HUB.example"}, False),  # TLS ends before the hub
        ("POST", {"Origin": "http://evil.example"}, True),
        ("POST", {"Origin": "http://hub.example:8000"}, True),
        ("POST", {"Origin": "null"}, True),
        ("GET", {"Origin": "http://evil.example", "Upgrade": "websocket"}, True),
        ("POST", {"Sec-Fetch-Site": "same-origin", "Origin": "http://inner.example"}, False),  # a proxy changed Host
        ("GET", {"Sec-Fetch-Site": "none", **LINK}, False),  # an address that was typed, or a bookmark
        ("GET", {"Sec-Fetch-Site": "cross-site", **LINK}, False),  # a link, or the way back from a sign-in elsewhere
        ("POST", {"Sec-Fetch-Site": "cross-site", **LINK}, True),  # a form
        ("GET", {"Sec-Fetch-Site": "cross-site", **LINK, "Sec-Fetch-Dest": "iframe"}, True),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, True),
        ("POST", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, True),  # another user's subdomain
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"}, True),
    ],
)
def test_pages_of_other_sites_can_link_to_an_application_and_nothing_more(
    method: str, headers: dict[str, str], elsewhere: bool
) -> None:
    """A browser says where a request comes from; the visitor's cookies would go with it."""
    assert from_elsewhere(method, HTTPHeaders({"Host": "hub.example", **headers})) is elsewhere


@pytest.mark.parametrize(
    ("sent", "by_token", "passed"),
    [
        ({"Accept": "*/*", "Cookie": "theme=dark; a=b=c"}, False, {"Accept": "*/*", "Cookie": "theme=dark; a=b=c"}),
        (
            {"Cookie": "jupyterhub-user-ada=secret; theme=dark; jupyterhub-session-id=1; _xsrf=2"},
            False,
            {"Cookie": "theme=dark; _xsrf=2"},
        ),
        ({"Cookie": "__Host-jupyterhub-user-ada=secret"}, False, {}),
        ({"Authorization": "token secret"}, True, {}),
        ({"Authorization": "Bearer its-own"}, False, {"Authorization": "Bearer its-own"}),
        ({"Remote-User": "root", "X-Forwarded-User": "root", "X-Forwarded-Prefix": "/user/bob"}, False, {}),
        ({"X-Forwarded-For": "192.0.2.1"}, False, {"X-Forwarded-For": "192.0.2.1"}),
    ],
)
def test_an_application_gets_nothing_of_the_sign_in(
    sent: dict[str, str], by_token: bool, passed: dict[str, str]
) -> None:
    """Neither the visitor's token, nor a name that the visitor claims."""
    headers = HTTPHeaders(sent)

    assert dict(for_application(headers, by_token=by_token)) == passed
    assert dict(headers) == sent


@pytest.mark.parametrize(
    ("cookie", "own"),
    [
        ("theme=dark", "theme=dark"),
        ("session=1; Path=/; HttpOnly", "session=1; Path=/user/ada/; HttpOnly"),
        ("session=1; path=/app; Domain=hub.example", "session=1; Path=/user/ada/app"),
        ("session=1; Path=/user/ada", "session=1; Path=/user/ada"),
        ("session=1; Path=/user/ada/x; Secure", "session=1; Path=/user/ada/x; Secure"),
        ("session=1; Path=/user/adam", "session=1; Path=/user/ada/user/adam"),
        ("__Host-session=1; Path=/; Secure", "__Host-session=1; Path=/; Secure"),
    ],
)
def test_cookies_of_an_application_are_for_its_own_addresses(cookie: str, own: str) -> None:
    """The hub, and other users' servers at the same host, do not get them."""
    assert own_cookie(cookie, "/user/ada") == own
