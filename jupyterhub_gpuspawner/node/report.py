"""Report to the hub where a server runs: at the launch, tried up to three times, and once the server listens.

The HTTP/1.1 request is made on a socket: ``http.client`` would load 40 modules, and take a third of the whole launch's
time, to send one request and read one status line.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child, folder
from jupyterhub_gpuspawner.node import port as ports
from jupyterhub_gpuspawner.node.port import Url, parse_url
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, as_line, in_print
from jupyterhub_gpuspawner.wire.documents import (
    REPORT_LIMIT,
    NodeReport,
    PlacementDocument,
    PortReport,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyterhub_gpuspawner.node.child import Say
    from jupyterhub_gpuspawner.node.port import PortOwner

# One small request to the hub, with a time limit.

TIMEOUT = 5.0
"""Seconds for one try."""
_ANSWER_LIMIT = 8192


class RefusedError(Exception):
    """The hub answered with a status other than 2xx."""

    def __init__(self, status: int, message: str, *, wait: float = 0.0) -> None:
        super().__init__(f"{status} {message}".strip())
        self.wait = wait
        """Seconds after which the hub allows another try (Retry-After)."""
        self.status = status

    @property
    def passes(self) -> bool:
        """Whether the refusal may be temporary: 429, 5xx, 401 or 403.

        A hub, or a proxy in front of it, answers 401 or 403 also if it could not look up the token.
        """
        return self.status >= 500 or self.status in (401, 403, 429)


def post(body: bytes, environ: Mapping[str, str], *, to: str = "report", wait: bool = True) -> None:
    """Post ``body`` with the server's own token; raises RefusedError, OSError (no answer) or ValueError.

    ``to`` is the last part of the path: ``report`` or ``usage``. Without ``wait`` the hub's answer is not read.
    """
    api = environ.get("JUPYTERHUB_API_URL", "")
    token = environ.get("JUPYTERHUB_API_TOKEN", "")
    if not api or not token:
        raise ValueError("JUPYTERHUB_API_URL and JUPYTERHUB_API_TOKEN are not both set")
    if any(not "!" <= c <= "~" for c in api + token):
        raise ValueError("JUPYTERHUB_API_URL or JUPYTERHUB_API_TOKEN contains a character that HTTP does not allow")
    url = parse_url(api)
    head = (
        f"POST {url.path.rstrip('/')}/gpuspawner/{to} HTTP/1.1\r\n"
        f"Host: {url.authority}\r\n"
        f"Authorization: token {token}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "User-Agent: jupyterhub-gpuspawner\r\n"
        "Connection: close\r\n"
    )
    with _connect(url, environ) as connection:
        ends_at = time.monotonic() + TIMEOUT  # a name may have addresses that do not answer, before the one that does
        connection.sendall(head.encode() + b"\r\n" + body)
        if not wait:
            return
        answer = _read(connection, ends_at)
    words = answer.split(b"\r\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise OSError(f"{url.host} did not respond as an HTTP server")
    status = int(words[1])
    if not 200 <= status < 300:
        raise RefusedError(status, _message(answer) or b" ".join(words[2:]).decode("latin-1"), wait=_wait(answer))


def _connect(url: Url, environ: Mapping[str, str]) -> socket.socket:
    if url.scheme not in ("http", "https"):
        raise ValueError(f"JUPYTERHUB_API_URL begins with {url.scheme}, not http or https")
    plain = socket.create_connection((url.host, url.port or (443 if url.scheme == "https" else 80)), timeout=TIMEOUT)
    if url.scheme == "http":
        return plain
    try:
        return _secured(plain, url.host, environ)
    except BaseException:
        plain.close()
        raise


def _secured(plain: socket.socket, host: str, environ: Mapping[str, str]) -> socket.socket:
    """TLS, with the hub's internal certificates if this server has any (``internal_ssl``)."""
    import ssl

    context = ssl.create_default_context(cafile=environ.get("JUPYTERHUB_SSL_CLIENT_CA") or None)
    certificate, key = environ.get("JUPYTERHUB_SSL_CERTFILE"), environ.get("JUPYTERHUB_SSL_KEYFILE")
    if certificate and key:
        context.load_cert_chain(certificate, key)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        # not the OSError that it is, too: another try would not help, and nothing was sent
        raise ValueError(f"the certificate of {host} could not be verified: {error.verify_message}") from error


def _read(connection: socket.socket, ends_at: float) -> bytes:
    """Read the answer to its end; an answer with status 204 has no body."""
    answer = b""
    while len(answer) < _ANSWER_LIMIT:
        connection.settimeout(max(0.01, ends_at - time.monotonic()))
        chunk = connection.recv(_ANSWER_LIMIT)
        answer += chunk
        if not chunk or (answer[8:13] == b" 204 " and b"\r\n\r\n" in answer):
            break
    return answer


def _wait(answer: bytes) -> float:
    """The seconds in the Retry-After header; 0 if there is none."""
    for line in answer.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"retry-after" and value.strip().isdigit():
            return float(value.strip()[:9])
    return 0.0


def _message(answer: bytes) -> str:
    """The ``message`` in JupyterHub's JSON error body; empty if there is none."""
    try:
        document = json.loads(answer.partition(b"\r\n\r\n")[2])
    except ValueError:
        return ""
    message = document.get("message") if isinstance(document, dict) else None
    return as_line(message) if isinstance(message, str) else ""


# The report: its tries, and what is left of it where the hub refuses it.

PAUSES = (0.5, 2.0)
"""Seconds between the tries; there is one more try than pauses."""
LONGEST_PAUSE = 5.0
"""Seconds that are waited at most if the hub asks for a pause (Retry-After)."""


def attempt(report: NodeReport, environ: Mapping[str, str]) -> tuple[str | None, bool]:
    """Send the report; returns None or a sentence that says what failed, and whether a later try may succeed.

    A report that the hub rejects as invalid (400) is sent again with only the port and the reason, since without the
    port the server cannot be reached; that of another node with only the node's name and the reason. No answer, 401,
    403, 429 and 5xx are tried again; other 4xx, and a certificate that cannot be verified, are final.
    """
    try:
        post_patiently(fit(report), environ)
    except (RefusedError, OSError, ValueError) as error:
        if not isinstance(error, RefusedError) or error.status != 400:
            return _sentence(error), _may_pass(error)
        try:
            post_patiently(_least(report, error), environ)
        except (RefusedError, OSError, ValueError) as second:
            return _sentence(error), _may_pass(second)
        sent = "the node's name" if report.other_node else "the port"
        return f"The hub refused the full report; only {sent} was reported: {error}", False
    return None, False


def _may_pass(error: Exception) -> bool:
    return error.passes if isinstance(error, RefusedError) else isinstance(error, OSError)


def post_patiently(report: NodeReport, environ: Mapping[str, str]) -> None:
    """Post until it succeeds, the refusal is final, or the tries are used up; raises what the last try raised."""
    body = report.dumps().encode()
    for pause in PAUSES:
        wanted = 0.0
        try:
            return post(body, environ)
        except RefusedError as refused:
            if not refused.passes:
                raise
            wanted = min(refused.wait, LONGEST_PAUSE)
        except OSError:
            pass
        time.sleep(max(pause, wanted))
    return post(body, environ)


def _sentence(error: Exception) -> str:
    return f"The report could not be sent to the hub: {error}"


def fit(report: NodeReport) -> NodeReport:
    """Cut the report to the limits that the hub enforces; without its topology, if that is too large."""
    placement = in_print(report.placement)
    placement = replace(
        placement,
        cpus=report.placement.cpus,
        gpus=placement.gpus[:LIST_LIMIT],
        numa_nodes=placement.numa_nodes[:LIST_LIMIT],
        problems=placement.problems[:LIST_LIMIT],
    )
    fitting = replace(report, placement=placement)
    size = len(fitting.dumps().encode())
    if size <= REPORT_LIMIT or report.topology is None:
        return fitting
    problem = f"The node's topology is not shown: with it the report has {size} bytes, more than {REPORT_LIMIT}."
    return fit(with_problems(replace(report, topology=None), [problem]))


def _least(report: NodeReport, refused: RefusedError) -> NodeReport:
    placement = report.placement
    problem = as_line(f"The hub refused the full report: {refused}")
    least = PlacementDocument(simulated=placement.simulated, problems=(problem,))
    if report.other_node:
        least = replace(least, job_id=placement.job_id, node=as_line(placement.node))
    return NodeReport(report.port, least, door=report.door, other_node=report.other_node)


# The announcement of a server: its port is picked, and the first report delivered, in a child process.


def deliver(say: Say, report: NodeReport, port_range: tuple[int, int] | None, environ: Mapping[str, str]) -> None:
    """Say the port first, so that it counts even if the report takes too long; then post the report.

    What is said: ``port``, ``service_url`` and ``problems``; then, if the hub did not take the report, ``problems`` and
    ``again``, which is whether the report may be sent again later.
    """
    try:
        number, service_url, problems = ports.door(environ.get("JUPYTERHUB_SERVICE_URL", ""), port_range)
        lost, own = 0, folder.launcher_folder(environ)
        if own:
            lost = ports.remembered(own)
            ports.remember(own, number)
        if lost:
            problems.append(
                f"Another process took port {lost} before the server listened there; the server was "
                "started again on another port."
            )
        say(port=number, service_url=service_url, problems=problems)
        door = PortReport("taken") if lost else None
        failure, retry = attempt(replace(with_problems(report, problems), door=door), environ)
        if failure:
            say(problems=[failure], again=retry)
    except Exception as error:  # noqa: BLE001 - the server starts all the same
        say(problems=[f"Reporting to the hub failed: {type(error).__name__}: {error}"])


def with_problems(report: NodeReport, problems: Iterable[str]) -> NodeReport:
    """The report with more problems in its placement."""
    placement = report.placement
    return replace(report, placement=replace(placement, problems=(*placement.problems, *problems)))


# A process beside the server that reports its port to the hub, once the server listens on it.
#
# If the port were reported earlier, any user of the node could take it in the meantime, and the hub would take that
# user's process for the server. So this process polls the kernel's table of sockets until the server is in it, and for
# a while afterwards. It also delivers a report that could not be sent at the launch: the hub may be down for a minute
# while servers start, or may itself be waiting for Slurm's answer about this very job.

PATIENCE = 600.0
"""Seconds after which a report that the hub does not accept is dropped."""
RETRY_PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries; the last one is repeated."""
POLL_SECONDS = ((10.0, 0.05), (60.0, 0.1), (600.0, 0.5), (86400.0, 2.0))
"""Pairs: until so many seconds after the launch, the seconds between two checks of the port."""
_LONGEST = 2.0
"""Seconds between two checks at most, however much a check costs."""
AFTERWARDS = 120.0
"""Seconds for which the port is checked after it was reported: by then the server is ready, or its start failed."""
_BETWEEN = 0.25
"""Seconds between two checks in that time."""
_WHOSE = 1.0
"""Seconds after which the owner of unchanged sockets is determined again, unless the server itself holds them."""
_SHARE = 0.005
"""The part of a core that one server's checks may take: many servers may be starting on a node."""


class PortReporter:
    """Watches the server's port, and delivers reports until the hub knows it."""

    def __init__(
        self, report: NodeReport, port: int, environ: Mapping[str, str], server: int, *, is_reported: bool
    ) -> None:
        """``server``: its pid. ``is_reported``: the hub has the report already, without the port."""
        self.report, self.port, self.environ, self.server = report, port, environ, server
        self.is_reported = is_reported
        self._sending = child.DeadlineThread()
        self._sockets: list[object] | None = None
        self._whose: tuple[float, PortOwner] | None = None

    def run(self) -> None:
        """Check the port and report until the server has ended, or the hub has known the port for a while."""
        began = time.monotonic()
        pending = None if self.is_reported else self.report
        due, gives_up, tries, reported_at = began, began + PATIENCE, 0, 0.0
        last = before = ports.PortOwner()
        while child.lives(self.server) and time.monotonic() - began < POLL_SECONDS[-1][0]:
            now, cost = time.monotonic(), time.process_time()
            owner = self.port_owner()
            cost = time.process_time() - cost
            # only if it is the same twice: a server opens several addresses one after the other
            if owner.state != ports.NOBODY and owner == before and (owner.state, owner.uid) != (last.state, last.uid):
                last, pending = owner, self.report_on(owner)
                due, gives_up, tries = now, now + PATIENCE, 0
            before = owner
            if pending is not None and now >= due:
                retry, is_final = self._deliver(pending)
                if is_final:
                    reported_at = time.monotonic()
                elif not retry and pending.port:
                    return
                if not retry or time.monotonic() > gives_up:
                    pending = None
                due = time.monotonic() + RETRY_PAUSES[min(tries, len(RETRY_PAUSES) - 1)]
                tries += 1
            ready = pending is None and last.state == ports.OURS
            if ready and now - reported_at > AFTERWARDS:
                return
            pause = _BETWEEN if ready else next(pause for until, pause in POLL_SECONDS if now - began <= until)
            time.sleep(min(max(pause, cost / _SHARE), _LONGEST))

    def _deliver(self, pending: NodeReport) -> tuple[bool, bool]:
        """Send the report; returns whether another try may succeed, and whether the hub accepted it."""
        try:  # looking up a name may take forever
            failure, retry = self._sending.ask(lambda: attempt(pending, self.environ), PATIENCE)
        except TimeoutError:
            return True, False
        return retry, failure is None

    def port_owner(self) -> PortOwner:
        """Who listens on the port; if the kernel does not show that, whether anyone does."""
        try:
            sockets = ports.listening(self.port)
            if self._whose is not None and sockets == self._sockets:
                read_at, owner = self._whose
                # an inode is one socket: as long as it is the same one, the server has it
                if owner.seen == ports.PROCESS or time.monotonic() < read_at + _WHOSE:
                    return owner
            port_owner = ports.owner_of_port(sockets, self.server, self.environ.get("JUPYTERHUB_API_TOKEN", ""))
        except (OSError, ValueError, IndexError):
            there = ports.answers(self.port, self.environ.get("JUPYTERHUB_SERVICE_URL", ""))
            return ports.PortOwner(ports.OURS, ports.UNSEEN) if there else ports.PortOwner()
        self._sockets, self._whose = list(sockets), (time.monotonic(), port_owner)
        return port_owner

    def report_on(self, owner: PortOwner) -> NodeReport:
        """The report that names who listens on the port."""
        if owner.state == ports.OURS:
            unseen = f"This node does not show which process listens on port {self.port}."
            report = with_problems(self.report, (unseen,) if owner.seen == ports.UNSEEN else ())
            return replace(report, port=self.port, door=PortReport(owner.seen, owner.addresses[:64]))
        whose = "another process of this user" if owner.uid == os.geteuid() else f"another user (uid {owner.uid})"
        report = with_problems(self.report, [f"Port {self.port} was taken by {whose} of this node."])
        return replace(report, port=0, door=PortReport(ports.OTHERS))
