"""One small HTTP/1.1 request to the hub, with a time limit.

Implemented on a socket: ``http.client`` would load 40 modules, and take a third of the whole launch's time, to send one
request and read one status line.
"""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.port import Url, parse_url
from jupyterhub_gpuspawner.wire.documents import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class UntrustedError(ValueError):
    """The hub's certificate could not be verified; nothing was sent, and another try would not help."""


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
    ends_at = time.monotonic() + TIMEOUT
    with _connect(url, environ) as connection:
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
        raise UntrustedError(f"the certificate of {host} could not be verified: {error.verify_message}") from error


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
    return printable(message) if isinstance(message, str) else ""
