"""A home folder that is full, the profile with which its user makes room, and what is sent of a start that failed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import COMMAND, NO_SPAWN_WAIT, StartHub, offer
from tests.hub.servers import start
from tests.hub.visitor import Page, Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

SLURM = 'slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}'
PROFILES = f"""
- display_name: Writes
  slug: writes
  {SLURM}
  command: {COMMAND}
- display_name: At once
  slug: at-once
  {SLURM}
  command: {COMMAND}
- display_name: For others
  slug: others
  rescue: true
  allow: {{users: nobody-here}}
  {SLURM}
  command: {COMMAND}
"""
GUIDE = (Path(__file__).parents[2] / "docs" / "howto" / "add-a-profile.md").read_text()
(RESCUE,) = re.findall(r"```yaml\n(display_name: Make room\n.*?)```", GUIDE, re.DOTALL)
HOOKS = """
import asyncio
from tornado import web
from jupyterhub_gpuspawner.hub.spawners.offers import apply_user_options
home = c.Spawner.pre_spawn_hook


async def hook(spawner):
    await asyncio.sleep(2)  # as one that asks a file server for the quota
    if spawner.user.name == "bob":
        raise OSError(30, "Read-only file system")
    home(spawner)


async def accept(spawner, choice):
    if choice["profile"] == "at-once":
        raise web.HTTPError(507)
    await apply_user_options(spawner, choice)


c.Spawner.pre_spawn_hook = hook
c.Spawner.apply_user_options = accept
"""
FULL = "Your home folder is full: 1 of 1 MiB are used."
ADVICE = (
    "Delete what you no longer need, or move it elsewhere, and start again; or ask your administrator for more room."
)


def first_button(page: Page) -> tuple[str, str]:
    """The text of the page's primary button that is a link, and where it leads."""
    button = page.soup.select("main .gs-primary")[0]
    return button.get_text(), urljoin(urlsplit(page.url).path, str(button["href"]))


@pytest.fixture
def full_home(hub: HubProcess) -> Iterator[Path]:
    """Ada's, which is a file system of 1 MiB."""
    home = hub.folder / "homes" / "ada"
    home.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", home], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"needs to mount a file system: {done.stderr.decode().strip()}")
    try:
        subprocess.run(["sh", "-c", f"head -c 2M /dev/zero > {home}/data 2>/dev/null || :"], check=True)
        yield home
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """One whose hook takes a while, as the demo's, which names a home that is full."""
    hub = start_light_hub(f"{NO_SPAWN_WAIT}\n{HOOKS}", PROFILES)
    offer(hub, "rescue", RESCUE)
    return hub


def test_who_has_a_full_home_is_led_to_the_profile_that_makes_room(hub: HubProcess, full_home: Path) -> None:
    """The cause, how much is used, and the guide's profile, which deletes files; then the first choice starts."""
    ada = Visitor(hub, "ada")
    start(hub, "ada", "writes")
    wait_until(lambda: hub.server("ada") is None, hub.log_end)
    failed, home = ada.pending(), ada.look("/hub/home")
    text, address = first_button(failed)
    on_card = [(link.get_text(), link["href"]) for link in home.soup.select(".gs-server .gs-body a")]
    form = ada.look(address)
    chosen = form.soup.select_one("input[name=profile][checked]")
    refused = ada.start({"profile": "at-once"})
    ada.send(form, {"profile": "make-room"})
    hub.wait("ada", ready=True)
    deleted = requests.delete(
        f"{hub.url}/user/ada/api/contents/data", headers={"Authorization": f"token {hub.token}"}, timeout=30
    )
    hub.end("ada")
    hub.spawn("ada", {"profile": "writes"})
    hub.end("ada")

    assert (FULL in failed.text, ADVICE in failed.text) == (True, True)
    assert (text, address) == ("Make room: Make room", "/hub/spawn/ada?opt-profile=make-room")
    assert on_card == [(text, address)]
    assert (refused.status, refused.error) == (403, f"Your home folder is full. {ADVICE}")
    assert first_button(refused) == (text, "/hub/spawn?opt-profile=make-room")
    assert chosen is not None
    assert chosen["value"] == "make-room"
    assert (deleted.status_code, (full_home / "data").exists()) == (204, False)


def test_what_to_send_names_the_profile_before_and_after_a_restart_of_the_hub(hub: HubProcess) -> None:
    """An administrator who is sent the page's text need not ask for it."""
    bob = Visitor(hub, "bob")
    start(hub, "bob", "writes")
    wait_until(lambda: hub.server("bob") is None, hub.log_end)
    reports = [bob.pending().soup.select_one("#gpuspawner-report")]
    hub.restart()
    reports.append(bob.look("/hub/user/bob/").soup.select_one("#gpuspawner-report"))
    texts = [report.get_text() if report is not None else "" for report in reports]

    assert "Profile: Writes (writes)" in texts[0]
    assert texts[1] == texts[0]
