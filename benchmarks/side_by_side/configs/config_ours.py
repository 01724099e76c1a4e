# ruff: noqa: F821
"""This package."""

import os

load_subconfig(f"{os.environ['BENCH_CONFIGS']}/common.py")
c = get_config()
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles = [
    {
        "display_name": "One GPU",
        "slug": "gpu",
        "slurm": {"partition": "gpu", "gpus": 1, "cpus": 1, "memory": "100M", "time": "1:00:00"},
    }
]
c.GPUSlurmSpawner.exec_prefix = ""
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True  # as those of the other spawners, on this machine alone
c.GPUSlurmSpawner.req_homedir = f"{os.environ['GPUSPAWNER_DEMO_FOLDER']}/homes/{{username}}"
c.GPUSlurmSpawner.start_timeout = 600
c.GPUSlurmSpawner.topology_file = os.environ["BENCH_TOPOLOGY"]
