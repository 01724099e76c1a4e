"""An HTTP server in place of the hub: receives reports, and answers as configured."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from typing_extensions import Self


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class ReportHub(ThreadingHTTPServer):
    """Answers with ``answers`` in turn (a status, or raw bytes), then with 204; keeps every request."""

    daemon_threads = True

    def __init__(self, *answers: int | bytes, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Door)
        self.answers = list(answers)
        self.requests: list[Request] = []
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_address[1]}/hub/api"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that the hub gives to its servers."""
        return {
            "JUPYTERHUB_API_URL": self.url,
            "JUPYTERHUB_API_TOKEN": "the-token",
            "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:0/user/ada/",
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that closes the connection."""


class _Door(BaseHTTPRequestHandler):
    server: ReportHub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(Request(self.path, dict(self.headers), body))
        answer = self.server.answers.pop(0) if self.server.answers else 204
        if isinstance(answer, bytes):
            self.wfile.write(answer)
            return
        self.send_response(answer)
        self.end_headers()
        if answer != 204:
            self.wfile.write(json.dumps({"status": answer, "message": f"The hub says {answer}."}).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""
