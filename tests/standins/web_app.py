"""A stand-in for a web application without a sign-in, such as RStudio or TensorBoard, on a unix socket.

``/healthz`` answers 503 for the first second; ``/`` is a page, ``/ws`` a WebSocket that says hello; ``/known`` shows,
as JSON, the address, the headers and the environment that it gets, and sets cookies; ``/ws/known`` says as much;
``/quit`` ends it.
"""

import asyncio
import json
import os
import sys
import time

from tornado import httpserver, httputil, netutil, web, websocket

BEGAN = time.monotonic()
HELLO = "hello from the application"
ENDED_WITH = 3


def document_of(request: httputil.HTTPServerRequest) -> dict[str, object]:
    """What a request tells the application."""
    return {"address": request.uri, "headers": dict(request.headers)}


class Page(web.RequestHandler):
    """The page."""

    def get(self) -> None:
        """Say where it is shown."""
        self.write(f"{HELLO} at {self.request.path}")


class Echo(web.RequestHandler):
    """What it is given."""

    def get(self) -> None:
        """Show it, and set a cookie for all addresses, as web frameworks do, and one as an attack would."""
        self.add_header("Set-Cookie", "jupyterhub-session-id=1; Path=/hub/")
        self.add_header("Set-Cookie", self.get_argument("cookie", "session=1; Path=/"))
        self.write({**document_of(self.request), "environ": dict(os.environ)})

    def post(self) -> None:
        """Change something, without asking who wants it."""


class Health(web.RequestHandler):
    """Whether it is ready."""

    def get(self) -> None:
        """200 from the second second on."""
        self.set_status(200 if time.monotonic() - BEGAN > 1 else 503)


class Socket(websocket.WebSocketHandler):
    """What a terminal in the browser is."""

    def open(self, *_: str) -> None:
        """Speak first."""
        self.write_message(json.dumps(document_of(self.request)) if self.request.path.endswith("known") else HELLO)


class Quit(web.RequestHandler):
    """The end."""

    def get(self) -> None:
        """End with an exit code of its own."""
        print("the application gives up", flush=True)
        sys.exit(ENDED_WITH)


async def main(path: str) -> None:
    """Serve until it is ended."""
    handlers = [("/healthz", Health), ("/ws(?:/known)?", Socket), ("/quit", Quit), ("/known", Echo), ("/.*", Page)]
    server = httpserver.HTTPServer(web.Application(handlers))
    server.add_socket(netutil.bind_unix_socket(path, mode=0o666))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
