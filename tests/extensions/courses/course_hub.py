"""A hub with courses, for what looks at it without starting it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def configuration(bin_dir: str, courses: Path, profile: Mapping[str, Any]) -> str:
    """Its configuration, with one profile; it asks Slurm as its own account."""
    return f"""
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUSlurmSpawner.slurm_bin_dir = {bin_dir!r}
c.GPUSlurmSpawner.req_homedir = "/tmp"
c.GPUSlurmSpawner.exec_prefix = ""
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True  # in tests, which root may run
c.GPUProfilesSpawner.courses_dir = {str(courses)!r}
c.GPUProfilesSpawner.profiles = [{profile!r}]
"""
