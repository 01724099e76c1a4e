"""The demo's hub as a process, apart from what JupyterHub does in it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubFailed, HubProcess

PROXIES: dict[str, tuple[str, int, int]] = {
    "of the hub": ("configurable-http-proxy", 0, -signal.SIGTERM),
    "of another hub, with a process id that was used again": ("configurable-http-proxy", 1, -signal.SIGINT),
    "no proxy at all": ("less", 0, -signal.SIGINT),
}


@pytest.mark.parametrize(("program", "further", "ended_by"), PROXIES.values(), ids=PROXIES.keys())
def test_the_proxy_of_a_hub_that_was_killed_ends_with_stop(
    tmp_path: Path, program: str, further: int, ended_by: int
) -> None:
    """It is in a process group of its own; a process that only has its number is left alone."""
    hub = HubProcess(tmp_path)
    words = [program, "--api-port", str(hub.ports[2] + further)]
    # Python's own handler of SIGINT could run too early to end a sleep that has not yet begun
    sleeper = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print(flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", sleeper, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as proxy:
        assert proxy.stdout is not None
        proxy.stdout.readline()
        hub.proxy_pid_file.write_text(str(proxy.pid))

        hub.stop()
        proxy.send_signal(signal.SIGINT)  # for one that still runs

        assert proxy.wait(30) == ended_by


FAILING_HUB = """
import os, pathlib, sys, time
ports = os.environ["GPUSPAWNER_DEMO_PORTS"]
with open("tried", "a") as tried:
    print(ports, file=tried, flush=True)
while not pathlib.Path("taken").exists():
    time.sleep(0.05)
sys.exit(f"No hub at {ports}.")
"""


@pytest.mark.skipif(shutil.which("configurable-http-proxy") is None, reason="configurable-http-proxy is not installed")
@pytest.mark.parametrize("when", ["before the start", "during the start"])
def test_a_hub_whose_port_was_taken_is_started_with_others(tmp_path: Path, when: str) -> None:
    """Once; a hub that fails though its ports are free is not started again."""
    hub = HubProcess(tmp_path, prefix=(sys.executable, "-c", FAILING_HUB))
    chosen, tried = hub.ports, tmp_path / "tried"

    def take(port: int) -> None:
        while when == "during the start" and not (tried.exists() and tried.read_text()):
            time.sleep(0.05)
        another.bind(("127.0.0.1", port))
        another.listen()
        (tmp_path / "taken").touch()

    with socket.socket() as another:
        thread = threading.Thread(target=take, args=(chosen[2],))
        thread.start()
        if when == "before the start":
            thread.join()
        with pytest.raises(HubFailed, match=r"No hub at"):
            hub.start()
        thread.join()

    starts = [tuple(map(int, line.split(","))) for line in tried.read_text().splitlines()]
    assert starts == ([hub.ports] if when == "before the start" else [chosen, hub.ports])
    assert chosen[2] not in hub.ports
    assert hub.url == f"http://127.0.0.1:{hub.ports[0]}"


HUB_BESIDE_ANOTHER_PROXY = """
import http.server, os, pathlib, threading
ports = os.environ["GPUSPAWNER_DEMO_PORTS"]
with open("tried", "a") as tried:
    print(ports, file=tried, flush=True)
first = len(pathlib.Path("tried").read_text().splitlines()) == 1

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

proxy, hub, _ = map(int, ports.split(","))
if not first:
    threading.Thread(target=http.server.HTTPServer(("127.0.0.1", proxy), Answers).serve_forever, daemon=True).start()
http.server.HTTPServer(("127.0.0.1", hub), Answers).serve_forever()
"""


@pytest.mark.skipif(shutil.which("configurable-http-proxy") is None, reason="configurable-http-proxy is not installed")
def test_a_hub_that_its_proxy_does_not_reach_is_started_once_more_with_other_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program had the proxy's port, and has left it again by the time that anybody looks."""
    monkeypatch.setattr("jupyterhub_gpuspawner.demo.hub.PROXY_SECONDS", 1.0)
    hub = HubProcess(tmp_path, prefix=(sys.executable, "-c", HUB_BESIDE_ANOTHER_PROXY))
    chosen = hub.ports
    with hub:
        starts = [tuple(map(int, line.split(","))) for line in (tmp_path / "tried").read_text().splitlines()]

        assert starts == [chosen, hub.ports]
        assert set(chosen) & set(hub.ports) == set()
