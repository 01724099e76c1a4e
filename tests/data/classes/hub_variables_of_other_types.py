"""The same of the class of a hub without profiles."""

from batchspawner import SlurmSpawner
from traitlets import Bool, Dict, Integer, List, Unicode


class Typed(SlurmSpawner):
    req_env = Dict({"A": "1", "B": "x y"}).tag(config=True)
    req_modules = List(["cuda", "git"]).tag(config=True)
    req_gpus = Integer(2).tag(config=True)
    req_setup = Unicode("umask 077\nulimit -c 0").tag(config=True)
    req_quiet = Bool(False).tag(config=True)
    batch_script = Unicode(
        """#!/bin/bash
#SBATCH --job-name=typed
#SBATCH --partition={{partition}}
#SBATCH --chdir={{homedir}}
#SBATCH --gres=gpu:{{gpus * 2}}
{{setup}}
{% for name, value in env.items() %}export {{name}}="{{value}}"
{% endfor %}
{% for module in modules %}module load {{module}}
{% endfor %}
echo {{ env | length }} {{ modules | join(",") }}
{% if quiet %}exec 2>/dev/null{% endif %}
{{cmd}}
"""
    ).tag(config=True)


c.JupyterHub.spawner_class = Typed
c.Typed.req_modules = ["anaconda", "git"]
c.Typed.req_partition = "p"
