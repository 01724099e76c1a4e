# An institute whose servers are containers: by the template with an image of each profile, or by the command
from batchspawner import SlurmSpawner
from traitlets import Unicode

c = get_config()


class ApptainerSpawner(SlurmSpawner):
    """Starts the server in an image."""

    req_image = Unicode("/images/base.sif").tag(config=True)
    req_binds = Unicode("/scratch").tag(config=True)
    batch_script = Unicode("""#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --partition={{partition}}
#SBATCH --time={{runtime}}
{% if memory %}#SBATCH --mem={{memory}}
{% endif %}{% if gres %}#SBATCH --gres={{gres}}
{% endif %}
#SBATCH --chdir={{homedir}}
export APPTAINER_CACHEDIR=$HOME/.apptainer
apptainer exec {% if gres %}--nv {% endif %}--bind {{binds}} {{image}} {{cmd}}
""").tag(config=True)


c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.req_runtime = "6:00:00"
c.ApptainerSpawner.req_binds = "/scratch,/data"
c.ProfilesSpawner.profiles = [
    ("Base", "base", ApptainerSpawner, {"req_partition": "cpu", "req_memory": "8G"}),
    (
        "PyTorch",
        "torch",
        ApptainerSpawner,
        {"req_partition": "gpu", "req_gres": "gpu:a100:1", "req_image": "/images/torch-2.4.sif"},
    ),
    (
        "R, by its command",
        "r",
        "batchspawner.SlurmSpawner",
        {
            "req_partition": "cpu",
            "cmd": ["apptainer", "exec", "--cleanenv", "/images/r.sif", "jupyterhub-singleuser"],
            "req_srun": "",
        },
    ),
]
