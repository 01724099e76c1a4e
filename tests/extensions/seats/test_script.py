"""The script `twin` of a login node."""

from __future__ import annotations

from pathlib import Path

from jupyterhub_gpuspawner.site.config_files import HubInstallation, files_of


def test_the_controller_is_the_script_twin_which_the_gate_of_ssh_runs() -> None:
    """With the folders of the login node's Slurm."""
    installation = HubInstallation(
        Path("/srv/hub"), Path("/srv/hub/wrappers"), Path("/sw/hub/bin"), slurm_bin_dir=Path("/opt/slurm/bin")
    )
    files = {file.path.name: file for file in files_of(["wrappers", "ssh"], installation)}
    programs = 'PROGRAMS = "/opt/slurm/bin:/opt/slurm/sbin:/usr/sbin:/usr/local/sbin:/usr/bin:/bin"'

    assert (files["twin"].path, files["twin"].mode) == (Path("/srv/hub/wrappers/twin"), 0o755)
    assert programs in files["twin"].text
    assert '"twin"' in next(line for line in files["gate"].text.splitlines() if line.startswith("OWN = "))
