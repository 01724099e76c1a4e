# ruff: noqa: F821
"""slurmformspawner, with batchspawner's template in place of its own, which fits only one site."""

import os

load_subconfig(f"{os.environ['BENCH_CONFIGS']}/common.py")

import batchspawner  # noqa: E402, F401
import slurmformspawner  # noqa: E402
from without_accounts import WithoutAccounts  # noqa: E402


class Form(WithoutAccounts, slurmformspawner.SlurmFormSpawner):
    """slurmformspawner's spawner without sudo, and with values for which it has no settings."""

    batch_submit_cmd = "sbatch --parsable"
    batch_cancel_cmd = "scancel {job_id}"
    env_keep = ("PATH", "LANG", "SLURM_CONF", "TMPDIR")


c = get_config()
c.JupyterHub.spawner_class = Form
c.SlurmFormSpawner.submit_template_path = f"{os.environ['BENCH_CONFIGS']}/submit.sh"
c.SbatchForm.partition = {"lock": False, "def": "gpu"}
c.SbatchForm.memory = {"min": 100, "def": 100}
