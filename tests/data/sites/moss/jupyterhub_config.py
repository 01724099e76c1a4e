# moss as its guide introduces it: three partitions, one of them with GPUs
import batchspawner
import jupyterhub_moss

c = get_config()

jupyterhub_moss.set_config(c)
c.JupyterHub.authenticator_class = "dummy"

c.MOSlurmSpawner.partitions = {
    "cpu": {
        "architecture": "x86_64",
        "description": "CPU nodes",
        "gpu": None,
        "max_ngpus": 0,
        "max_nprocs": 28,
        "max_runtime": 12 * 3600,
        "simple": True,
        "jupyter_environments": {
            "default": {"description": "The site's", "path": "/sw/jupyter/bin/", "modules": "", "add_to_path": True},
            "image": {"description": "In a container", "path": "/sw/images/jupyter.sif", "modules": ""},
        },
    },
    "gpu": {
        "architecture": "ppc64le",
        "description": "GPU nodes",
        "gpu": "gpu:V100-SXM2-32GB:{}",
        "max_ngpus": 2,
        "max_nprocs": 128,
        "max_runtime": 3600,
        "simple": True,
        "jupyter_environments": {
            "default": {
                "description": "The site's",
                "path": "",
                "modules": "JupyterLab/4.2.0",
                "add_to_path": True,
                "prologue": "echo 'The default environment'",
            },
        },
    },
    "long": {
        "architecture": "x86_64",
        "description": "CPU nodes for long jobs",
        "gpu": None,
        "max_ngpus": 0,
        "max_nprocs": 28,
        "max_runtime": 90 * 60,
        "simple": False,
        "jupyter_environments": {
            "default": {"description": "Its own", "path": "/sw/long/bin", "modules": "JupyterLab/4.2.0"},
        },
    },
}
