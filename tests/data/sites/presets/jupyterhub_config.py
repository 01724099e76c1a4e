# A teaching cluster: SlurmFormSpawner with bounds, presets and a job script of its own
import os

import slurmformspawner

c = get_config()
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = slurmformspawner.SlurmFormSpawner

c.SlurmFormSpawner.slurm_bin_path = "/usr/bin"
c.SlurmFormSpawner.submit_template_path = os.path.join(os.path.dirname(__file__), "submit.sh")
c.SlurmFormSpawner.profile_args = {
    "terminal": {"name": "A shell", "params": {"nprocs": 1, "oversubscribe": True, "ui": "terminal"}},
    "training": {"name": "Train a model", "params": {"nprocs": 8, "memory": 32768, "gpus": "gpu:a100:1", "runtime": 4}},
}
c.SbatchForm.runtime = {"min": 0.5, "max": 12, "step": 0.5, "def": 2}
c.SbatchForm.nprocs = {"min": 1, "max": 16, "step": 1, "def": 2}
c.SbatchForm.memory = {"min": 1024, "max": 65536, "step": 1024, "def": 4096}
c.SbatchForm.gpus = {"def": "gpu:0", "choices": ["gpu:0", "gpu:a100:1", "gpu:1g.10gb:1"]}
c.SbatchForm.partition = {"def": "teaching", "lock": True}
c.SbatchForm.account = {"def": "course", "lock": True}
c.SlurmAPI.info_cache_ttl = 60
