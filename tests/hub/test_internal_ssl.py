"""``internal_ssl``: hub, proxy and server speak TLS with each other, and the server's key is the job's alone."""

from __future__ import annotations

import stat
from pathlib import Path

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubFailed
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.hub.conftest import new_hub
from tests.hub.test_life import environment, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.internal_ssl = True
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("http:", "https:")
c.ConfigurableHTTPProxy.api_url = c.ConfigurableHTTPProxy.api_url.replace("http:", "https:")
c.JupyterHub.internal_certs_location = str(folder / "internal-ssl")
"""


def test_a_server_over_tls(slurm_cluster: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reached through the proxy and by nobody without the hub's certificate; its files are 0600 and go with the job."""
    lines = CONFIG.replace("str(folder /", f"str(__import__('pathlib').Path({str(tmp_path / 'hub')!r}) /")
    hub = new_hub(slurm_cluster, tmp_path / "hub", lines=lines)
    monkeypatch.setattr(type(hub), "answers", lambda each: _answers(each.url))
    try:
        hub.start()
    except HubFailed as failed:  # what it said is the best there is
        raise AssertionError(failed) from failed
    try:
        placement = hub.spawn("ssl", {"profile": "light"})
        env = environment(hub, "ssl")
        files = [Path(env[f"JUPYTERHUB_SSL_{name}"]) for name in ("KEYFILE", "CERTFILE", "CLIENT_CA")]
        modes = [stat.S_IMODE(file.stat().st_mode) for file in files]
        folders = {stat.S_IMODE(file.parent.stat().st_mode) for file in files}
        script = slurm_cluster.run("scontrol", "write", "batch_script", placement["job_id"], "-")
        said = hub.log.read_text()
        url = env["JUPYTERHUB_SERVICE_URL"]
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"{url}environ", timeout=10, verify=str(files[2]))
        key = files[0].read_text().splitlines()[1]
        hub.end("ssl")
    finally:
        hub.stop()

    assert url.startswith("https://")
    assert env["JUPYTERHUB_API_URL"].startswith("https://")
    assert (modes, folders) == ([0o600] * 3, {0o700})
    assert [name for name in env if name.endswith("_CONTENT")] == []
    assert key not in script + said
    assert not any(key in " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"]))
    assert wait_for(lambda: not any(file.exists() for file in files))


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/hub/health", timeout=2).ok
    except requests.RequestException:
        return False
