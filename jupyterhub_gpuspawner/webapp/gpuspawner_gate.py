"""Runs a web application on a unix socket that only its user can open, behind the hub's sign-in.

``gpuspawner_gate --ready PATH [--absolute-url] -- COMMAND ARGUMENT…``. It is jupyter-server-proxy's standalone proxy
with three differences. WebSockets need a sign-in, too: jupyter-server-proxy 4.6 lets anybody open them. The application
is started at once, and the server's port is opened once it answers at PATH; when it ends, so does the server, with its
exit code. JupyterHub is told of requests and messages, and of nothing else: the standalone proxy reports activity for
as long as it runs, and an idle server would never be stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import aiohttp
from jupyter_server_proxy.handlers import SuperviseAndProxyHandler
from jupyter_server_proxy.standalone.app import StandaloneProxyServer
from jupyter_server_proxy.standalone.proxy import make_standalone_proxy
from jupyterhub.utils import isoformat
from tornado import httpclient, httpserver, web

LONGEST_PATH = 107
"""Bytes of the path of a unix socket, in Linux."""
PAUSE = 0.2
"""Seconds between two looks whether the application is ready."""
PATIENCE = 5.0
"""Seconds that the application may take for one answer before it is asked again."""
PLACES = ("/tmp", "/dev/shm")  # noqa: S108 - a new folder with a random name, for its user alone


def handler_class() -> Any:
    """The proxy's handler, with a sign-in for everything."""
    handler, arguments = make_standalone_proxy(SuperviseAndProxyHandler, {"state": {}})

    class SignedIn(handler):  # type: ignore[misc, valid-type]
        async def get(self, *args: Any, **kwargs: Any) -> None:
            """Answer a GET; a WebSocket begins with one."""
            if self.request.headers.get("Upgrade", "").lower() == "websocket" and not self.current_user:
                raise web.HTTPError(403)
            await super().get(*args, **kwargs)

    return SignedIn, arguments


class Gate(StandaloneProxyServer):  # type: ignore[misc]
    """The server at which the hub's sign-in is required, and the application behind it."""

    def __init__(self, application: list[str], socket: str, ready: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.application, self.socket, self.ready = application, socket, ready

    def get_proxy_base_class(self) -> Any:
        """As the standalone proxy's, with a sign-in for WebSockets."""
        return handler_class()

    def get_proxy_attributes(self) -> dict[str, Any]:
        """The handler's: the application's socket, and no command, since the application is running already."""
        attributes = super().get_proxy_attributes()
        del attributes["port"], attributes["unix_socket"]
        return {**attributes, "command": [], "requested_port": 0, "requested_unix_socket": self.socket}

    async def serve(self) -> int:
        """Run the application and serve it until it ends; returns its exit code as a shell counts."""
        application = self.create_app()
        # a notebook's listing of requests would show the tokens in their addresses
        application.settings["log_function"] = lambda _handler: None
        server = httpserver.HTTPServer(application, ssl_options=self._configure_ssl(), xheaders=True)
        try:
            process = await asyncio.create_subprocess_exec(*self.application)
        except OSError as error:
            _complain(f"{self.application[0]} cannot be run: {error.strerror}")
            return 127
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, _end, process)
        ended, ready = asyncio.create_task(process.wait()), asyncio.create_task(self.answers())
        await asyncio.wait({ended, ready}, return_when=asyncio.FIRST_COMPLETED)
        telling = None
        if ready.done():
            try:
                server.listen(self.port, self.address)
            except OSError as error:  # another process took the port: the batch script starts the server again
                _complain(f"port {self.port}: {error.strerror}")
                _end(process)
                await ended
                return 1
            telling = asyncio.create_task(self.tell_of_activity(application))
        status = await ended
        for task in filter(None, (ready, telling)):
            task.cancel()
        return status if status >= 0 else 128 - status

    async def answers(self) -> None:
        """Return once the application answers at its path, with less than 500."""
        path = f"{self.base_url}{self.ready}" if self.absolute_url else self.ready
        limit = aiohttp.ClientTimeout(total=PATIENCE)
        while True:
            with suppress(aiohttp.ClientError, asyncio.TimeoutError, OSError):
                connector = aiohttp.UnixConnector(self.socket)
                async with (
                    aiohttp.ClientSession(connector=connector, timeout=limit) as session,
                    session.get(f"http://localhost{path}", allow_redirects=False) as answer,
                ):
                    if answer.status < 500:
                        return
            await asyncio.sleep(PAUSE)

    async def tell_of_activity(self, application: web.Application) -> None:
        """Tell JupyterHub when the application was last used, as jupyterhub-singleuser does."""
        told = None
        while True:
            await asyncio.sleep(float(os.environ.get("JUPYTERHUB_ACTIVITY_INTERVAL") or 300))
            last = application.settings.get("last_activity_times", {}).get("jupyter-server-proxy")
            if last is None or last == told:
                continue
            request = activity_request(isoformat(last))
            try:
                await httpclient.AsyncHTTPClient().fetch(request)
            except (OSError, httpclient.HTTPError) as error:
                self.log.warning("JupyterHub was not told of activity: %s", error)
            else:
                told = last


def activity_request(last: str) -> httpclient.HTTPRequest:
    """Tell JupyterHub that this server was last used at ``last``; the default server's name is empty."""
    name = os.environ.get("JUPYTERHUB_SERVER_NAME", "")
    return httpclient.HTTPRequest(
        os.environ["JUPYTERHUB_ACTIVITY_URL"],
        method="POST",
        headers={
            "Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}",
            "Content-Type": "application/json",
        },
        body=json.dumps({"servers": {name: {"last_activity": last}}, "last_activity": last}),
    )


def _complain(sentence: str) -> None:
    """Write one line to the job's log."""
    sys.stderr.write(f"gpuspawner: {sentence}\n")
    sys.stderr.flush()


def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()


def socket_folder(launcher: str) -> tuple[str, bool]:
    """A folder that only this user can enter, and whether it is a new one: the job's, where the socket's path fits."""
    folder = Path(launcher).parent
    private = folder.name.startswith("gpuspawner.") and folder.stat().st_mode & 0o077 == 0
    if private and len(os.fsencode(folder / "app.sock")) <= LONGEST_PATH:
        return str(folder), False
    for place in PLACES:
        with suppress(OSError):
            return tempfile.mkdtemp(prefix="gpuspawner-app.", dir=place), True
    raise SystemExit("gpuspawner: there is no folder for the application's socket: /tmp and /dev/shm are not writable")


def main() -> None:
    """Run the application; exits with its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready", required=True)
    parser.add_argument("--absolute-url", action="store_true")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    folder, new = socket_folder(os.environ.get("GPUSPAWNER_LAUNCHER", ""))
    socket = f"{folder}/app.sock"
    url = urlparse(os.environ["JUPYTERHUB_SERVICE_URL"])
    Path(socket).unlink(missing_ok=True)  # of a first try that lost its port
    base_url = os.environ["JUPYTERHUB_SERVICE_PREFIX"]
    replaced = {"{socket}": socket, "{socket_folder}": folder, "{base_url}": base_url.rstrip("/")}
    command = asked.command
    for name, value in replaced.items():
        command = [word.replace(name, value) for word in command]
    gate = Gate(
        command,
        socket,
        asked.ready,
        base_url=base_url,
        address=url.hostname or "",
        port=url.port or 8888,
        absolute_url=asked.absolute_url,
        activity_interval=0,
    )
    try:
        status = asyncio.run(gate.serve())
    finally:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(status)
