"""A hub that leaves availability out enters nothing of it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from types import SimpleNamespace
from traitlets.config import Config
from jupyterhub_gpuspawner.hub import registration, routes
from jupyterhub_gpuspawner.hub.choose.page import render_form
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner

profiles = [{"display_name": "One", "slurm": {"gpus": 1}}]
user = SimpleNamespace(name="ada", groups=[], spawners={})
page = asyncio.run(render_form(GPUProfilesSpawner(profiles=profiles, extensions=[], user=user, config=Config())))
assert "GPU" in page, page
print(*sorted(name for name in sys.modules if name.startswith("jupyterhub_gpuspawner.extensions.availability.")))
"""


def test_the_form_enters_no_model() -> None:
    """Only the package itself is known, since it says what it would add."""
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (answer.returncode, answer.stdout.strip()) == (0, ""), answer.stderr
