"""A hub that is away while a server starts is told of it when it is back; the server is not kept waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from jupyterhub_gpuspawner.hub.report.reader import parse_report
from jupyterhub_gpuspawner.wire.documents import Door, LaunchPlan
from tests.standins.report_hub import ReportHub
from tests.waiting import wait_until

SERVER = """
import os, socket, time
url = os.environ["JUPYTERHUB_SERVICE_URL"]
server = socket.create_server(("127.0.0.1", int(url.split(":")[2].split("/")[0])))
print(url, flush=True)
time.sleep(SECONDS)
"""
LATER = "The report will be sent again for up to ten minutes."


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the launcher with a server that lives for so many seconds."""
    archive = tmp_path / "launch.pyz"
    archive.write_bytes(launcher_archive())
    started: list[subprocess.Popen[str]] = []

    def launch(environ: Mapping[str, str], seconds: float) -> subprocess.Popen[str]:
        server = [sys.executable, "-c", SERVER.replace("SECONDS", str(seconds))]
        process = subprocess.Popen(
            [sys.executable, str(archive), "--plan", LaunchPlan().dumps(), "--", *server],
            env={"PATH": os.environ["PATH"], **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        process.kill()
        process.communicate()


def away(port: int) -> dict[str, str]:
    """What a hub gives its servers that will be there later."""
    return {
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{port}/hub/api",
        "JUPYTERHUB_API_TOKEN": "the-token",
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/user/ada/",
    }


def messengers(archive: str) -> list[int]:
    """Processes of this launcher that are not children of ours."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "ppid"])
        if archive in (process.info["cmdline"] or []) and process.info["ppid"] != os.getpid()
    ]


def test_a_hub_that_comes_back_is_told_while_the_server_runs(launched: Callable[..., subprocess.Popen[str]]) -> None:
    """The server is there before the hub; the report names its port."""
    [port] = free_ports(1)
    environ = away(port)
    process = launched(environ, 60)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with ReportHub(503, 503, port=port) as hub:
        wait_until(lambda: len(hub.requests) > 2 and parse_report(hub.requests[-1].body).port > 0)
        report = parse_report(hub.requests[-1].body)

    assert url == f"http://127.0.0.1:{report.port}/user/ada/"
    assert process.poll() is None

    process.kill()

    assert LATER in process.communicate()[1]  # and nothing else holds the job's output open
    wait_until(lambda: not messengers(str(process.args[1])))  # type: ignore[index]


@pytest.mark.parametrize("refusal", [401, 403])
def test_a_hub_that_could_not_look_the_token_up_is_asked_again(
    launched: Callable[..., subprocess.Popen[str]], refusal: int
) -> None:
    """A hub without its database cannot look up the token; it accepts the report when the database is back."""
    with ReportHub(*[refusal] * 4) as hub:
        process = launched(hub.environ, 60)

        wait_until(lambda: len(hub.requests) > 5)
        assert process.poll() is None
        process.kill()
        assert LATER in process.communicate()[1]
        wait_until(lambda: not messengers(str(process.args[1])))  # type: ignore[index]

    assert parse_report(hub.requests[-1].body).port > 0


def test_a_server_that_ends_takes_its_messenger_along(launched: Callable[..., subprocess.Popen[str]]) -> None:
    """Nothing of the job outlives it, though the hub never came back."""
    [port] = free_ports(1)
    environ = away(port)
    process = launched(environ, 60)
    assert process.stdout is not None
    process.stdout.readline()
    assert len(messengers(str(process.args[1]))) == 1  # type: ignore[index]

    process.terminate()
    process.wait(60)

    wait_until(lambda: not messengers(str(process.args[1])))  # type: ignore[index]


def test_a_hub_that_refuses_is_not_asked_again(launched: Callable[..., subprocess.Popen[str]]) -> None:
    """A 404 is final, for the placement and for the port."""
    with ReportHub(404, 404) as hub:
        process = launched(hub.environ, 60)

        wait_until(lambda: len(hub.requests) == 2)
        wait_until(lambda: not messengers(str(process.args[1])))  # type: ignore[index]
        process.kill()
        _, said = process.communicate(timeout=60)

    placement, port = (parse_report(request.body) for request in hub.requests)
    assert (placement.port, port.door) == (0, Door("process", ("127.0.0.1",)))
    assert LATER not in said
