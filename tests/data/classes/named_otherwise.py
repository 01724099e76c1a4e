"""A class whose name says nothing, derived from another one of the site's, with settings of both."""

from batchspawner import SlurmSpawner


class ClusterServer(SlurmSpawner):
    pass


class HPCSpawner(ClusterServer):
    pass


c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.req_partition = "all"
c.ClusterServer.req_partition = "general"
c.ClusterServer.req_runtime = "1:00:00"
c.HPCSpawner.req_runtime = "2:00:00"
c.HPCSpawner.req_prologue = "module load anaconda"
c.ProfilesSpawner.profiles = [
    ("Small", "small", HPCSpawner, {"req_memory": "2G", "req_nprocs": "1"}),
    ("Plain", "plain", "batchspawner.SlurmSpawner", {}),
]
