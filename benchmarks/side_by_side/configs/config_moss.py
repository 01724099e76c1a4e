# ruff: noqa: F821
"""jupyterhub_moss, configured as in its README."""

import os

load_subconfig(f"{os.environ['BENCH_CONFIGS']}/common.py")

import batchspawner  # noqa: E402, F401 - its README asks for it
import jupyterhub_moss  # noqa: E402
from without_accounts import WithoutAccounts  # noqa: E402


class Moss(WithoutAccounts, jupyterhub_moss.MOSlurmSpawner):
    """jupyterhub_moss's spawner, without accounts."""


c = get_config()
jupyterhub_moss.set_config(c)
c.JupyterHub.spawner_class = Moss
c.MOSlurmSpawner.exec_prefix = ""
c.MOSlurmSpawner.req_srun = ""
c.MOSlurmSpawner.partitions = {
    "gpu": {
        "architecture": "x86_64",
        "description": "GPU",
        "simple": True,
        "jupyter_environments": {
            "default": {"description": "stand-in", "path": os.environ["BENCH_ENVIRONMENT"], "add_to_path": False}
        },
    }
}
