"""A class whose name does not end as batchspawner's, in a tuple of wrapspawner's."""

from batchspawner import SlurmSpawner
class HPCSpawner(SlurmSpawner):
    pass
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.HPCSpawner.req_partition = "general"
c.HPCSpawner.req_prologue = "module load anaconda"
c.ProfilesSpawner.profiles = [("Small", "small", HPCSpawner, {"req_memory": "2G", "req_nprocs": "1"})]
