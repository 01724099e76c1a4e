"""The report's way to the hub, over real sockets: what is sent, what is tried again, what is given up."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.node import report as reporting
from jupyterhub_gpuspawner.node.folder import certificates_in_memory
from jupyterhub_gpuspawner.placement.topology import (
    LIST_LIMIT,
    Gpu,
    NodeTopology,
    NumaNode,
    from_document,
    to_document,
)
from jupyterhub_gpuspawner.wire.documents import REPORT_LIMIT, NodeReport, PlacedGpu, PlacementDocument
from tests.standins.report_hub import ReportHub

REPORT = NodeReport(41234, PlacementDocument(job_id="7", node="g1", gpus=(PlacedGpu(2, "GPU-2"),), cpus="0-3"))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(reporting, "TIMEOUT", 2.0)


def test_a_report_is_one_request_with_the_servers_own_token() -> None:
    """To the hub's API, as JSON; the hub reads back what was sent."""
    with ReportHub() as hub:
        assert reporting.attempt(REPORT, hub.environ)[0] is None

    [request] = hub.requests
    assert request.path == "/hub/api/gpuspawner/report"
    assert request.headers["Authorization"] == "token the-token"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Host"] == hub.url.split("/")[2]
    assert parse_report(request.body) == REPORT


@pytest.mark.parametrize(
    ("answers", "tries", "failure"),
    [
        ((200,), 1, None),
        ((503,), 2, None),
        ((500, 502), 3, None),
        ((503, 503, 503), 3, "503 The hub says 503."),
        ((401,), 2, None),
        ((403, 403), 3, None),
        ((403,) * 3, 3, "403 The hub says 403."),
        ((404,), 1, "404 The hub says 404."),
        ((409,), 1, "409 The hub says 409."),
        ((500, 404), 2, "404 The hub says 404."),
        ((429,), 2, None),
        ((429, 503, 429), 3, "429 The hub says 429."),
        ((302,), 1, "302 The hub says 302."),
        ((b"",), 2, None),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",) * 3, 3, "127.0.0.1 did not respond as an HTTP server"),
        ((b"HTTP/1.1 500 Internal Server Error\r\n\r\n<html>",) * 3, 3, "500 Internal Server Error"),
        ((b"HTTP/1.1 404 No\r\n\r\n" + b"x" * 100_000,), 1, "404 No"),
    ],
)
def test_what_may_pass_is_tried_again(answers: tuple[int | bytes, ...], tries: int, failure: str | None) -> None:
    """No answer, 401, 403, 429 and 5xx: three tries in all. Anything else is final, and reported in the hub's words."""
    with ReportHub(*answers) as hub:
        message = reporting.attempt(REPORT, hub.environ)[0]

    assert message == (failure and f"The report could not be sent to the hub: {failure}")
    assert len(hub.requests) == tries


PROBLEM = "The hub refused the full report: 400 The hub says 400."
OF_ANOTHER_NODE = NodeReport(
    0, PlacementDocument(job_id="7", node="g2", why="Because."), {"version": 1}, other_node=True
)


@pytest.mark.parametrize(
    ("report", "sent", "least"),
    [
        (REPORT, "the port", NodeReport(41234, PlacementDocument(problems=(PROBLEM,)))),
        (
            OF_ANOTHER_NODE,
            "the node's name",
            NodeReport(0, PlacementDocument(job_id="7", node="g2", problems=(PROBLEM,)), other_node=True),
        ),
    ],
)
def test_of_a_report_that_the_hub_finds_wrong_the_least_is_sent(
    report: NodeReport, sent: str, least: NodeReport
) -> None:
    """Without the port the server cannot be reached, so nothing else in the report may prevent its delivery.

    Without the words that it is another node's, the hub would take it for the server's own, which has no port. A hub
    that takes neither is given up.
    """
    with ReportHub(400) as hub, ReportHub(400, 400) as stubborn:
        message = reporting.attempt(report, hub.environ)[0]
        refusal = reporting.attempt(report, stubborn.environ)[0]

    assert message == f"The hub refused the full report; only {sent} was reported: 400 The hub says 400."
    assert refusal == "The report could not be sent to the hub: 400 The hub says 400."
    assert parse_report(hub.requests[1].body) == least
    assert len(stubborn.requests) == 2


@pytest.mark.parametrize(("second", "retry"), [(503, True), (403, True), (404, False), (b"", True)])
def test_the_port_alone_may_be_told_later(second: int | bytes, retry: bool) -> None:
    """A report that the hub rejects as invalid, followed by a temporary failure."""
    with ReportHub(400, *(second,) * 3) as hub:
        _, later = reporting.attempt(REPORT, hub.environ)

    assert later is retry


def test_a_hub_that_is_down_is_told_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the first try; the hub comes during the pause after it."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    environ = {"JUPYTERHUB_API_URL": f"http://127.0.0.1:{port}/hub/api", "JUPYTERHUB_API_TOKEN": "t"}
    hubs: list[ReportHub] = []

    with ExitStack() as hub_runs:
        monkeypatch.setattr(time, "sleep", lambda _: hubs.append(hub_runs.enter_context(ReportHub(port=port))))
        failure, _ = reporting.attempt(REPORT, environ)

    assert failure is None
    assert [len(hub.requests) for hub in hubs] == [1]


@pytest.mark.parametrize("word", [b"", b"H"], ids=["never answers", "drips"])
def test_a_hub_that_does_not_come_to_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch, word: bytes) -> None:
    """Each try has a time limit, for the whole answer and not for each byte of it."""
    monkeypatch.setattr(reporting, "TIMEOUT", 0.3)
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        while not stop.is_set():
            with suppress(OSError), listener.accept()[0] as connection:
                while not stop.wait(0.1):
                    connection.sendall(word)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        environ = {"JUPYTERHUB_API_URL": f"http://127.0.0.1:{listener.getsockname()[1]}", "JUPYTERHUB_API_TOKEN": "t"}
        failure = reporting.attempt(REPORT, environ)[0]
        stop.set()
        thread.join()

    assert failure == "The report could not be sent to the hub: timed out"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"JUPYTERHUB_API_URL": ""}, "JUPYTERHUB_API_URL and JUPYTERHUB_API_TOKEN are not both set"),
        ({"JUPYTERHUB_API_TOKEN": ""}, "JUPYTERHUB_API_URL and JUPYTERHUB_API_TOKEN are not both set"),
        ({"JUPYTERHUB_API_URL": "127.0.0.1:8081"}, "is not a URL of the form"),
        ({"JUPYTERHUB_API_URL": "ftp://127.0.0.1/"}, "JUPYTERHUB_API_URL begins with ftp, not http or https"),
        ({"JUPYTERHUB_API_TOKEN": "a\r\nX-Evil: 1"}, "contains a character that HTTP does not allow"),
        ({"JUPYTERHUB_API_TOKEN": "é"}, "contains a character that HTTP does not allow"),
        ({"JUPYTERHUB_API_URL": "http://127.0.0.1/a HTTP/1.0"}, "contains a character that HTTP does not allow"),
        ({"JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api"}, "Connection refused"),
        ({"JUPYTERHUB_API_URL": "http://hub.invalid/hub/api"}, "Name or service not known|resolution|No address"),
    ],
)
def test_what_cannot_be_sent_is_a_sentence(changes: dict[str, str], reason: str) -> None:
    """With what is wrong in it."""
    environ = {"JUPYTERHUB_API_URL": "http://127.0.0.1:1/", "JUPYTERHUB_API_TOKEN": "t", **changes}

    message = reporting.attempt(REPORT, environ)[0]

    assert message is not None
    assert any(fragment in message for fragment in reason.split("|"))
    assert "token" not in message


BESIDE = """
import os, socket, threading
from jupyterhub_gpuspawner.node import child, report
from jupyterhub_gpuspawner.wire.documents import NodeReport

given_up, ask = threading.Event(), child.DeadlineThread.ask
def watched(self, work, seconds):
    try:
        return ask(self, work, seconds)
    except TimeoutError:
        given_up.set()
        raise
child.DeadlineThread.ask = watched
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
report.PATIENCE = 1.0
environ = {"JUPYTERHUB_API_URL": "http://hub:8081/hub/api", "JUPYTERHUB_API_TOKEN": "t"}
reporter = report.PortReporter(NodeReport(0), 1, environ, os.getpid(), is_reported=False)
threading.Thread(target=reporter.run, daemon=True).start()
given_up.wait()
print("samples", flush=True)
os._exit(0)
"""


def test_a_resolver_that_hangs_ends_the_try_and_not_the_process_that_samples() -> None:
    """The report of the port is sent by a thread of it."""
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "samples\n"), done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate authority and a certificate, created in the way the hub creates its internal ones."""
    certipy = pytest.importorskip("certipy")
    folder = tmp_path_factory.mktemp("certificates")
    maker = certipy.Certipy(store_dir=str(folder))
    maker.create_ca("hub-ca")
    maker.create_signed_pair("server", "hub-ca", alt_names=["IP:127.0.0.1", "DNS:localhost"])
    record, authority = maker.store.get_record("server"), maker.store.get_record("hub-ca")
    return {
        "JUPYTERHUB_SSL_KEYFILE": record["files"]["key"],
        "JUPYTERHUB_SSL_CERTFILE": record["files"]["cert"],
        "JUPYTERHUB_SSL_CLIENT_CA": authority["files"]["cert"],
    }


def test_a_connection_that_takes_long_leaves_the_hub_its_time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the first address of the hub's name is one that nobody answers, until its time limit is over."""
    monkeypatch.setattr(reporting, "TIMEOUT", 0.3)
    connect = socket.create_connection

    def connected_to_the_second(address: tuple[str, int], timeout: float) -> socket.socket:
        time.sleep(timeout)
        return connect(address, timeout=timeout)

    monkeypatch.setattr(socket, "create_connection", connected_to_the_second)
    with ReportHub() as hub:
        assert reporting.attempt(REPORT, hub.environ)[0] is None

    assert len(hub.requests) == 1


def _server_side(certificates: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates["JUPYTERHUB_SSL_CLIENT_CA"])
    context.load_cert_chain(certificates["JUPYTERHUB_SSL_CERTFILE"], certificates["JUPYTERHUB_SSL_KEYFILE"])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("kept", ["in files", "in memory", "without a name"])
def test_with_internal_ssl_both_sides_show_their_certificates(
    certificates: dict[str, str], monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """As the hub does, which requires a client certificate.

    A process that may be killed at any time keeps them in memory, and has no file to leave behind; a Python of conda,
    which makes no files in memory, keeps them in files without a name.
    """
    if kept == "without a name":
        monkeypatch.delattr("os.memfd_create")
    contents = {f"{name}_CONTENT": b64encode(Path(path).read_bytes()).decode() for name, path in certificates.items()}
    with ReportHub(tls=_server_side(certificates)) as hub:
        environ = {**hub.environ, **(certificates if kept == "in files" else contents)}
        certificates_in_memory(environ)
        assert reporting.attempt(REPORT, environ)[0] is None

    assert parse_report(hub.requests[0].body) == REPORT
    assert environ.keys() - hub.environ.keys() == certificates.keys()
    assert all(environ[name].startswith("/proc/self/fd/") is (kept != "in files") for name in certificates)


def _another_authority(folder: Path) -> str:
    certipy = pytest.importorskip("certipy")
    maker = certipy.Certipy(store_dir=str(folder))
    maker.create_ca("another-ca")
    return str(maker.store.get_record("another-ca")["files"]["cert"])


FAULTS = {
    "no authority": ({}, "local issuer certificate|self.signed"),
    "another authority": (
        {"JUPYTERHUB_SSL_CLIENT_CA": "ANOTHER"},
        "local issuer certificate|self.signed",
    ),
    "another host": ({"HOST": "localhost.localdomain"}, "Hostname mismatch, certificate is not valid for"),
}


@pytest.mark.parametrize(("changes", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_a_hub_that_cannot_prove_itself_gets_no_token(
    certificates: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], reason: str
) -> None:
    """It is named with what is wrong, asked once, and never without TLS."""
    with ReportHub(tls=_server_side(certificates)) as hub:
        environ = {**hub.environ, **(certificates if changes else {})}
        if "JUPYTERHUB_SSL_CLIENT_CA" in changes:
            environ["JUPYTERHUB_SSL_CLIENT_CA"] = _another_authority(tmp_path)
        host = changes.get("HOST", "127.0.0.1")
        environ["JUPYTERHUB_API_URL"] = environ["JUPYTERHUB_API_URL"].replace("127.0.0.1", host)
        connections: list[object] = []
        connect = socket.create_connection

        def connected(address: tuple[str, int], timeout: float) -> socket.socket:
            connections.append(address)
            return connect(("127.0.0.1", address[1]), timeout=timeout)

        monkeypatch.setattr(socket, "create_connection", connected)
        message = reporting.attempt(REPORT, environ)[0]

    assert message is not None
    assert message.startswith(
        f"The report could not be sent to the hub: the certificate of {host} could not be verified: "
    )
    assert re.search(reason, message)
    assert len(connections) == 1
    assert hub.requests == []


def test_over_https_the_authority_may_be_the_systems(certificates: dict[str, str]) -> None:
    """A hub behind https without internal_ssl: its authority is one that OpenSSL knows (SSL_CERT_FILE)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["JUPYTERHUB_SSL_CERTFILE"], certificates["JUPYTERHUB_SSL_KEYFILE"])
    program = (
        "import os; from jupyterhub_gpuspawner.node import report as reporting; "
        "from jupyterhub_gpuspawner.wire.documents import NodeReport; "
        "print(reporting.attempt(NodeReport(41234), os.environ)[0])"
    )
    with ReportHub(tls=context) as hub:
        messages = [
            subprocess.run(
                [sys.executable, "-c", program],
                env={**hub.environ, "SSL_CERT_FILE": authority},
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout
            for authority in (certificates["JUPYTERHUB_SSL_CLIENT_CA"], os.devnull)
        ]

    assert messages[0] == "None\n"
    assert messages[1].startswith(
        "The report could not be sent to the hub: the certificate of 127.0.0.1 could not be verified: "
    )
    assert len(hub.requests) == 1


def test_the_hub_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry-After is honoured, up to a limit."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    refusals = ((503, "3"), (429, "3600"))
    answers = [f"HTTP/1.1 {status} x\r\nRetry-After: {after}\r\n\r\n{{}}".encode() for status, after in refusals]
    with ReportHub(*answers) as hub:
        assert reporting.attempt(REPORT, hub.environ)[0] is None

    assert slept == [3.0, reporting.LONGEST_PAUSE]


def test_a_long_list_of_cpus_is_reported_whole() -> None:
    """Where firmware numbers the CPUs of two sockets by turns, a socket's are a list of single ones."""
    cpus = ",".join(map(str, range(0, 384, 2)))
    report = NodeReport(41234, PlacementDocument(job_id="7", node="g1", cpus=cpus))

    assert parse_report(reporting.fit(report).dumps().encode()).placement.cpus == cpus


def test_a_topology_that_makes_the_report_too_large_is_left_out() -> None:
    """The placement is what counts; a problem says what is missing."""
    large = NodeReport(41234, REPORT.placement, {"version": 1, "hostname": "x" * REPORT_LIMIT})

    cut = reporting.fit(large)

    assert replace(cut, placement=REPORT.placement) == REPORT
    assert cut.placement.problems[:-1] == REPORT.placement.problems
    size = len(large.dumps().encode())
    assert cut.placement.problems[-1] == (
        f"The node's topology is not shown: with it the report has {size} bytes, more than {REPORT_LIMIT}."
    )


def sliced(gpus: int, slices: int, cores: int, *, by_turns: bool = False) -> NodeTopology:
    """A node of two sockets whose GPUs are cut into MIG devices; each core has two threads."""
    whole = range(2 * cores)
    first = tuple(cpu for cpu in whole if (cpu % 2 if by_turns else cpu % cores >= cores // 2) == 0)
    sockets = (first, tuple(cpu for cpu in whole if cpu not in first))
    uuids = (f"MIG-5a1e9ad0-6a6b-4a2c-9d2e-{n:012}" for n in range(gpus * slices))
    return NodeTopology(
        hostname="gpu-node-0123",
        gpus=tuple(
            Gpu(
                index=n // slices,
                uuid=uuid,
                pci=f"0000:{n // slices:02x}:00.0",
                name="NVIDIA H100 80GB HBM3",
                memory_mib=10240,
                numa_node=n // slices * 2 // gpus,
                cpus=sockets[n // slices * 2 // gpus],
                mig="1g.10gb",
                minor=n // slices,
                nvlink_generation=4,
                pcie_generation=5,
                pcie_width=16,
                pcie_max_width=16,
            )
            for n, uuid in enumerate(uuids)
        ),
        links=tuple(tuple("X" if a == b else "PHB" for a in range(gpus * slices)) for b in range(gpus * slices)),
        numa_nodes=tuple(NumaNode(n, cpus, 1_031_000, (10, 21)[:: 1 - 2 * n]) for n, cpus in enumerate(sockets)),
        siblings=tuple((core, core + cores) for core in range(cores)),
        packages=sockets,
        devices=tuple(f"0000:{n:02x}:00.0" for n in range(gpus)),
        source="nvml+sysfs",
    )


@pytest.mark.parametrize(
    "topology",
    [sliced(8, 7, 112), sliced(8, 7, 256), sliced(8, 4, 256, by_turns=True), sliced(8, 7, 256, by_turns=True)],
    ids=["DGX H100", "2x128 cores", "numbered by turns", "7 slices, numbered by turns"],
)
def test_the_topology_of_a_sliced_node_is_reported(topology: NodeTopology) -> None:
    """With 56 MIG devices and 512 CPUs, however firmware numbers these."""
    report = reporting.fit(NodeReport(0, REPORT.placement, to_document(topology)))

    read = parse_report(report.dumps().encode())
    assert read.placement.problems == REPORT.placement.problems
    assert read.topology is not None
    assert from_document(read.topology) == topology


@given(
    st.builds(
        PlacementDocument,
        job_id=st.none() | st.text(max_size=600),
        node=st.text(max_size=600),
        partition=st.none() | st.text(max_size=600),
        gpus=st.lists(
            st.builds(PlacedGpu, index=st.integers(0, 1023), uuid=st.text(max_size=600), name=st.text()), max_size=70
        ).map(tuple),
        numa_nodes=st.lists(st.integers(0, 4095), max_size=70).map(tuple),
        why=st.text(max_size=1200),
        problems=st.lists(st.text(max_size=1200), max_size=LIST_LIMIT + 10).map(tuple),
    )
)
def test_whatever_was_learned_the_hub_takes_it(placement: PlacementDocument) -> None:
    """Names and messages from drivers may be any text; a report is never rejected for them."""
    fitted = reporting.fit(NodeReport(41234, placement))

    assert parse_report(fitted.dumps().encode()) == fitted
