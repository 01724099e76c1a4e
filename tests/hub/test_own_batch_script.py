"""Scripts of a site's own on a real hub and a real Slurm, as batchspawner's hubs have them, with one line changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import STAND_IN, StartHub, stop_servers
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

IN_QUOTES = """#!/bin/bash
#SBATCH --partition={{partition}} --mem={{memory}}M --time={{runtime}}:00
#SBATCH --output=own-%j.log
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"; echo cleaned up' EXIT
{{prologue}}
bash -c 'cd / && exec {{cmd}}'
"""
IN_A_FILE = """#!/bin/bash
#SBATCH {{options}}
#SBATCH --output=own-%j.log
cat > serve.sh <<'EOF'
serve() {
  {{cmd}}
}
EOF
. ./serve.sh
serve
echo cleaned up
"""
TRAITS = {"cmd": [sys.executable, str(STAND_IN)], "req_partition": "batch", "req_memory": "100", "req_runtime": "10"}
LINES = f"""
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
c.GPUProfilesSpawner.profiles = [
    ("In quotes", "quotes", "batchspawner.SlurmSpawner", {{**{TRAITS!r}, "batch_script": {IN_QUOTES!r}}}),
    ("In a file", "file", "batchspawner.SlurmSpawner", {{
        "cmd": {TRAITS["cmd"]!r},
        "req_options": "-p batch --mem=100M\\n#SBATCH -t 10\\n#SBATCH --nice=7",
        "batch_script": {IN_A_FILE!r},
    }}),
    ("Fails", "fails", "batchspawner.SlurmSpawner", {{
        **{TRAITS!r}, "batch_script": {IN_QUOTES!r}, "req_prologue": "echo first\\nfalse\\necho second",
    }}),
]
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub with profiles that have a script each."""
    return start_light_hub(lines=LINES)


@pytest.fixture(autouse=True)
def no_server_is_left(hub: HubProcess) -> Iterator[None]:
    """Whatever a test leaves is stopped."""
    yield
    stop_servers(hub)


@pytest.mark.parametrize(("profile", "nice"), [("quotes", 0), ("file", 7)])
def test_the_server_starts_and_ends(hub: HubProcess, slurm_cluster: PrivateSlurm, profile: str, nice: int) -> None:
    """In the user's home, with the options as written; nothing of the launcher is left, and the site's trap runs."""
    job = hub.spawn(profile, {"profile": profile})["job_id"]
    record = slurm_cluster.run("scontrol", "show", "job", job)
    home = hub.folder / "homes" / profile
    log = home / f"own-{job}.log"

    assert f"WorkDir={home}\n" in record
    assert f"Nice={nice} " in record
    assert " TimeLimit=00:10:00 " in record
    assert "MinMemoryNode=100M " in record
    hub.end(profile)
    wait_until(lambda: profile == "file" or "cleaned up" in log.read_text(), log.read_text)
    assert [path.name for path in home.glob("gpuspawner.*")] == []


def test_a_line_of_the_prologue_ends_the_job(hub: HubProcess) -> None:
    """The log says which, and the page what it wrote last."""
    hub.api("POST", "/users/fay")
    hub.api("POST", "/users/fay/server", {"profile": "fails"})
    hub.wait("fay", ready=False)
    (log,) = (hub.folder / "homes" / "fay").glob("own-*.log")
    wait_until(lambda: "cleaned up" in log.read_text(), log.read_text)
    text = log.read_text()

    assert "of the script failed, which ends the job: false\n" in text
    assert ("first" in text, "second" in text) == (True, False)
