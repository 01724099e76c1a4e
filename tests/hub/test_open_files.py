"""More connections than the hub may have files: whose are closed, what its log says, and that it answers again."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.server.waiting import ProgressStreams
from tests.fixtures.hubs import COMMAND, new_hub
from tests.hub.servers import job_id, start
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.oldest]

FILES = 256
PROFILES = f"""
- display_name: Never ready
  slug: slow
  slurm: {{partition: batch, cpus: 1, memory: 50M, time: "0:10:00"}}
  start_timeout: 500
  environment: {{setup: sleep 500}}
  command: {COMMAND}
"""
LINES = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
c.JupyterHub.load_roles += [{"name": "may-read", "users": ["ben"], "scopes": ["read:servers"]}]
c.Authenticator.allowed_users = {"ann", "ben"}
"""


@pytest.fixture
def hub(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that may have few files, with a server of ann's that is starting."""
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not on the PATH (Debian's util-linux)")
    hub = new_hub(slurm_cluster, tmp_path_factory.mktemp("hub"), lines=LINES, profiles=PROFILES)
    hub.prefix = ("prlimit", f"--nofile={FILES}")
    with hub:
        start(hub, "ann", "slow")
        job_id(hub, "ann")
        yield hub


def stream(hub: HubProcess, token: str) -> requests.Response:
    """The progress of ann's server, from the hub itself: each stream is one connection and no two of the proxy's."""
    url = f"http://127.0.0.1:{hub.ports[1]}/hub/api/users/ann/server/progress"
    answer = requests.get(url, headers={"Authorization": f"token {token}"}, stream=True, timeout=30)
    assert answer.ok, answer.text
    return answer


def is_over(answer: requests.Response) -> bool:
    """Whether the stream ends because others are open; otherwise it has told of two changes."""
    told = 0
    for line in answer.iter_lines(chunk_size=1):
        if line == b"event: elsewhere":
            return True
        told += line.startswith(b"data: ")
        if told > 3:
            break
    return False


def test_a_reader_has_so_many_streams_and_no_more(hub: HubProcess) -> None:
    """The oldest end; another reader's go on."""
    tokens = {user: Visitor(hub, user).token() for user in ("ann", "ben")}
    with ExitStack() as stack:
        bens = stack.enter_context(stream(hub, tokens["ben"]))
        anns = [stack.enter_context(stream(hub, tokens["ann"])) for _ in range(ProgressStreams.limit + 5)]
        with ThreadPoolExecutor(len(anns) + 1) as threads:
            over = list(threads.map(is_over, [bens, *anns]))

    assert over == [False] + 5 * [True] + ProgressStreams.limit * [False]


def test_a_hub_without_a_file_left_says_so_once_and_answers_again(hub: HubProcess) -> None:
    """Whoever holds the connections. Those that are open go on."""
    before = len(hub.log.read_text())
    with ExitStack() as stack, stream(hub, hub.token) as progress:
        for _ in range(FILES + 50):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", hub.ports[1])))
            connection.sendall(b"GET /hub/health HTTP/1.1\r\n")  # and no more
        wait_until(lambda: "The hub accepts no connections" in hub.log.read_text()[before:], hub.log_end)
        assert not is_over(progress)
    wait_until(hub.answers, hub.log_end)

    log = hub.log.read_text()[before:]
    assert log.count("The hub accepts no connections at the moment: Too many open files (at most 256 files)") == 1
    assert "Traceback" not in log
    assert len(log.splitlines()) < 100, log
