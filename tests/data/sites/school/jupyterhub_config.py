# A summer school: a reservation for a week, materials copied into each home, and a test server beside the jobs
c = get_config()
PROLOGUE = """
if [ ! -d "$HOME/school" ]; then
    cp -r /shared/school "$HOME/" 2>/dev/null || mkdir "$HOME/school"
fi
cd "$HOME/school"
module load school/2024
"""
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.JupyterHub.load_groups = {"tutors": {"users": []}}
c.Spawner.http_timeout = 120
c.Spawner.notebook_dir = "~/school"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.start_timeout = 300
c.SlurmSpawner.req_prologue = PROLOGUE
c.SlurmSpawner.req_account = "school"
c.SlurmSpawner.req_partition = "gpu"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --account={account}
#SBATCH --reservation={reservation}
#SBATCH --time={runtime}
#SBATCH --mem={memory}
#SBATCH --cpus-per-task={nprocs}
#SBATCH --gres={gres}
#SBATCH --output={homedir}/school-%j.log
#SBATCH --job-name=school
#SBATCH --workdir={homedir}
#SBATCH --oversubscribe
{prologue}
which jupyterhub-singleuser
{cmd}
"""
c.ProfilesSpawner.profiles = [
    (
        "Lectures: 2 cores",
        "lectures",
        "batchspawner.SlurmSpawner",
        dict(req_partition="cpu", req_nprocs="2", req_memory="4gb", req_runtime="4:00:00", req_reservation="school"),
    ),
    (
        "Exercises: a seventh of an A100",
        "exercises",
        "batchspawner.SlurmSpawner",
        dict(req_gres="gpu:1g.10gb:1", req_nprocs="4", req_memory="16000", req_runtime="0-6", req_reservation="school_gpu"),
    ),
    (
        "Projects: an A100",
        "projects",
        "batchspawner.SlurmSpawner",
        dict(req_gres="gpu:a100:1", req_nprocs="16", req_memory="120G", req_runtime="12:00:00", req_reservation="school_gpu"),
    ),
    ("Test server", "local", "jupyterhub.spawner.LocalProcessSpawner", {"ip": "127.0.0.1"}),
]
