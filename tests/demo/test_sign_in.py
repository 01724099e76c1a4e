"""Signing in to the demo: the link's key, the people, and what is said of both."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.account import private_folder
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.run import tunnel
from jupyterhub_gpuspawner.demo.sign_in import PEOPLE, Link
from jupyterhub_gpuspawner.errors import ConfigError
from tests.fixtures.hubs import needs_proxy

LINKS: dict[str, tuple[str, list[tuple[float, str]], list[bool]]] = {
    "once": ("key", [(0, "key"), (1, "key")], [True, False]),
    "a wrong key uses up nothing": (
        "key",
        [(0, "Key"), (0, "ke"), (0, ""), (0, "clé"), (1, "key")],
        [False] * 4 + [True],
    ),
    "until it is too old": ("key", [(59, "wrong"), (60, "key")], [False, False]),
    "no link": ("", [(0, ""), (0, "key")], [False, False]),
}


@pytest.mark.parametrize(("key", "tries", "expected"), LINKS.values(), ids=LINKS.keys())
def test_a_link_signs_in(key: str, tries: list[tuple[float, str]], expected: list[bool]) -> None:
    """Of a link that works for a minute: at which second which key signs in."""
    now = [0.0]
    link = Link(key, 60, clock=lambda: now[0])
    answers = []
    for second, tried in tries:
        now[0] = second
        answers.append(link.redeem(tried))

    assert answers == expected


PRINTED: dict[str, tuple[Mapping[str, str], bool]] = {
    "at the machine itself": ({"DISPLAY": ":0"}, False),
    "with Wayland": ({"WAYLAND_DISPLAY": "wayland-0"}, False),
    "by ssh": ({"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}, True),
    "by ssh -X": ({"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22", "DISPLAY": "localhost:10.0"}, True),
    "by sudo or in a container": ({}, True),
}


@pytest.mark.parametrize(("environment", "printed"), PRINTED.values(), ids=PRINTED.keys())
def test_the_line_for_ssh_is_printed_where_the_browser_is_elsewhere(
    environment: Mapping[str, str], printed: bool
) -> None:
    """With the demo's own port on both sides, since the hub redirects to its own address."""
    lines = "\n".join(tunnel("http://127.0.0.1:8123", environment))

    assert ("ssh -L 8123:127.0.0.1:8123 " in lines, bool(lines)) == (printed, printed)


FOLDERS: dict[str, tuple[int, int, str]] = {
    "new": (0o755, 0, ""),
    "new in one that all can write, such as /tmp": (0o1777, 0, ""),
    "own": (0o755, 0o755, ""),
    "one that all can write": (0o755, 0o777, "demo"),
    "a sticky one": (0o755, 0o1777, "demo"),
    "in one that all can write without the sticky bit": (0o777, 0o700, "parent"),
}


@pytest.mark.parametrize(("parent", "own", "refused"), FOLDERS.values(), ids=FOLDERS.keys())
def test_the_folder_is_nobody_elses(tmp_path: Path, parent: int, own: int, refused: str) -> None:
    """A new one is private; one in which others could put their own files in the place of the demo's is refused."""
    folder = tmp_path / "parent" / "demo"
    folder.parent.mkdir()
    folder.parent.chmod(parent)
    if own:
        folder.mkdir()
        folder.chmod(own)
    if refused:
        at = re.escape(f"Other accounts can change what is in {folder if refused == 'demo' else folder.parent}.")
        with pytest.raises(ConfigError, match=at):
            private_folder(folder, "")
    else:
        assert private_folder(folder, "").stat().st_mode & 0o7777 == (own or 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Who made it could remove and replace what is in it."""
    folder = tmp_path / "demo"
    folder.mkdir(mode=0o755)
    os.chown(folder, 65534, 65534)

    with pytest.raises(ConfigError, match=r"Other accounts can change what is in .*/demo\."):
        private_folder(folder, "")


# --- a hub with the demo's people ---------------------------------------------------------------------

KEY = "the-key-of-the-link"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """The demo's hub without Slurm."""
    needs_proxy()
    folder = tmp_path_factory.mktemp("hub")
    (folder / "profiles").mkdir()
    with HubProcess(folder, people=PEOPLE, link_key=KEY) as hub:
        yield hub


def sign_in(hub: HubProcess, page: str, **form: str) -> tuple[int, str]:
    """Send the form of a page as a new browser: the status, and who is signed in then."""
    session = requests.Session()
    session.get(f"{hub.url}{page}", timeout=30)
    xsrf = next(cookie.value or "" for cookie in session.cookies if cookie.name == "_xsrf")
    answer = session.post(f"{hub.url}{page}", data={**form, "_xsrf": xsrf}, timeout=30)
    user = session.get(f"{hub.url}/hub/api/user", headers={"X-XSRFToken": xsrf, "Referer": answer.url}, timeout=30)
    return answer.status_code, user.json().get("name", "")


@pytest.mark.hub
@pytest.mark.parametrize("name", PEOPLE)
def test_the_demos_people_sign_in(hub: HubProcess, name: str) -> None:
    """Each with the password."""
    assert sign_in(hub, "/hub/login", username=name, password=hub.password) == (200, name)


@pytest.mark.hub
@pytest.mark.parametrize("name", ["eve", "root", "nobody", "student5", "demo", ""])
def test_nobody_else_signs_in(hub: HubProcess, name: str) -> None:
    """Not even with the password."""
    assert sign_in(hub, "/hub/login", username=name, password=hub.password) == (403, "")


@pytest.mark.hub
def test_the_link_signs_in_once(hub: HubProcess) -> None:
    """The second time says how to go on; neither is in the log, nor is the password."""
    assert sign_in(hub, "/hub/demo", key="wrong") == (403, "")
    assert sign_in(hub, "/hub/demo", key=KEY) == (200, "ada")
    assert sign_in(hub, "/hub/demo", key=KEY) == (403, "")
    assert hub.link == f"{hub.url}/hub/demo#{KEY}"
    log = hub.log.read_text()
    assert "A link was refused" in log
    assert [secret in log for secret in (KEY, hub.password)] == [False, False]


@pytest.mark.hub
def test_an_old_password_is_none(hub: HubProcess) -> None:
    """Each hub has its own; and the link's key is no password."""
    for password in ("demo", "", KEY, "ü"):
        assert sign_in(hub, "/hub/login", username="ada", password=password) == (403, "")
