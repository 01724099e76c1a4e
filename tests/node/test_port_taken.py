"""Another program takes the port between its choice and the server's bind: the server gets another one."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.node.port import ATTEMPTS, is_taken, remember
from jupyterhub_gpuspawner.wire.documents import PortReport
from tests.node.conftest import job_script
from tests.standins.report_hub import ReportHub

SERVER = """
import os, socket, subprocess, sys, time
from urllib.parse import urlsplit
port = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).port
try:
    open(sys.argv[1], "x").close()
except FileExistsError:
    server = socket.create_server(("127.0.0.1", port))
    print("serves at", port, flush=True)
    time.sleep(3)
    sys.exit(0)
thief = "import socket, time; s = socket.create_server(('127.0.0.1', %d)); print(flush=True); time.sleep(30)" % port
pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}  # the job's end is that of its standard error
taken = subprocess.Popen([sys.executable, "-c", thief], start_new_session=True, **pipes)
taken.stdout.readline()
open(sys.argv[1], "w").write(str(taken.pid))
socket.create_server(("127.0.0.1", port))
"""
"""The first time, a thief is quicker; the second time it serves."""


def run(script: str, environ: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "job.sh"
    path.write_text(script)
    return subprocess.run(
        ["/bin/bash", str(path)],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), "GPUSPAWNER_PYTHON": sys.executable, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_server_that_lost_its_port_is_launched_once_more_with_another(tmp_path: Path) -> None:
    """The hub is told of the second port alone, and that there is one; the job ends as the second server does."""
    server, thief = tmp_path / "server.py", tmp_path / "thief"
    server.write_text(SERVER)
    with ReportHub() as hub:
        done = run(job_script([sys.executable, str(server), str(thief)]), hub.environ, tmp_path)
    with suppress(ProcessLookupError):  # on a slow machine it has ended by itself
        os.kill(int(thief.read_text()), 9)
    reports = [parse_report(request.body) for request in hub.requests]
    [lost] = {int(number) for number in re.findall(r"Another process took port (\d+) before", done.stderr)}

    assert (done.returncode, done.stdout) == (0, f"serves at {reports[-1].port}\n"), done.stderr
    assert {report.port for report in reports[:-1]} == {0}
    assert reports[-1].port != lost
    assert (reports[-2].door, reports[-1].door) == (PortReport("taken"), PortReport("process", ("127.0.0.1",)))
    assert "Address already in use" in done.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_a_server_that_ends_for_another_reason_is_not_launched_again(tmp_path: Path, code: int) -> None:
    """One report, and its own exit code."""
    with ReportHub() as hub:
        done = run(job_script(["/bin/sh", "-c", f"exit {code}"]), hub.environ, tmp_path)

    assert (done.returncode, len(hub.requests)) == (code, 2 if code else 1)  # a failure is reported, too


def test_a_server_that_ran_for_a_while_did_not_fail_for_its_port(tmp_path: Path) -> None:
    """Whoever listens there now."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        remember(str(tmp_path), other.getsockname()[1])
        soon = is_taken(str(tmp_path))
        long_ago = time.time() - ATTEMPTS - 1
        os.utime(tmp_path / "port", (long_ago, long_ago))

        assert (soon, is_taken(str(tmp_path))) == (True, False)

    assert is_taken("/no/such/folder") is False
