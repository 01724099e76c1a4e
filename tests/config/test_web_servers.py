"""nginx and Apache in front of a hub, with the configuration that is shipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.run import PROFILES
from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "config" / "webserver"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
MODULES = Path("/usr/lib/apache2/modules")
NGINX = """\
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""
APACHE = """\
ServerRoot {folder}
ServerName 127.0.0.1
PidFile {folder}/apache.pid
ErrorLog {folder}/error.log
Mutex file:{folder}
Listen 127.0.0.1:{port}
{user}
{modules}
Include {folder}/site.conf
"""
LOADED = ("mpm_event", "authz_core", "ssl", "headers", "proxy", "proxy_http")
"""Apache's modules: those that the configuration names, and two that every Apache has."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub whose servers run beside it, with a JupyterLab of ada's."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "profiles").mkdir()
    shutil.copy(PROFILES / "hub.yaml", folder / "profiles")
    with HubProcess(folder) as process:
        process.spawn("ada", {"profile": "local"})
        yield process


def site(name: str, port: int, hub: HubProcess, folder: Path) -> str:
    """The shipped configuration with this test's values in its lines for the site."""
    text = (FOLDER / name).read_text("utf-8")
    for shipped, own in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "*:443": f"127.0.0.1:{port}",
        "/etc/ssl/certs/hub.example.org.pem": f"{folder}/cert.pem",
        "/etc/ssl/private/hub.example.org.key": f"{folder}/key.pem",
        "hub.example.org": "127.0.0.1",
        "http://127.0.0.1:8000": hub.url,
    }.items():
        text = text.replace(shipped, own)
    return text


def nginx(folder: Path, _port: int) -> list[str]:
    """The command that runs nginx with the site's file, and its main file."""
    (folder / "main.conf").write_text(NGINX.format(folder=folder))
    return ["nginx", "-p", str(folder), "-e", f"{folder}/error.log", "-c", f"{folder}/main.conf"]


def apache(folder: Path, port: int) -> list[str]:
    """The same for Apache."""
    modules = "\n".join(f"LoadModule {name}_module {MODULES}/mod_{name}.so" for name in LOADED)
    user = "User nobody\nGroup nogroup" if os.geteuid() == 0 else ""
    (folder / "main.conf").write_text(APACHE.format(folder=folder, port=port, modules=modules, user=user))
    return ["apache2", "-D", "FOREGROUND", "-f", f"{folder}/main.conf"]


SERVERS: dict[str, Callable[[Path, int], list[str]]] = {"nginx.conf": nginx, "apache.conf": apache}


@pytest.fixture(params=["nginx.conf", pytest.param("apache.conf", marks=pytest.mark.nightly)])
def front(request: pytest.FixtureRequest, hub: HubProcess, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a web server in front of the hub, and its certificate."""
    (port,) = free_ports(1)
    command = SERVERS[request.param](tmp_path, port)
    if shutil.which(command[0], path=PATH) is None:
        pytest.skip(f"{command[0]} is not installed")
    (tmp_path / "site.conf").write_text(site(request.param, port, hub, tmp_path))
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, env={"PATH": PATH}, stdin=subprocess.DEVNULL))
        stack.callback(process.terminate)
        address, certificate = f"https://127.0.0.1:{port}", tmp_path / "cert.pem"

        def answers() -> bool:
            assert process.poll() is None, (tmp_path / "error.log").read_text()
            try:
                return requests.get(f"{address}/hub/health", verify=str(certificate), timeout=10).ok
            except requests.ConnectionError:
                return False

        wait_until(answers)
        yield address, certificate


@pytest.mark.hub
async def test_a_hub_works_behind_the_web_server(front: tuple[str, Path], hub: HubProcess) -> None:
    """Sign-in, a file of three megabytes, a terminal over a WebSocket, and the stream of a start."""
    address, certificate = front
    with requests.Session() as session:
        session.trust_env = False  # of the environment, which may name other certificates
        session.verify = str(certificate)
        sign_in = session.get(f"{address}/hub/login", timeout=30)
        form = {"username": "ada", "password": hub.password, "_xsrf": session.cookies.get("_xsrf", path="/hub/")}
        home = session.post(f"{address}/hub/login?next=/hub/home", form, headers={"Referer": sign_in.url}, timeout=30)

        token = {"Authorization": f"token {hub.token}"}
        lab = f"{address}/user/ada/api"
        file = {"type": "file", "format": "text", "content": "x" * 3_000_000}
        put = session.put(f"{lab}/contents/large-{address[-5:]}.txt", json=file, headers=token, timeout=60)
        events = session.get(f"{address}/hub/api/users/ada/server/progress", headers=token, stream=True, timeout=30)
        event = next(line for line in events.iter_lines() if line.startswith(b"data:"))
        events.close()
        name = session.post(f"{lab}/terminals", headers=token, timeout=30).json()["name"]

    request = HTTPRequest(
        f"{address}/user/ada/terminals/websocket/{name}".replace("https:", "wss:"),
        headers={**token, "Origin": address},
        ca_certs=str(certificate),
    )
    terminal = await websocket_connect(request)
    await terminal.write_message(json.dumps(["stdin", "echo $((6 * 7))-through\r"]))
    text = ""
    while "42-through" not in text:
        message = await terminal.read_message()
        assert message is not None, text
        text += message if isinstance(message, str) else message.decode()
    terminal.close()
    while await terminal.read_message() is not None:  # what is still on its way
        pass

    assert (home.status_code, home.url) == (200, f"{address}/hub/home")
    assert put.status_code == 201, put.text
    assert b'"ready": true' in event
