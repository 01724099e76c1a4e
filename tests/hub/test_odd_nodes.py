"""Nodes with a second address, with only IPv6, or with a full log folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.job.ending import stored_ending, words_of
from tests.fixtures.hubs import COMMAND, StartHub
from tests.hub.commands import commands
from tests.hub.test_ends import has_ipv6
from tests.hub.test_life import environment, start, stored, why_it_ended
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

NEIGHBOUR = f"""
- display_name: Light
  slug: light
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: {COMMAND}
"""


ADDRESSES = {
    "a second network of its own": ("127.0.0.2", "0.0.0.0", "http://127.0.0.2:"),  # noqa: S104
    "all of IPv6": ("::1", "::", "http://[::1]:"),
}


@pytest.mark.parametrize(("address", "ip", "url"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_a_node_is_reached_by_the_address_that_slurm_has_for_it(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path, address: str, ip: str, url: str
) -> None:
    """NodeAddr is used, whatever the name resolves to; the proxy's target has an IPv6 address in brackets."""
    if ":" in address and not has_ipv6():
        pytest.skip("this host has no IPv6")
    changed = {"scontrol": f'"$real" "$@" | sed "s/NodeAddr=[^ ]*/NodeAddr={address}/"; exit ${{PIPESTATUS[0]}}'}
    folder = commands(tmp_path / "bin", slurm_cluster.bin_dir, changed)
    hub = start_light_hub(
        lines=f"c.GPUSlurmSpawner.slurm_bin_dir = {str(folder)!r}\nc.Spawner.ip = {ip!r}", profiles=NEIGHBOUR
    )
    hub.spawn("mel", {"profile": "light"})

    assert environment(hub, "mel")["SLURM_JOB_ID"]  # through the proxy
    assert f"Adding user mel to proxy /user/mel/ => {url}" in hub.log.read_text()

    hub.restart()
    hub.wait("mel", ready=True)

    assert environment(hub, "mel")["SLURM_JOB_ID"]

    hub.end("mel")
    hub.stop()


def test_a_server_that_listens_where_the_hub_does_not_come_is_told_at_once(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path
) -> None:
    """The server listens on 127.0.0.1 of a node with another address, where any other user could be listening."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends no packet
        except OSError:
            pytest.skip("this host has no address but its own")
        address = probe.getsockname()[0]
    changed = {"scontrol": f'"$real" "$@" | sed "s/NodeAddr=[^ ]*/NodeAddr={address}/"; exit ${{PIPESTATUS[0]}}'}
    folder = commands(tmp_path / "bin", slurm_cluster.bin_dir, changed)
    quick = 'c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}'
    hub = start_light_hub(
        lines=f"c.GPUSlurmSpawner.slurm_bin_dir = {str(folder)!r}\nc.Spawner.ip = '127.0.0.1'\n{quick}",
        profiles=NEIGHBOUR,
    )
    start(hub, "ida", "light")
    hub.wait("ida", ready=False)
    wait_until(lambda: "ending" in stored(hub, "ida"))
    ending = stored_ending(stored(hub, "ida"))
    hub.stop()

    assert ending is not None
    shown = words_of(ending)
    assert shown.sentence == "Your server was started, but the hub cannot reach it."
    assert f"listens only on 127.0.0.1, and the hub reaches its node at {address}." in shown.hint
    assert shown.hint in hub.log.read_text()


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


def test_a_log_folder_that_is_full_keeps_no_server_from_starting(start_light_hub: StartHub, full_folder: Path) -> None:
    """The server starts, and its log stays empty."""
    hub = start_light_hub(lines=f"c.GPUSlurmSpawner.log_dir = {str(full_folder)!r}", profiles=NEIGHBOUR)
    job = hub.spawn("fil", {"profile": "light"})["job_id"]

    assert environment(hub, "fil")["SLURM_JOB_ID"] == job
    assert (full_folder / f"jupyterhub-{job}.log").stat().st_size == 0

    hub.end("fil")
    hub.stop()


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


def test_a_server_that_listens_and_dies_before_it_answers_is_told_at_once(start_light_hub: StartHub) -> None:
    """The start fails before http_timeout, here two minutes, for which the hub itself would wait for an answer."""
    quick = 'c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}'
    hub = start_light_hub(lines=quick, profiles=DIES_AT_THE_DOOR)
    start(hub, "dora", "dies")
    began = time.monotonic()
    hub.wait("dora", ready=False)

    assert time.monotonic() - began < 110
    assert "exit code 9" in why_it_ended(hub, "dora")
    hub.stop()
