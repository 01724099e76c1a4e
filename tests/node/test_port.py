"""The server's port: URLs, ranges, ports that are taken."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from jupyterhub_gpuspawner.node import port
from jupyterhub_gpuspawner.node.port import Url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:0/user/ada/", Url("http", "127.0.0.1", 0, "/user/ada/")),
        ("https://10.0.0.7:8888/user/a%20b/gpu%3A1/", Url("https", "10.0.0.7", 8888, "/user/a%20b/gpu%3A1/")),
        ("http://[::1]:5000/", Url("http", "::1", 5000, "/")),
        ("http://[::]/x", Url("http", "::", None, "/x")),
        ("http://:0/user/ada/", Url("http", "", 0, "/user/ada/")),
        ("http://hub.example:8081/hub/api", Url("http", "hub.example", 8081, "/hub/api")),
        ("HTTP://hub", Url("http", "hub", None, "")),
    ],
)
def test_a_url_is_read_and_written(text: str, url: Url) -> None:
    """Both ways, as ``urllib.parse`` would."""
    assert port.parse_url(text) == url
    assert str(url).lower() == text.lower()


@pytest.mark.parametrize("text", ["", "127.0.0.1:80", "/user/ada", "http://host:port/", "http://host:٣/"])
def test_what_is_no_url_is_refused(text: str) -> None:
    """With a sentence that says what one looks like."""
    with pytest.raises(ValueError, match="is not a URL of the form"):
        port.parse_url(text)


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port of 127.0.0.1 on which somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_the_port_that_the_hub_chose_is_kept_if_it_is_free(busy_port: int) -> None:
    """A taken one is not."""
    free = port.pick("127.0.0.1", port_range=None)

    assert port.pick("127.0.0.1", port_range=None, wish=free) == free
    assert port.pick("127.0.0.1", port_range=None, wish=busy_port) != busy_port


def test_of_a_range_the_free_port_is_found(busy_port: int) -> None:
    """Wherever in the range the search starts."""
    first, last = (busy_port, busy_port + 1) if busy_port < 65535 else (busy_port - 1, busy_port)
    [free] = {first, last} - {busy_port}
    try:
        port.pick("127.0.0.1", port_range=(free, free))
    except OSError:
        pytest.skip("the neighbouring port is taken by chance")

    assert {port.pick("127.0.0.1", port_range=(first, last)) for _ in range(20)} == {free}


def test_two_servers_rarely_begin_at_the_same_port() -> None:
    """The start in the range is random."""
    ports = {port.pick("127.0.0.1", port_range=(20000, 30000)) for _ in range(20)}

    assert len(ports) > 10


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:0/user/ada/gpu%201/", ""),
        ("", ""),  # of a server that takes its port only from the command line
        ("http://192.0.2.1:0/", "No port on 192.0.2.1: Cannot assign requested address."),  # nobody's (RFC 5737)
    ],
)
def test_the_door_keeps_the_url_but_for_the_port(url: str, problem: str) -> None:
    """Scheme, host and path are the hub's. On an address of another machine it is a port of all addresses."""
    number, with_port, problems = port.door(url, None)

    assert number >= 1024
    assert with_port == (url.replace(":0/", f":{number}/") or None)
    assert set(problems) == ({problem} if problem else set())


def test_a_taken_range_gives_any_port_and_a_problem(busy_port: int) -> None:
    """The server starts; whether it can be reached depends on the firewall."""
    number, url, problems = port.door("http://127.0.0.1:0/", (busy_port, busy_port))

    assert url == f"http://127.0.0.1:{number}/"
    assert number not in (0, busy_port)
    assert problems == [f"No port on 127.0.0.1: no port from {busy_port} to {busy_port} is free."]
