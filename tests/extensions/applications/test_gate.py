"""What stands before an application: the folder of its socket, and what of requests and answers passes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import requests
import websocket
from requests.adapters import HTTPAdapter
from tornado.httputil import HTTPHeaders
from urllib3.util.retry import Retry

from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from jupyterhub_gpuspawner.extensions.applications import gpuspawner_gate
from jupyterhub_gpuspawner.extensions.applications.carried import MODULE
from jupyterhub_gpuspawner.extensions.applications.gpuspawner_gate import (
    LONGEST_PATH,
    for_application,
    from_elsewhere,
    own_cookie,
    socket_folder,
)
from jupyterhub_gpuspawner.extensions.applications.node.gate import RUN_GATE
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, Step
from tests.node.test_main import launch


@pytest.mark.parametrize(
    ("name", "mode", "jobs_own"),
    [
        ("gpuspawner.abcdefghij", 0o700, True),
        ("gpuspawner.abcdefghij", 0o750, False),
        ("else", 0o700, False),
        ("x" * LONGEST_PATH + "/gpuspawner.abcdefghij", 0o700, False),
    ],
)
def test_a_socket_lies_in_a_folder_that_only_its_user_enters(name: str, mode: int, jobs_own: bool) -> None:
    """In the job's, where that is one and the path of the socket fits; otherwise in a new one."""
    with TemporaryDirectory() as short:  # tmp_path alone may be longer than a socket's path
        job = Path(short) / name
        job.mkdir(parents=True)
        job.chmod(mode)

        folder, new = socket_folder(f"{job}/launch.pyz")

        assert (folder == str(job), new) == (jobs_own, not jobs_own)
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        if new:
            shutil.rmtree(folder)


LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "elsewhere"),
    [
        ("GET", {}, False),
        ("POST", {}, False),  # no browser: a script with a token
        ("POST", {"Origin": "http://hub.example"}, False),
        ("POST", {"Origin": "https://HUB.example"}, False),  # TLS ends before the hub
        ("POST", {"Origin": "http://evil.example"}, True),
        ("POST", {"Origin": "http://hub.example:8000"}, True),
        ("POST", {"Origin": "null"}, True),
        ("GET", {"Origin": "http://evil.example", "Upgrade": "websocket"}, True),
        ("POST", {"Sec-Fetch-Site": "same-origin", "Origin": "http://inner.example"}, False),  # a proxy changed Host
        ("GET", {"Sec-Fetch-Site": "none", **LINK}, False),  # an address that was typed, or a bookmark
        ("GET", {"Sec-Fetch-Site": "cross-site", **LINK}, False),  # a link, or the way back from a sign-in elsewhere
        ("POST", {"Sec-Fetch-Site": "cross-site", **LINK}, True),  # a form
        ("GET", {"Sec-Fetch-Site": "cross-site", **LINK, "Sec-Fetch-Dest": "iframe"}, True),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, True),
        ("POST", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, True),  # another user's subdomain
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"}, True),
    ],
)
def test_pages_of_other_sites_can_link_to_an_application_and_nothing_more(
    method: str, headers: dict[str, str], elsewhere: bool
) -> None:
    """A browser says where a request comes from; the visitor's cookies would go with it."""
    assert from_elsewhere(method, HTTPHeaders({"Host": "hub.example", **headers})) is elsewhere


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ({"Accept": "*/*", "Cookie": "theme=dark; a=b=c"}, {"Accept": "*/*", "Cookie": "theme=dark; a=b=c"}),
        (
            {"Cookie": "jupyterhub-user-ada=cookie; theme=dark; jupyterhub-session-id=1; _xsrf=2"},
            {"Cookie": "theme=dark; _xsrf=2"},
        ),
        ({"Cookie": "__Host-jupyterhub-user-ada=cookie"}, {}),
        ({"Authorization": "token secret"}, {}),
        ({"Authorization": "Bearer its-own"}, {"Authorization": "Bearer its-own"}),
        ({"Referer": "http://hub/user/ada/?token=secret"}, {"Referer": "http://hub/user/ada/"}),
        ({"Referer": "http://hub/?a=%2F&%74oken=+secret&b"}, {"Referer": "http://hub/?a=%2F&b"}),
        ({"Referer": "http://hub/?token=its-own"}, {"Referer": "http://hub/?token=its-own"}),
        ({"X-Original-Uri": "/user/ada/?token=secret"}, {}),
        (
            {"X-Forwarded-For": "192.0.2.1", "User-Agent": "curl", "X-Requested-With": "it", "X-Auth-Token": "its-own"},
            {"X-Forwarded-For": "192.0.2.1", "User-Agent": "curl", "X-Requested-With": "it", "X-Auth-Token": "its-own"},
        ),
    ],
)
def test_an_application_gets_nothing_of_the_sign_in(sent: dict[str, str], passed: dict[str, str]) -> None:
    """Neither JupyterHub's cookies nor a token that it knows, wherever it stands; a token of its own it does get."""
    headers = HTTPHeaders(sent)

    assert dict(for_application(headers, frozenset({"secret"}))) == passed
    assert dict(headers) == sent


PROXIES = {
    "Apache and nginx": ("Remote-User", "Remote_User", "REMOTE_USER", "X-Remote-User", "X_FORWARDED_FOR", "Proxy-User"),
    "TLS certificates": (
        *("X-SSL-Client-S-DN", "X-SSL-Cert", "SSL_CLIENT_S_DN", "Ssl-Client-Verify", "X-Client-Cert", "X-Client-DN"),
        *(
            "X-Forwarded-Tls-Client-Cert-Info",
            "X-Forwarded-Client-Cert",
            "Client-Cert",
            "X-Client-Verify",
            "X-TLS-Client-DN",
        ),
    ),
    "Authelia": ("Remote-Email", "Remote-Groups", "Remote-Name"),
    "oauth2-proxy": (
        *("X-Forwarded-User", "X-Forwarded-Preferred-Username", "X-Forwarded-Access-Token", "X-Forwarded-Groups"),
        *("X-Auth-Request-User", "X-Auth-Request-Email", "X-Auth-Request-Access-Token"),
    ),
    "Keycloak's gatekeeper": ("X-Auth-Username", "X-Auth-Subject", "X-Auth-Userid", "X-Auth-Roles", "X-Auth-Expiresin"),
    "mod_auth_openidc and mod_auth_mellon": ("OIDC_CLAIM_sub", "OIDC-CLAIM-sub", "MELLON-uid", "Mellon-mail", "X-Mail"),
    "Shibboleth": ("Shib-Session-ID", "eppn", "Persistent-Id-Saml", "X-EPPN", "Entitlement"),
    "Kerberos": ("X-Krb5-Principal", "X-Kerberos-Name"),
    "SiteMinder, WebSEAL and Oracle": (
        "SM-User",
        "SMUSER",
        "sm-userdn",
        "iv-user",
        "iv-groups",
        "iv-creds",
        "OAM-Remote-User",
    ),
    "clouds": (
        *("X-Goog-Authenticated-User-Email", "X-Goog-IAP-JWT-Assertion", "X-MS-Client-Principal-Name"),
        *(
            "X-Amzn-Oidc-Identity",
            "Cf-Access-Authenticated-User-Email",
            "Cf-Access-Jwt-Assertion",
            "Tailscale-User-Login",
        ),
    ),
    "gateways": (
        *(
            "X-Consumer-Username",
            "X-Consumer-ID",
            "X-Credential-Identifier",
            "X-Authenticated-Userid",
            "Impersonate-User",
        ),
        *(
            "X-Pomerium-Claim-Email",
            "X-Vouch-User",
            "X-Vouch-IdP-Claims-Groups",
            "X-authentik-uid",
            "Teleport-Jwt-Assertion",
        ),
    ),
    "applications": (
        *("X-Webauth-User", "X-Webauth-Role", "X-Rstudio-Username", "X-Rstudio-Anything", "Shiny-Server-Credentials"),
        *(
            "X-Shiny-User",
            "X-Shiny-Groups",
            "X-Token-User-Name",
            "X-Token-User-Email",
            "X-Token-Subject",
            "X-Streamlit-User",
        ),
        *("RStudio-Connect-Credentials", "Posit-Connect-User-Session-Token", "X-Hasura-User-Id", "X-Hasura-Role"),
        *("X-ProxyContextPath", "X-Forwarded-Prefix", "X-Original-User"),
    ),
    "names that say it": (
        *(
            "X-User",
            "User",
            "X-UserName",
            "X-Login",
            "X-Log-In",
            "X-Email",
            "E-Mail",
            "X-UID",
            "X-Account",
            "X-Principal",
        ),
        *("X-Identity", "X-Groups", "X-Group", "X-Role", "X-Subject", "X-SSO-Name", "X-IdP", "X-Person", "WhoAmI"),
    ),
}
"""By who sets them, for whom."""
OWN = (
    *(
        "User-Agent",
        "X-User-Agent",
        "Sec-Fetch-User",
        "Sec-Fetch-Site",
        "Sec-WebSocket-Protocol",
        "Accept",
        "Accept-Language",
    ),
    *(
        "Content-Type",
        "Content-Length",
        "Content-Encoding",
        "Range",
        "If-None-Match",
        "If-Modified-Since",
        "Cache-Control",
    ),
    *(
        "Origin",
        "Host",
        "Connection",
        "Upgrade",
        "Upgrade-Insecure-Requests",
        "Last-Event-ID",
        "Authorization",
        "Prefer",
    ),
    *(
        "Access-Control-Request-Headers",
        "X-Requested-With",
        "X-CSRFToken",
        "X-CSRF-Token",
        "X-XSRF-TOKEN",
        "X-Xsrftoken",
    ),
    *("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Real-IP", "X-Request-ID"),
    *("X-Auth-Token", "X-Api-Key", "X-Grpc-Web", "Grpc-Timeout", "HX-Request", "HX-Current-URL", "Tus-Resumable"),
    *(
        "Upload-Offset",
        "X-File-Name",
        "X-RS-Session",
        "X-Session-Id",
        "Mcp-Session-Id",
        "Depth",
        "Destination",
        "Traceparent",
    ),
)
"""What browsers, the hub's proxy, and the scripts of applications send."""


@pytest.mark.parametrize("names", PROXIES.values(), ids=PROXIES)
def test_no_visitor_names_the_user_of_an_application(names: tuple[str, ...]) -> None:
    """Applications believe these headers because a proxy sets them, and read ``_`` in a name as ``-``."""
    spelled = [spelling for name in names for spelling in (name, name.lower(), name.upper(), name.replace("-", "_"))]

    assert [name for name in spelled if dict(for_application(HTTPHeaders({name: "root"}), frozenset()))] == []


def test_what_browsers_and_scripts_send_is_passed_on() -> None:
    """Also what no list has."""
    assert [name for name in OWN if not dict(for_application(HTTPHeaders({name: "1"}), frozenset()))] == []


@pytest.mark.parametrize(
    ("cookie", "own"),
    [
        ("theme=dark", "theme=dark"),
        ("session=1; Path=/; HttpOnly", "session=1; Path=/user/ada/; HttpOnly"),
        ("session=1; path=/app; Domain=hub.example", "session=1; Path=/user/ada/app"),
        ("session=1; Path=/user/ada", "session=1; Path=/user/ada"),
        ("session=1; Path=/user/ada/x; Secure", "session=1; Path=/user/ada/x; Secure"),
        ("session=1; Path=/user/adam", "session=1; Path=/user/ada/user/adam"),
        ("session=1; PATH= /hub/", "session=1; Path=/user/ada/hub/"),
        ("session=1;path\t=\t/user/bob\t; domain =hub.example", "session=1; Path=/user/ada/user/bob"),
        ("session=1; Path=/user/ada/; Path=/hub/", "session=1; Path=/user/ada/hub/"),
        ("session=1; Path=/hub/; Path=", "session=1"),
        ("session=1; Path=\x01/hub/; SameSite=Lax", "session=1; SameSite=Lax"),
        ("session=1; \xa0Path=/hub/; Max-Age=60; Future=/", "session=1; Path=/user/ada/hub/; Max-Age=60"),
        ("__Host-session=1; Path=/; Secure", "__Host-session=1; Path=/user/ada/; Secure"),
    ],
)
def test_cookies_of_an_application_are_for_its_own_addresses(cookie: str, own: str) -> None:
    """The hub, and other users' servers at the same host, do not get them, however a path is written."""
    assert own_cookie(cookie, "/user/ada") == own


SESSION = {"version": 1, "ends_at": "2026-07-01T12:00:00+00:00"}


class Hub(BaseHTTPRequestHandler):
    """JupyterHub's answer to who has a token, one of which is ada's, and to her server's own."""

    def do_GET(self) -> None:
        """The user, or 403; the session for the server's token."""
        if (self.path, self.headers["Authorization"]) == ("/hub/api/gpuspawner/session", "token of-the-server"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(SESSION).encode())
            return
        signed_in = self.headers["Authorization"] == "token secret"
        user = {"kind": "user", "name": "ada", "scopes": ["access:servers!server=ada/"]}
        self.send_response(200 if signed_in else 403)
        self.end_headers()
        self.wfile.write(json.dumps(user if signed_in else {}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the gate is, with an application behind it."""
    (port,) = free_ports(1)
    host = f"127.0.0.1:{port}"
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        environ = {
            "JUPYTERHUB_SERVICE_URL": f"http://{host}",
            "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/",
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub.server_port}/hub/api",
            "JUPYTERHUB_API_TOKEN": "of-the-server",
            "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-ada",
            "JUPYTERHUB_USER": "ada",
            "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps(["access:servers!server=ada/"]),
        }
        application = [sys.executable, str(Path(__file__).parents[2] / "standins" / "web_app.py"), "{socket}"]
        gate = subprocess.Popen(
            [
                *(sys.executable, "-c", RUN_GATE, str(Path(gpuspawner_gate.__file__).parent)),
                *("--ready", "/healthz", "--", *application),
            ],
            env={**os.environ, **environ},
        )
        try:
            with requests.Session() as session:
                session.mount(
                    "http://",
                    HTTPAdapter(max_retries=Retry(connect=None, total=300, backoff_factor=0.1, backoff_max=0.1)),
                )
                session.get(f"http://{host}/user/ada/", allow_redirects=False, timeout=30)
            yield f"{host}/user/ada"
        finally:
            gate.terminate()
            gate.wait()
            hub.shutdown()


SENT = {"Referer": "http://hub/user/ada/?token=secret&page=2", "Remote_User": "root", "X-Webauth-User": "root"}


def test_an_application_sees_no_token_in_an_address(address: str) -> None:
    """Neither in that of a page nor in that of a WebSocket, where a browser can have the token in the address alone."""
    headers = {**SENT, "Authorization": "token secret"}
    page = requests.get(f"http://{address}/known?token=secret&a=%2F", headers=headers, timeout=30).json()
    connection = websocket.create_connection(
        f"ws://{address}/ws/known?a=%2F&token=secret",
        header={**SENT, "Sec-Fetch-Mode": "websocket"},
        timeout=30,
        suppress_origin=True,
    )
    message = json.loads(connection.recv())
    connection.close()

    assert [page["address"], message["address"]] == ["/known?a=%2F", "/ws/known?a=%2F"]
    assert [document["headers"]["Referer"] for document in (page, message)] == ["http://hub/user/ada/?page=2"] * 2
    assert "secret" not in f"{page['headers']} {message['headers']}"
    assert "root" not in f"{page['headers']} {message['headers']}"


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_no_answer_of_an_application_sets_a_cookie_for_the_hub(address: str, accept: str) -> None:
    """Nor one that is streamed."""
    headers = {"Authorization": "token secret", "Accept": accept}
    answer = requests.get(f"http://{address}/known", {"cookie": "session=1; PATH= /hub/"}, headers=headers, timeout=30)

    assert answer.headers["Set-Cookie"] == "session=1; Path=/user/ada/hub/"


def test_an_application_has_a_way_to_the_home_page_and_its_user_the_session(address: str) -> None:
    """The session is for who is signed in, and neither of the two is asked of the application."""
    ada = {"Authorization": "token secret"}

    def get(path: str, headers: dict[str, str]) -> requests.Response:
        return requests.get(f"http://{address}/{path}", headers=headers, allow_redirects=False, timeout=30)

    home = get("gpuspawner/home", ada)
    session = get("gpuspawner/session", ada)
    strangers = get("gpuspawner/session", {})
    from_another_site = get("gpuspawner/session", {**ada, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})

    assert (home.status_code, home.headers["Location"]) == (302, "/hub/home")
    assert (session.json(), session.headers["Cache-Control"]) == (SESSION, "no-store")
    assert [strangers.status_code, from_another_site.status_code] == [403, 403]


def test_without_jupyter_server_proxy_the_application_does_not_start(archive: Path) -> None:
    """The log names what is missing; the exit code is that of a shell."""
    plan = LaunchPlan(report=False, instead=Step(f"{MODULE}:command"))
    words = ("gpuspawner-gate", "/nonexistent/jupyterhub-singleuser", "--ready", "/", "--", "true")
    done = launch(archive, plan, {}, *words)

    assert (done.returncode, done.stderr) == (
        127,
        "gpuspawner: jupyter-standaloneproxy: no such command; the job's environment needs jupyterhub and "
        "jupyter-server-proxy >= 4.6\n",
    )
