"""Runs a web application on a unix socket that only its user can open, behind the hub's sign-in.

``gpuspawner_gate --ready PATH [--absolute-url] -- COMMAND ARGUMENT…``. It is jupyter-server-proxy's standalone proxy
with these differences:

- WebSockets need a sign-in, too: jupyter-server-proxy 4.6 lets anybody open them.
- Requests that a page of another site makes the browser send are refused: the application may have no protection
  against them, and the standalone proxy switches JupyterHub's off.
- The application gets neither the server's token nor the visitor's, nor the cookies of the visitor's sign-in, and its
  own cookies are for this server's addresses.
- The application is started at once, and the server's port is opened once it answers at PATH; when it ends, so does the
  server, with its exit code.
- JupyterHub is told of requests and messages, and of nothing else: the standalone proxy reports activity for as long as
  it runs, and an idle server would never be stopped.
- Two addresses below the server's are the gate's own: ``gpuspawner/home`` leads to the hub's home page, and
  ``gpuspawner/session`` is the hub's session document, as in JupyterLab.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlparse

import aiohttp
from jupyter_server_proxy.handlers import SuperviseAndProxyHandler
from jupyter_server_proxy.standalone.app import StandaloneProxyServer
from jupyter_server_proxy.standalone.proxy import make_standalone_proxy
from jupyterhub.utils import isoformat, url_path_join
from tornado import httpclient, httpserver, httputil, web

if TYPE_CHECKING:
    from jupyterhub.services.auth import HubOAuth

LONGEST_PATH = 107
"""Bytes of the path of a unix socket, in Linux."""
PAUSE = 0.2
"""Seconds between two looks whether the application is ready."""
PATIENCE = 5.0
"""Seconds that the application may take for one answer before it is asked again."""
FRESH = 15.0
"""Seconds for which an answer of the hub serves all pages of the application."""
PARENTS = ("/tmp", "/dev/shm")
SECRETS = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN")
"""Environment variables that the application does not get: error pages and logs of web applications show theirs."""
SIGN_IN_COOKIE = re.compile(r"(__Host-)?jupyterhub-", re.IGNORECASE)
"""How the names of JupyterHub's cookies begin; the server's own holds the visitor's token."""
COOKIE_ATTRIBUTES = ("expires", "max-age", "secure", "httponly", "samesite", "partitioned", "priority")
"""What an application decides of its cookies; which addresses get them is decided here."""
VOUCHED = re.compile(
    r"""
    (?! (sec-.* | (x-)?user-agent) $ )  # Sec-Fetch-User is the browser's, X-User-Agent that of gRPC's
    (
        .*_.*  # WSGI applications read Remote_User as Remote-User
        | .*( user | mail | log-?in | logname | principal | identit | credential | account | consumer | impersonat
            | authenticated | claim | entitle | assertion | webauth | whoami | certificate | kerberos | krb5
            | saml | shib | eppn | oidc | jwt | mellon ).*
        | (.*-)?( remote | auth-request | uid | dn | cert | groups? | roles? | subject | sso | idp | person )(-.*)?
        | x-auth-(?!token$).*
        | x-token-.*
        | (x-)?(authentik|authelia|goog|ms-client|pomerium|rstudio|shiny|vouch|iap|iv|sm|oam)-.*
        | (x-)?(ssl|tls|client-verify|cf-access|tailscale|teleport)(-.*)?
        | x-(original-name|username|proxycontextpath)
        | x-forwarded-(?!(for|host|port|proto|scheme|server|ssl)$).*
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Names of headers that applications believe because a proxy sets them; a visitor's own are not passed on.

There is no standard for them, and each proxy has its own names, so it is what a name speaks of that counts: users, the
ways to sign in, groups and certificates. A list of what may pass would be safer, but the scripts of applications send
headers that only they know (``HX-Request``, ``X-Grpc-Web``, ``Tus-Resumable``).
"""


def from_elsewhere(method: str | None, headers: httputil.HTTPHeaders) -> bool:
    """Whether a page of another site made the browser send this request; following a link there is none.

    Browsers say so in ``Sec-Fetch-Site`` (Fetch Metadata, W3C), over HTTPS and to localhost; otherwise in ``Origin``
    where the request may change something or opens a WebSocket.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is None:
        origin = headers.get("Origin")
        return origin is not None and urlparse(origin).netloc.lower() != headers.get("Host", "").lower()
    link = method == "GET" and headers.get("Sec-Fetch-Mode") == "navigate"
    return site not in ("same-origin", "none") and not (link and headers.get("Sec-Fetch-Dest") == "document")


def tokens_in(query: str) -> frozenset[str]:
    """What a query has as ``token``, by which JupyterHub signs a visitor in."""
    return frozenset(value.strip() for name, value in parse_qsl(query) if name == "token")


def without_tokens(query: str, tokens: frozenset[str]) -> str:
    """A query without these tokens; what else is in it keeps its escapes."""
    return "&".join(part for part in query.split("&") if not tokens_in(part) & tokens)


async def request_tokens(request: httputil.HTTPServerRequest, auth: HubOAuth, session: str) -> frozenset[str]:
    """Those of the address, of the page that it was asked from, and of ``Authorization`` that JupyterHub knows."""
    header = auth.auth_header_pat.match(request.headers.get("Authorization", ""))
    tokens = {header[1].strip()} if header else set()
    tokens |= tokens_in(request.query) | tokens_in(request.headers.get("Referer", "").partition("?")[2])
    visible = [token for token in tokens if token.isascii() and token.isprintable()]
    return frozenset([token for token in visible if await auth.user_for_token(token, session_id=session, sync=False)])


def for_application(headers: httputil.HTTPHeaders, tokens: frozenset[str]) -> httputil.HTTPHeaders:
    """The visitor's headers without JupyterHub's sign-in and without those that only a proxy may set.

    ``tokens``: those of the request that JupyterHub knows.
    """
    passed = httputil.HTTPHeaders()
    for name, value in headers.get_all():
        if name == "Cookie":
            cookies = [cookie.strip() for cookie in value.split(";")]
            text = "; ".join(cookie for cookie in cookies if not SIGN_IN_COOKIE.match(cookie))
        elif name == "Referer":
            page, _, query = value.partition("?")
            query = without_tokens(query, tokens)
            text = f"{page}?{query}" if query else page
        else:
            text = value
        if text and not VOUCHED.fullmatch(name) and not any(token in text for token in tokens):
            passed.add(name, text)
    return passed


def own_cookie(cookie: str, base_url: str) -> str:
    """A value of Set-Cookie for the addresses below ``base_url``: the hub and other servers do not get the cookie.

    Its attributes are read as browsers do (RFC 6265, section 5.2): blanks around a name and a value do not count, and
    the last ``Path`` does. One that does not begin with a slash is left out; the cookie is then for the folder of its
    page. A cookie ``__Host-...``, which is for all addresses or for none, is refused by the browser.
    """
    pair, *attributes = (part.strip() for part in cookie.split(";"))
    path, passed = "", []
    for attribute in attributes:
        name, _, value = (word.strip() for word in attribute.partition("="))
        if name.lower() == "path":
            path = value
        elif name.lower() in COOKIE_ATTRIBUTES:
            passed.append(attribute)
    if path.startswith("/"):
        below = f"{path}/".startswith(f"{base_url}/")
        passed.insert(0, f"Path={path if below else base_url + path}")
    return "; ".join([pair, *passed])


def own_cookies(base_url: str) -> type[web.OutputTransform]:
    """Does that to all answers of an application, also to those that are streamed; the gate's own come after it."""

    class OwnCookies(web.OutputTransform):
        def transform_first_chunk(
            self,
            status_code: int,
            headers: httputil.HTTPHeaders,
            chunk: bytes,
            finishing: bool,  # noqa: ARG002 - as tornado has it
        ) -> tuple[int, httputil.HTTPHeaders, bytes]:
            cookies = headers.get_list("Set-Cookie")
            headers.pop("Set-Cookie", None)
            for cookie in cookies:
                if not SIGN_IN_COOKIE.match(cookie.lstrip("= \t")):
                    headers.add("Set-Cookie", own_cookie(cookie, base_url))
            return status_code, headers, chunk

    return OwnCookies


def handler_class() -> Any:
    """The proxy's handler, with a sign-in for everything."""
    handler, arguments = make_standalone_proxy(SuperviseAndProxyHandler, {"state": {}})

    class SignedIn(handler):  # type: ignore[misc, valid-type]
        hub_tokens: frozenset[str] = frozenset()
        """The tokens of this request that JupyterHub knows; one that it does not know may be the application's."""

        async def prepare(self, *_: Any, **__: Any) -> None:
            """Refuse what other sites' pages ask for in the visitor's name."""
            if from_elsewhere(self.request.method, self.request.headers):
                raise web.HTTPError(403, log_message="asked for by a page of another site")
            if self.current_user:
                self.hub_tokens = await request_tokens(self.request, self.hub_auth, self.hub_auth.get_session_id(self))

        def proxy_request_headers(self) -> httputil.HTTPHeaders:
            """What the application gets of the visitor's headers."""
            return for_application(super().proxy_request_headers(), self.hub_tokens)

        def get_client_uri(self, protocol: str, host: str, port: int, _: str) -> str:
            """The application's address for this request, with the visitor's escapes: ``%2F`` does not become ``/``."""
            path = self.request.path if self.absolute_url else self.request.path[len(self.settings["base_url"]) :]
            query = without_tokens(self.request.query, self.hub_tokens)
            return f"{protocol}://{host}:{port}{path}{'?' if query else ''}{query}"

        async def get(self, *args: Any, **kwargs: Any) -> None:
            """Answer a GET; a WebSocket begins with one."""
            if self.request.headers.get("Upgrade", "").lower() == "websocket" and not self.current_user:
                raise web.HTTPError(403)
            await super().get(*args, **kwargs)

    return SignedIn, arguments


class Session:
    """The hub's session document of this server, for which the hub is asked once in :data:`FRESH` seconds at most."""

    def __init__(self) -> None:
        self._document = b""
        self._asked_at: float | None = None
        self._turn = asyncio.Lock()

    async def document(self) -> bytes:
        """As JSON; empty where the hub does not answer."""
        async with self._turn:
            if self._asked_at is None or time.monotonic() - self._asked_at > FRESH:
                request = hub_request(f"{os.environ['JUPYTERHUB_API_URL'].rstrip('/')}/gpuspawner/session")
                try:
                    self._document = (await httpclient.AsyncHTTPClient().fetch(request)).body
                except (OSError, httpclient.HTTPError):
                    self._document = b""
                self._asked_at = time.monotonic()
            return self._document


def own_handlers(base_url: str) -> list[tuple[str, type, dict[str, Any]]]:
    """The addresses that the gate answers itself; none counts as use, so that a page that counts down stays idle."""
    handler, arguments = handler_class()
    session = Session()

    class HomeRedirect(handler):  # type: ignore[misc, valid-type]
        SUPPORTED_METHODS = ("GET",)

        async def get(self, *_: Any, **__: Any) -> None:
            """302 to the hub's home page, with its card of this server."""
            self.redirect(self.hub_auth.hub_host + url_path_join(self.hub_auth.hub_prefix, "home"))

    class SessionHandler(handler):  # type: ignore[misc, valid-type]
        SUPPORTED_METHODS = ("GET",)

        async def get(self, *_: Any, **__: Any) -> None:
            """The document; 204 where the hub does not answer."""
            if not self.current_user:
                raise web.HTTPError(403)
            document = await session.document()
            self.set_status(200 if document else 204)
            self.set_header("Cache-Control", "no-store")
            if document:
                self.set_header("Content-Type", "application/json")
            await self.finish(document or None)

    prefix = re.escape(f"{base_url}/gpuspawner/")
    return [
        (f"^{prefix}home/?$", HomeRedirect, arguments),
        (f"^{prefix}session$", SessionHandler, arguments),
    ]


class Gate(StandaloneProxyServer):
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
        # jupyter-server-proxy 4.6 has the base URL with a regular expression's escapes here, as in /user/ada\-b/
        slash = (f"^{re.escape(self.base_url)}$", web.RedirectHandler, {"url": f"{self.base_url}/"})
        application.add_handlers(".*", [slash, *own_handlers(self.base_url)])
        application.add_transform(own_cookies(self.base_url))
        # a notebook's listing of requests would show the tokens in their addresses
        application.settings["log_function"] = lambda _handler: None
        server = httpserver.HTTPServer(application, ssl_options=self._configure_ssl(), xheaders=True)
        try:
            environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
            process = await asyncio.create_subprocess_exec(*self.application, env=environment)
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
            telling = asyncio.create_task(self.report_activity(application))
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

    async def report_activity(self, application: web.Application) -> None:
        """Tell JupyterHub when the application was last used, as jupyterhub-singleuser does."""
        reported = None
        while True:
            await asyncio.sleep(float(os.environ.get("JUPYTERHUB_ACTIVITY_INTERVAL") or 300))
            last = application.settings.get("last_activity_times", {}).get("jupyter-server-proxy")
            if last is None or last == reported:
                continue
            request = activity_request(isoformat(last))
            try:
                await httpclient.AsyncHTTPClient().fetch(request)
            except (OSError, httpclient.HTTPError) as error:
                self.log.warning("JupyterHub was not told of activity: %s", error)
            else:
                reported = last


def activity_request(last: str) -> httpclient.HTTPRequest:
    """Tell JupyterHub that this server was last used at ``last``; the default server's name is empty."""
    name = os.environ.get("JUPYTERHUB_SERVER_NAME", "")
    body = json.dumps({"servers": {name: {"last_activity": last}}, "last_activity": last})
    return hub_request(os.environ["JUPYTERHUB_ACTIVITY_URL"], method="POST", body=body)


def hub_request(url: str, **more: Any) -> httpclient.HTTPRequest:
    """A request to JupyterHub with the server's own token."""
    headers = {"Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}", "Content-Type": "application/json"}
    return httpclient.HTTPRequest(url, headers=headers, **more)


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
    if private and len(os.fsencode(folder / "session.sock")) <= LONGEST_PATH:  # app.sock, or a second one beside it
        return str(folder), False
    for parent in PARENTS:
        with suppress(OSError):
            return tempfile.mkdtemp(prefix="gpuspawner-app.", dir=parent), True
    raise SystemExit("gpuspawner: there is no folder for the application's socket: /tmp and /dev/shm are not writable")


def main() -> None:
    """Run the application; exits with its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready", required=True)
    parser.add_argument("--absolute-url", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    folder, new = socket_folder(os.environ.get("GPUSPAWNER_LAUNCHER", ""))
    socket = f"{folder}/app.sock"
    url = urlparse(os.environ["JUPYTERHUB_SERVICE_URL"])
    Path(socket).unlink(missing_ok=True)  # of a first try that lost its port
    base_url = os.environ["JUPYTERHUB_SERVICE_PREFIX"]
    replaced = {"{socket}": socket, "{socket_folder}": folder, "{base_url}": base_url.rstrip("/")}
    command = options.command
    for name, value in replaced.items():
        command = [word.replace(name, value) for word in command]
    gate = Gate(
        command,
        socket,
        options.ready,
        base_url=base_url,
        address=url.hostname or "",
        port=url.port or 8888,
        absolute_url=options.absolute_url,
        activity_interval=0,
    )
    try:
        status = asyncio.run(gate.serve())
    finally:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(status)
