"""What importing our spawners changes in the hub."""

from __future__ import annotations

import subprocess
import sys

import pytest
from jupyterhub.app import JupyterHub

from jupyterhub_gpuspawner.hub.registration import TEMPLATES, register_templates

IMPORTS = {
    "ours alone": "import jupyterhub_gpuspawner.hub.profiles_spawner",
    "batchspawner first": "import batchspawner, jupyterhub_gpuspawner.hub.slurm_spawner",
    "batchspawner after": "import jupyterhub_gpuspawner.hub.slurm_spawner, batchspawner, batchspawner.api",
    "by the lazy name": "from jupyterhub_gpuspawner import GPULocalSpawner",
}


@pytest.mark.parametrize("statement", IMPORTS.values(), ids=IMPORTS.keys())
def test_the_hub_has_our_handlers_and_not_batchspawners(statement: str) -> None:
    """/api/batchspawner, which sets any attribute, is gone whichever way the package is loaded."""
    program = f"""
{statement}
from jupyterhub.apihandlers import default_handlers
print([path for path, _ in default_handlers if 'spawner' in path])
"""
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == str(
        ["/api/gpuspawner/report", "/api/gpuspawner/placement/([^/]+)(?:/([^/]*))?"]
    )


def test_our_templates_come_after_the_admins_and_before_the_hubs() -> None:
    """An admin's own template wins over ours, and ours over the hub's, whenever he sets his folder."""
    app = JupyterHub()
    stock = app._template_paths_default()
    register_templates(app)

    assert app.template_paths == [str(TEMPLATES), *stock]

    app.template_paths = ["/etc/jupyterhub/templates"]

    assert app.template_paths == ["/etc/jupyterhub/templates", str(TEMPLATES), *stock]
