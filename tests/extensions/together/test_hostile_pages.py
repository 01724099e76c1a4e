"""Each of our pages with hostile text wherever it shows a text from outside: it must stay plain text."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

import jupyterhub_gpuspawner.hub
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, to_document
from tests.fixtures.hubs import COMMAND, LIGHT, StartHub
from tests.hub.server.test_report_endpoint import SILENT, Started, _serve, good
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

EVIL = """x"'><evil-el evil-attr=1></script></style></textarea></title></svg><evil-el>{{ 7*'7' }}&lt;"""
QUOTED = json.dumps(EVIL)
SETUP = json.dumps(f"echo {shlex.quote(EVIL)}; exit 3")
PROFILES = f"""
- display_name: {QUOTED}
  slug: evil
  description: {QUOTED}
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  environment: {{setup: {SETUP}}}
  command: {COMMAND}
  profile_options:
    one:
      display_name: {QUOTED}
      description: {QUOTED}
      choices:
        a: {{display_name: {QUOTED}, description: {QUOTED}}}
        b: {{display_name: B}}
      unlisted_choice:
        display_name: {QUOTED}
        validation_regex: "never"
        validation_message: {QUOTED}
        sets: slurm.account
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub whose configuration contains hostile texts."""
    return start_light_hub(profiles=LIGHT + SILENT + PROFILES)


@pytest.fixture(scope="module")
def drained(slurm_cluster: PrivateSlurm) -> Iterator[None]:
    """A node that is drained with a hostile reason, and a foreign job with a hostile name."""
    slurm_cluster.run("scontrol", "update", "NodeName=m1", "State=DRAIN", f"Reason={EVIL}")
    job = subprocess.run(
        [
            f"{slurm_cluster.bin_dir}/sbatch",
            "--parsable",
            f"--job-name={EVIL}",
            f"--comment={EVIL}",
            "--output=/dev/null",
        ],
        input="#!/bin/sh\nsleep 600\n",
        env={"PATH": "/usr/bin:/bin", **slurm_cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    yield
    slurm_cluster.run("scancel", job)
    slurm_cluster.run("scontrol", "update", "NodeName=m1", "State=RESUME")


@pytest.fixture(scope="module")
def served(hub: HubProcess, slurm_cluster: PrivateSlurm) -> Iterator[Started]:
    """A server whose node reports hostile texts."""
    server = Started(hub, slurm_cluster, "ann")
    gpus = [{"index": 0, "name": EVIL, "uuid": EVIL, "pci": EVIL, "mig": EVIL}]
    body = good(server, gpus=gpus, why=EVIL, problems=[EVIL], memory_policy=EVIL, cpus="0-1", aligned=True)
    body["topology"] = to_document(
        NodeTopology(
            hostname=EVIL,
            gpus=(Gpu(0, uuid=EVIL, name=EVIL, numa_node=0),),
            links=(("X",),),
            numa_nodes=(NumaNode(0, (0, 1)),),
            nics=(EVIL,),
            driver=EVIL,
            problems=(EVIL,),
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, "ann"), daemon=True).start()
        body["port"] = listener.getsockname()[1]
        answer = server.report(body)
        assert answer.status_code == 204, answer.text
        hub.wait("ann", ready=True)
        yield server
        server.end()


def is_text(html: str) -> BeautifulSoup:
    """The page; fails where the hostile text became an element or an attribute, or was evaluated as a template."""
    soup = BeautifulSoup(html, "html.parser")
    assert soup.find_all("evil-el") == []
    assert [tag for tag in soup.find_all() if any("evil" in name for name in tag.attrs)] == []
    assert "7777777" not in html
    assert html.count("<evil-el") == 0
    return soup


def shows(soup: BeautifulSoup) -> int:
    """How often the page contains it, as text or as the value of an attribute."""
    values = [str(value) for tag in soup.find_all() for value in tag.attrs.values()]
    return sum(text.count(EVIL[:30]) for text in [soup.get_text(), *values])


def test_the_form(hub: HubProcess) -> None:
    """Names and descriptions of profiles and options, and values from a link or a refused choice."""
    visitor = Visitor(hub, "bea")
    page = visitor._get("/hub/spawn")
    linked = visitor.session.get(
        f"{hub.url}/hub/spawn", params={"opt-profile": "evil", "opt-one": EVIL, "opt-" + EVIL: EVIL}, timeout=30
    )
    fields = {"profile": "evil", "profile-option-evil--one--unlisted-choice": EVIL, "profile-option-evil--one": EVIL}
    refused = visitor.session.post(f"{hub.url}/hub/spawn?_xsrf={visitor._xsrf}", data=fields, timeout=30)

    assert shows(is_text(page.text)) >= 4
    assert shows(is_text(linked.text)) >= 4
    assert shows(is_text(refused.text)) >= 4


def test_the_pages_of_a_failed_start(hub: HubProcess) -> None:
    """The last lines of the log, on the page of the failed start and on the home page."""
    visitor = Visitor(hub, "cleo")
    visitor.start({"profile": "evil"})
    hub.wait("cleo", ready=False)
    pages = [visitor._get(path).text for path in ("/hub/spawn-pending/cleo", "/hub/user/cleo/", "/hub/home")]
    shown = [shows(is_text(page)) for page in pages]

    assert max(shown[:2]) >= 1


def test_the_pages_of_a_server(hub: HubProcess, served: Started) -> None:
    """GPUs, reason of the placement, problems and topology as the node reports them; and the log."""
    visitor = Visitor(hub, served.user)
    logs = hub.folder / "homes" / served.user / ".local/share/gpuspawner/logs"
    (logs / f"jupyterhub-{served.job}.log").write_text(f"{EVIL}\n")
    home, log = visitor._get("/hub/home"), visitor._get(f"/hub/gpuspawner/log/{served.user}")

    assert shows(is_text(home.text)) >= 3
    assert log.status_code == 200
    assert shows(is_text(log.text)) == 1


def test_the_waiting_page_and_its_events(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """The waiting page, and the progress stream for a page that would insert it as HTML."""
    waiting = Started(hub, slurm_cluster, "dora")
    try:
        visitor = Visitor(hub, waiting.user)
        assert waiting.report(good(waiting, gpus=[{"index": 0, "name": EVIL}], why=EVIL)).status_code == 204
        page = visitor._get(f"/hub/spawn-pending/{waiting.user}")
        with visitor.session.get(
            f"{hub.url}/hub/api/users/{waiting.user}/server/progress?_xsrf={visitor._xsrf}", stream=True, timeout=30
        ) as stream:
            data_line = next(line for line in stream.iter_lines(chunk_size=1) if line.startswith(b"data: "))
    finally:
        waiting.end()
    event = json.loads(data_line.removeprefix(b"data: "))

    is_text(page.text)
    is_text(event.get("html_message", ""))


@pytest.mark.usefixtures("drained", "served")
def test_the_clusters_map(hub: HubProcess) -> None:
    """The reason of a drained node, a foreign job, the filter of the map; and the names of servers."""
    visitor = Visitor(hub, "admin")
    ends_at = time.monotonic() + 90  # answers of Slurm are cached for a while
    while shows(is_text((page := visitor._get("/hub/gpuspawner/cluster")).text)) == 0:
        assert page.status_code == 200
        assert time.monotonic() < ends_at, "the map does not show the reason"
        time.sleep(1.0)
    filtered = visitor.session.get(f"{hub.url}/hub/gpuspawner/cluster", params={"text": EVIL}, timeout=60)

    assert filtered.status_code == 200
    is_text(filtered.text)


def test_our_script_makes_no_html_of_text() -> None:
    """What comes from the stream or the API is put into the page as text."""
    files = sorted((Path(jupyterhub_gpuspawner.hub.__file__).parent / "web" / "static").glob("*.js"))
    risky = re.compile(r"outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\.html\(")

    assert files
    assert [(file.name, risky.findall(file.read_text())) for file in files if risky.search(file.read_text())] == []
