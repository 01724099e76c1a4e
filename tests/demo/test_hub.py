"""The demo's hub as a process, apart from what JupyterHub does in it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess

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
    sleeper = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", sleeper, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as proxy:
        assert proxy.stdout is not None
        proxy.stdout.readline()
        hub.proxy_pid_file.write_text(str(proxy.pid))

        hub.stop()
        proxy.send_signal(signal.SIGINT)  # for one that still runs

        assert proxy.wait(30) == ended_by
