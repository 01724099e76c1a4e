"""With ``internal_ssl``, hub, proxy and server communicate over TLS, and only the job can read the server's key.

So do applications in the place of JupyterLab, which here also are in a container or sign people in themselves.
"""

from __future__ import annotations

import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubFailed, HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import LIGHT, new_hub
from tests.hub.servers import environment
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.internal_ssl = True
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("http:", "https:")
c.ConfigurableHTTPProxy.api_url = c.ConfigurableHTTPProxy.api_url.replace("http:", "https:")
c.JupyterHub.internal_certs_location = str(folder / "internal-ssl")
"""


SILENT = """
- display_name: Says nothing
  slug: silent
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}
  environment: {setup: 'env > "$HOME/environ"; sleep 600'}
  command: [/bin/true]
"""
STAND_INS = Path(__file__).parents[2] / "standins"
APPLICATIONS = f"""
- display_name: In a container
  slug: contained
  slurm: {{partition: batch, cpus: 1, memory: 200M, time: "0:10:00"}}
  environment: {{container: /images/application.sif, setup: 'PATH={STAND_INS}:$PATH'}}
  app: {{command: [{sys.executable}, {STAND_INS}/web_app.py], socket: "{{socket}}", ready: /healthz}}
- display_name: Signs in itself
  slug: own
  slurm: {{partition: batch, cpus: 1, memory: 200M, time: "0:10:00"}}
  app: {{command: [{sys.executable}, {STAND_INS}/own_sign_in.py, "{{port}}"], auth: own, ready: /health}}
"""


@pytest.fixture(scope="module")
def hub(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with ``internal_ssl``."""
    folder = tmp_path_factory.mktemp("tls") / "hub"
    lines = CONFIG.replace("str(folder /", f"str(__import__('pathlib').Path({str(folder)!r}) /")
    hub = new_hub(slurm_cluster, folder, lines=lines, profiles=LIGHT + SILENT + APPLICATIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HubProcess, "answers", lambda process: _answers(process.url))
        try:
            hub.start(timeout=240)
            yield hub
        except HubFailed as failed:  # the hub's output is the best explanation
            raise AssertionError(failed) from failed
        finally:
            hub.stop()


def test_a_server_over_tls(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """Only the hub's certificate gives access to the server; its files have mode 0600 and are removed with the job."""
    placement = hub.spawn("ssl", {"profile": "light"})
    env = environment(hub, "ssl")
    files = [Path(env[f"JUPYTERHUB_SSL_{name}"]) for name in ("KEYFILE", "CERTFILE", "CLIENT_CA")]
    modes = [stat.S_IMODE(file.stat().st_mode) for file in files]
    folders = {stat.S_IMODE(file.parent.stat().st_mode) for file in files}
    script = slurm_cluster.run("scontrol", "write", "batch_script", placement["job_id"], "-")
    log = hub.log.read_text()
    url = env["JUPYTERHUB_SERVICE_URL"]
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{url}environ", timeout=10, verify=str(files[2]))
    key = files[0].read_text().splitlines()[1]
    hub.end("ssl")

    assert url.startswith("https://")
    assert env["JUPYTERHUB_API_URL"].startswith("https://")
    assert (modes, folders) == ([0o600] * 3, {0o700})
    assert [name for name in env if name.endswith("_CONTENT")] == []
    assert key not in script + log
    assert not any(key in " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    wait_until(lambda: not any(file.exists() for file in files))


@pytest.mark.nightly
def test_applications_over_tls(hub: HubProcess) -> None:
    """One in a container behind the hub's sign-in, and one that signs people in itself: each is its user's alone."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(hub.spawn, ("cora-lee", "olaf"), ({"profile": "contained"}, {"profile": "own"})))
    cora, olaf = (Visitor(hub, name).session for name in ("cora-lee", "olaf"))
    there = {name: f"{hub.url}/user/{name}" for name in ("cora-lee", "olaf")}
    with_slash = cora.get(there["cora-lee"], timeout=30).url
    in_container = cora.get(f"{there['cora-lee']}/known", timeout=30).json()["environ"].get("APPTAINER_CONTAINER")
    page = olaf.get(f"{there['olaf']}/page", timeout=30).text
    others = {
        (who, name): session.get(f"{there[name]}/page", timeout=30).status_code
        for who, session, name in (("cora-lee", cora, "olaf"), ("olaf", olaf, "cora-lee"))
    }
    strangers = {requests.get(f"{url}/page", allow_redirects=False, timeout=30).status_code for url in there.values()}
    for name in there:
        hub.end(name)

    assert with_slash == f"{there['cora-lee']}/"
    assert (in_container, page) == ("/images/application.sif", "hello olaf")
    assert others == {("cora-lee", "olaf"): 403, ("olaf", "cora-lee"): 403}
    assert strangers == {302}


@pytest.mark.nightly
def test_a_neighbour_with_a_server_of_their_own_passes_for_any_server(hub: HubProcess, tmp_path: Path) -> None:
    """TLS does not tell servers apart: each has a certificate from the hub's authority for the same names.

    The report names a port before a server listens on it, as reports of version 1 do.
    """
    hub.spawn("eve", {"profile": "light"})
    env = environment(hub, "eve")
    client = tuple(env[f"JUPYTERHUB_SSL_{name}"] for name in ("CERTFILE", "KEYFILE", "CLIENT_CA"))
    believed = {
        "of nobody's authority": _believed(hub, "ada", self_signed(tmp_path), client),
        "of eve's server": _believed(hub, "bob", client[:2], client),
    }
    hub.end("eve")

    assert believed == {"of nobody's authority": False, "of eve's server": True}


def _believed(hub: HubProcess, user: str, certificate: tuple[str, ...], client: tuple[str, ...]) -> bool:
    """Whether the hub accepts a neighbour with this certificate as the user's server."""
    hub.api("POST", f"/users/{user}")
    hub.api("POST", f"/users/{user}/server", {"profile": "silent"})
    environ = hub.folder / "homes" / user / "environ"
    wait_until(lambda: environ.exists() and "JUPYTERHUB_API_TOKEN=" in environ.read_text())
    variables = dict(line.split("=", 1) for line in environ.read_text().splitlines() if "=" in line)
    with neighbour(*certificate) as port:
        answer = requests.post(
            f"{variables['JUPYTERHUB_API_URL']}/gpuspawner/report",
            json={"version": 1, "port": port, "placement": {"job_id": variables["SLURM_JOB_ID"]}},
            headers={"Authorization": f"token {variables['JUPYTERHUB_API_TOKEN']}"},
            cert=(client[0], client[1]),
            verify=client[2],
            timeout=30,
        )

        def ready() -> bool:
            return bool((hub.server(user) or {}).get("ready"))

        def refusals() -> int:
            lines = hub.log.read_text().splitlines()
            return sum(f"127.0.0.1:{port}/" in line and "certificate verify failed" in line for line in lines)

        wait_until(lambda: ready() or refusals() >= 3, hub.log_end)
        believed = ready()
    hub.end(user)

    assert answer.status_code == 204
    return believed


def self_signed(folder: Path) -> tuple[str, str]:
    """A certificate and a key that the hub's authority has not signed."""
    files = str(folder / "own.crt"), str(folder / "own.key")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(
        [*words, "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]],
        check=True,
        capture_output=True,
    )
    return files


@contextmanager
def neighbour(certificate: str, key: str) -> Iterator[int]:
    """Run a TLS server that answers everyone; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/hub/health", timeout=2).ok
    except requests.RequestException:
        return False
