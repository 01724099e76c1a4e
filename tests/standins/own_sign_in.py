"""A stand-in for a web application that signs people in with JupyterHub itself, on the port that it is told.

Below the server's path, ``health`` answers without a sign-in, and every other page with the visitor's name.
"""

import asyncio
import os
import ssl
import sys
from urllib.parse import urlsplit

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from jupyterhub.utils import make_ssl_context
from tornado import httpserver, web

PREFIX = os.environ["JUPYTERHUB_SERVICE_PREFIX"]


class Health(web.RequestHandler):
    """Whether it is ready."""

    def get(self) -> None:
        """Say so."""
        self.write("ready")


class Page(HubOAuthenticated, web.RequestHandler):  # type: ignore[misc]
    """The page."""

    @web.authenticated
    def get(self) -> None:
        """Greet the visitor."""
        self.write(f"hello {self.current_user['name']}")


async def main(port: int) -> None:
    """Serve until it is ended, over TLS with ``internal_ssl``."""
    files = [os.environ.get(f"JUPYTERHUB_SSL_{name}") for name in ("KEYFILE", "CERTFILE", "CLIENT_CA")]
    context = make_ssl_context(*files, purpose=ssl.Purpose.CLIENT_AUTH) if all(files) else None
    handlers = [(f"{PREFIX}health", Health), (f"{PREFIX}oauth_callback", HubOAuthCallbackHandler), (".*", Page)]
    server = httpserver.HTTPServer(web.Application(handlers, cookie_secret=os.urandom(32)), ssl_options=context)
    server.listen(port, urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).hostname)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
