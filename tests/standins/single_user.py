"""A stand-in for ``jupyterhub-singleuser``: what the hub sees of a server, and its environment for tests.

Standard library only, any Python 3. It serves ``JUPYTERHUB_SERVICE_URL`` with three paths below it: ``api``, which the
hub requests to check whether the server is up, and ``environ`` and ``process`` for tests, as JSON.
"""

import json
import os
import socket
import ssl
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from urllib.parse import urlsplit

SERVICE = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])


class Handler(BaseHTTPRequestHandler):
    """Answers GET requests."""

    def do_GET(self) -> None:
        """Send one of three documents, or 404."""
        documents = {
            "api": {"stand-in": True},
            "environ": dict(os.environ),
            "process": {"uid": os.getuid(), "gid": os.getgid(), "folder": str(Path.cwd())},
        }
        name = urlsplit(self.path).path[len(SERVICE.path) :]
        body = json.dumps(documents.get(name)).encode()
        self.send_response(200 if name in documents else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: the log may be full."""


class Server(TCPServer):
    """Not HTTPServer, which would first look up the host's name."""

    allow_reuse_address = True


class Server6(Server):
    """The same for an IPv6 address."""

    address_family = socket.AF_INET6


def secured(server: TCPServer) -> TCPServer:
    """Use TLS with ``internal_ssl``, only for clients with the hub's certificate, as jupyterhub-singleuser does."""
    if "JUPYTERHUB_SSL_KEYFILE" in os.environ:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=os.environ["JUPYTERHUB_SSL_CLIENT_CA"])
        context.load_cert_chain(os.environ["JUPYTERHUB_SSL_CERTFILE"], os.environ["JUPYTERHUB_SSL_KEYFILE"])
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


if __name__ == "__main__":
    host = SERVICE.hostname or "0.0.0.0"
    kind = Server6 if ":" in host else Server
    secured(kind((host, SERVICE.port or 0), Handler)).serve_forever()
