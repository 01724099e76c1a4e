# A faculty: who may use what is said by groups of the directory, and the project by the sign-in
c = get_config()


def of_sign_in(spawner, auth_state):
    """The directory's attributes of the user."""
    if auth_state:
        spawner.req_account = auth_state.get("project", "faculty")
        spawner.environment["DEPARTMENT"] = auth_state.get("department", "none")


def before_spawn(spawner):
    """Members of staff may stay longer."""
    groups = {group.name for group in spawner.user.groups}
    if "staff" in groups:
        spawner.req_runtime = "2-00:00:00"
        spawner.req_options = "--nice=-1"


c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.enable_auth_state = False
c.Authenticator.manage_groups = True
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.Spawner.auth_state_hook = of_sign_in
c.Spawner.pre_spawn_hook = before_spawn
c.Spawner.group_overrides = {
    "1 students": {
        "groups": ["students"],
        "spawner_override": {"req_partition": "teaching", "req_runtime": "2:00:00", "req_memory": "4G"},
    },
    "2 vision": {
        "groups": ["vision"],
        "spawner_override": {"req_partition": "gpu", "req_gres": "gpu:rtx6000:1", "req_memory": "32G"},
    },
}
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.req_partition = "general"
c.SlurmSpawner.req_runtime = "8:00:00"
c.SlurmSpawner.req_memory = "8G"
c.SlurmSpawner.req_nprocs = "4"
c.SlurmSpawner.req_prologue = "module load faculty/jupyter"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=faculty
#SBATCH --partition={{partition}}
#SBATCH --account={{account}}
#SBATCH --time={{runtime}}
#SBATCH --mem={{memory}}
#SBATCH --cpus-per-task={{nprocs}}
#SBATCH --chdir={{homedir}}
#SBATCH --export={{keepvars}}
{% if gres %}#SBATCH --gres={{gres}}
{% endif %}{% if options %}#SBATCH {{options}}
{% endif %}
set -e
{{prologue}}
{{cmd}}
"""
