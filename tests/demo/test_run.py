"""The demo, apart from its hub and its Slurm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest.mock import patch

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.run import PROFILES
from jupyterhub_gpuspawner.site.configuration import load_site


def test_check_and_show_read_what_the_demos_hub_reads(tmp_path: Path) -> None:
    """The demo writes a configuration for them with the same folders of profiles and homes, and without secrets."""
    shutil.copytree(PROFILES, tmp_path / "profiles")
    hub = HubProcess(tmp_path, token="a secret", password="a secret")  # noqa: S106
    written = hub.write_configuration()
    with patch.dict(os.environ):
        site = load_site(written)
        offered = [profile.slug for profile in site.spawner("ada").offered()]
    assert offered == ["k80", "p100x4", "mig", "cpu", "local"]
    assert site.config.GPUSlurmSpawner.req_homedir == str(tmp_path / "homes" / "{username}")
    assert "secret" not in written.read_text()
