# ruff: noqa: F821
"""batchspawner with wrapspawner's profiles."""

import os

load_subconfig(f"{os.environ['BENCH_CONFIGS']}/common.py")

import batchspawner  # noqa: E402
from without_accounts import WithoutAccounts  # noqa: E402


class Slurm(WithoutAccounts, batchspawner.SlurmSpawner):
    """batchspawner's Slurm spawner, without accounts."""


c = get_config()
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.ProfilesSpawner.profiles = [
    (
        "One GPU",
        "gpu",
        Slurm,
        {
            "exec_prefix": "",
            "req_partition": "gpu",
            "req_gres": "gpu:1",
            "req_nprocs": "1",
            "req_memory": "100M",
            "req_runtime": "1:00:00",
            "req_srun": "",
        },
    )
]
