"""Nodes with a second address or a full log folder, and servers that cannot be reached."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub.job.ending import stored_ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from tests.fixtures.hubs import offer
from tests.hub.commands import OddSite
from tests.hub.servers import environment, start, stored, why_it_ended
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


def at_address(address: str) -> dict[str, str]:
    """An scontrol that tells this address for each node."""
    return {"scontrol": f'"$real" "$@" | sed "s/NodeAddr=[^ ]*/NodeAddr={address}/"; exit ${{PIPESTATUS[0]}}'}


def test_a_node_is_reached_by_the_address_that_slurm_has_for_it(odd_site: OddSite) -> None:
    """NodeAddr is used, whatever the name resolves to, also by a hub that is restarted."""
    hub, log = odd_site.hub, odd_site.change(at_address("127.0.0.2"))
    hub.spawn("mel", {"profile": "light"})

    assert environment(hub, "mel")["SLURM_JOB_ID"]  # through the proxy
    assert "Adding user mel to proxy /user/mel/ => http://127.0.0.2:" in log()

    hub.restart()
    hub.wait("mel", ready=True)

    assert environment(hub, "mel")["SLURM_JOB_ID"]

    hub.end("mel")


def test_a_server_that_listens_where_the_hub_does_not_come_is_told_at_once(odd_site: OddSite) -> None:
    """The server listens on 127.0.0.1 of a node with another address, where any other user could be listening."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends no packet
        except OSError:
            pytest.skip("this host has no address but its own")
        address = probe.getsockname()[0]
    hub, log = odd_site.hub, odd_site.change(at_address(address))
    start(hub, "ida", "light")
    hub.wait("ida", ready=False)
    wait_until(lambda: "ending" in stored(hub, "ida"))
    ending = stored_ending(stored(hub, "ida"))

    assert ending is not None
    shown = words_of(ending)
    assert shown.sentence == "Your server was started, but the hub cannot reach it."
    assert f"listens only on 127.0.0.1, and the hub reaches its node at {address}." in shown.hint
    assert shown.hint in log()


@pytest.fixture
def full_folder(public_folder: Path) -> Iterator[Path]:
    """A folder on a separate file system without a free block."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = public_folder / "full"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        with suppress(OSError), (folder / "all-of-it").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_log_folder_that_is_full_keeps_no_server_from_starting(odd_site: OddSite, full_folder: Path) -> None:
    """The server starts, and its log stays empty."""
    job = odd_site.hub.spawn("fil", {"profile": "light"})["job_id"]

    assert environment(odd_site.hub, "fil")["SLURM_JOB_ID"] == job
    assert (full_folder / f"jupyterhub-{job}.log").stat().st_size == 0

    odd_site.hub.end("fil")


DOOR = (
    "import os, socket",
    "from urllib.parse import urlsplit",
    "url = urlsplit(os.environ['JUPYTERHUB_SERVICE_URL'])",
    "door = socket.create_server((url.hostname, url.port))",
    "door.accept()",
    "door.accept()",
    "os._exit(9)",
)
DIES_AT_THE_DOOR = f"""
- display_name: Listens, and dies when it is asked
  slug: dies
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [{sys.executable}, -c, "{"; ".join(DOOR)}"]
"""


def test_a_server_that_listens_and_dies_before_it_answers_is_told_at_once(odd_site: OddSite) -> None:
    """The start fails before http_timeout, here an hour, for which the hub itself would wait for an answer."""
    offer(odd_site.hub, "dies", DIES_AT_THE_DOOR)
    start(odd_site.hub, "dora", "dies")
    odd_site.hub.wait("dora", ready=False)

    assert "exit code 9" in why_it_ended(odd_site.hub, "dora")
