# A department's hub: profiles of wrapspawner, made in a loop, for jobs of batchspawner
import batchspawner
import wrapspawner
from jupyterhub.spawner import LocalProcessSpawner
from wrapspawner import ProfilesSpawner

c = get_config()
c.JupyterHub.spawner_class = ProfilesSpawner
c.JupyterHub.authenticator_class = "dummy"
c.Spawner.http_timeout = 120
c.Spawner.cmd = ["/sw/jupyter/bin/jupyterhub-singleuser"]

c.BatchSpawnerBase.req_runtime = "2:00:00"
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.req_partition = "short"
c.SlurmSpawner.req_qos = "interactive"
c.SlurmSpawner.req_epilogue = "rm -rf /scratch/$SLURM_JOB_ID"
c.SlurmSpawner.environment = {"SITE": "department"}
c.ProfilesSpawner.first_template = "selected"

profiles = [("On the hub", "local", LocalProcessSpawner, {})]
for gpus, hours in ((1, 8), (2, 4)):
    profiles.append(
        (
            f"{gpus} x A100, {hours} hours",
            f"a100-{gpus}",
            "batchspawner.SlurmSpawner",
            dict(
                req_partition="gpu",
                req_gres=f"gpu:a100:{gpus}",
                req_nprocs=str(8 * gpus),
                req_memory=f"{64 * gpus}G",
                req_runtime=f"{hours}:00:00",
                req_srun="",
                start_timeout=600,
            ),
        )
    )
profiles.append(
    (
        "Today's course",
        "course",
        "batchspawner.SlurmSpawner",
        dict(req_reservation="course", req_nprocs="2", req_prologue="module load python/3.12\n", default_url="/lab"),
    )
)
profiles.append(("In Docker", "docker", "dockerspawner.SystemUserSpawner", dict(container_image="course")))
c.ProfilesSpawner.profiles = profiles
