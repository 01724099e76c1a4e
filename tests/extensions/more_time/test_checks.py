"""Mistakes in a configuration that the checks of more time find, with their places and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.more_time import checks
from tests.check.mistakes import Mistake, one
from tests.check.test_hub_mistakes import BASE, SCRIPTS, alarms, commands, site
from tests.check.test_mistakes import assert_found

__all__ = ["site"]  # the fixture

MISTAKES = {
    "servers that cannot be extended": Mistake(
        one('"partition": "gpu", "time": "1-0"', '"extend": {"by": "1h"}'),
        "warn  profile g: extend: no server can be extended: its time limit is already MaxTime of partition gpu. Set "
        "a shorter slurm.time, or take extend out of the profile. [extend-too-long]",
        "starts now, 87 of 96 cores free",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_found_before_a_user_reads_of_it(tmp_path: Path, mistake: Mistake) -> None:
    """As those that the core's checks find."""
    assert_found(tmp_path, mistake)


EXTENDED = """
c.GPUProfilesSpawner.profiles[0]["extend"] = {"by": "1h"}
c.GPUSlurmSpawner.extend_prefix = "sudo -n -u slurm"
"""
HUBS = {
    "the default of both": ("", "socket.gethostname()", []),
    "a name of its own": ("c.GPUSlurmSpawner.hub_name = 'jupyter'", "'jupyter'", []),
    "a name that is computed": ("c.GPUSlurmSpawner.hub_name = 'jupyter'", "open('/etc/hub').read()", []),
    "a script as it is shipped": (
        "c.GPUSlurmSpawner.hub_name = 'jupyter'",
        "socket.gethostname()",
        [("head", "jupyter")],
    ),
    "another port": ("c.JupyterHub.hub_port = 8082", "socket.gethostname()", [("head", "head-8082")]),
    "another port, with the old name": (
        "c.JupyterHub.hub_bind_url = 'http://:8082'",
        "'head'",
        [("head", "head-8082")],
    ),
}


@pytest.mark.parametrize(("lines", "of_script", "names"), HUBS.values(), ids=HUBS.keys())
async def test_a_script_that_extends_the_servers_of_another_hub_is_said_to(
    site: Path, monkeypatch: pytest.MonkeyPatch, lines: str, of_script: str, names: list[tuple[str, str]]
) -> None:
    """It runs, and would refuse each server of this hub; both names are told, and what to write."""
    monkeypatch.setattr("socket.gethostname", lambda: "head")
    commands(site, sudo="echo 'extend: the input is not a job id and a number of minutes' >&2; exit 1")
    script = site / "libexec" / "extend"
    script.write_text(script.read_text().replace("HUB = socket.gethostname()", f"HUB = {of_script}"))

    assert await alarms(site, BASE + SCRIPTS + EXTENDED + lines, checks=(checks.check_extending,)) == [
        f"warn  extend: FOLDER/libexec/extend extends the servers of a hub named {of!r}, and this one is named "
        f"{name!r}, so no server can be extended. Write HUB = {name!r} in the script. [extend-fails]"
        for of, name in names
    ]
