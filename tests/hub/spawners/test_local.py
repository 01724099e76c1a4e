"""Servers on the hub's own machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.hubs import COMMAND, StartHub

PROFILES = f"""
- {{display_name: Here, slug: here, kind: local, port_range: 21300-21399, command: {COMMAND}}}
"""


@pytest.mark.slurm
@pytest.mark.hub
def test_a_server_here_listens_within_its_profiles_ports(start_light_hub: StartHub, tmp_path: Path) -> None:
    """Its launcher is the installation's own: no file is made for it that a cleaner might remove."""
    hub = start_light_hub(profiles=PROFILES, TMPDIR=str(tmp_path))
    hub.spawn("ann", {"profile": "here"})
    ports = re.findall(r"Adding user ann to proxy /user/ann/ => http://127\.0\.0\.1:(\d+)", hub.log.read_text())
    hub.end("ann")

    assert ports != []
    assert [port for port in ports if not 21300 <= int(port) <= 21399] == []
    assert "the launcher failed" not in hub.log.read_text()
    assert list(tmp_path.glob("gpuspawner-*")) == []
