# A university: a form of its own, and a hook that makes requests of what it sends
c = get_config()

SIZES = {
    "small": {"req_nprocs": "2", "req_memory": "8G", "req_runtime": "8:00:00"},
    "large": {"req_nprocs": "16", "req_memory": "128G", "req_runtime": "1-00:00:00"},
    "gpu": {"req_nprocs": "8", "req_memory": "64G", "req_runtime": "4:00:00", "req_gres": "gpu:1", "req_partition": "gpu"},
}
FORM = """
<label for="size">Size</label>
<select name="size">{sizes}</select>
<label for="account">Project</label>
<input name="account" value="{account}">
<label for="app">Application</label>
<select name="app"><option>lab</option><option>tree</option></select>
"""


def options_form(spawner):
    sizes = "".join(f'<option value="{name}">{name}</option>' for name in SIZES)
    return FORM.format(sizes=sizes, account=f"of-{spawner.user.name}")


def options_from_form(form):
    options = {name: values[0].strip() for name, values in form.items() if name != "_xsrf"}
    if options.get("size") not in SIZES:
        options["size"] = "small"
    return options


def before_spawn(spawner):
    options = spawner.user_options
    for name, value in SIZES[options.get("size", "small")].items():
        setattr(spawner, name, value)
    spawner.req_account = options.get("account", "")
    spawner.default_url = "/" + options.get("app", "lab")
    spawner.environment["SIZE"] = options.get("size", "small")
    if options.get("size") == "large":
        spawner.req_options = "--nice=10"


c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.Spawner.options_form = options_form
c.Spawner.options_from_form = options_from_form
c.Spawner.pre_spawn_hook = before_spawn
c.Spawner.start_timeout = 600
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.req_partition = "batch"
c.SlurmSpawner.req_srun = ""
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=jupyter-{{username}}
#SBATCH --output={{homedir}}/.jupyter-%j.log
#SBATCH --chdir={{homedir}}
#SBATCH --export={{keepvars}}
#SBATCH --partition={{partition}}
#SBATCH --cpus-per-task={{nprocs}}
#SBATCH --mem={{memory}}
#SBATCH --time={{runtime}}
{% if account %}#SBATCH --account={{account}}
{% endif %}{% if gres %}#SBATCH --gres={{gres}}
{% endif %}{% if options %}#SBATCH {{options}}
{% endif %}

set -euo pipefail
trap 'echo SIGTERM received' TERM
module purge
module load anaconda
{% if app == "lab" %}export JUPYTERLAB_DIR=/opt/lab
{% endif %}
{{prologue}}
{{cmd}}
{{epilogue}}
"""
