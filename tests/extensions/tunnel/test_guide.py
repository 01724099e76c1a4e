"""The guide to nodes out of reach, followed literally: each command of its first sections is run as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_tutorials import plain, report_of


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
@pytest.mark.timeout(400)
def test_the_guide_says_what_happens(needs_slurm: None, site_folder: Path) -> None:
    """No command fails, and each prints what the guide shows, but for versions and numbers."""
    followed = report_of(
        "tests.extensions.tunnel.follow_guide", site_folder, "sudo", "ip", "ssh", "sshd", "ssh-keyscan"
    )
    done = [step for step in followed["steps"] if step["output"] is not None]
    tunnel, check = (step for step in done if step["shown"])
    lines = plain(check["output"]).splitlines()

    assert [step for step in done if step["status"] != 0] == []
    assert [line.split()[0] for line in tunnel["output"].splitlines()] == [
        line.split()[0] for line in tunnel["shown"].splitlines()
    ]
    assert "127.0.0.1:20000 127.0.0.1:20001 " in tunnel["output"]
    of_tunnel = [line for line in plain(check["shown"]).splitlines() if "tunnel" in line]
    assert len(of_tunnel) == 2  # the line of the node is that of a hub that may read its users' logs
    assert [line for line in of_tunnel if line not in lines] == [], check["output"]
