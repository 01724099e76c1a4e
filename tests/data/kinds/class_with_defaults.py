"""A class with requests of its own, one of them a plain attribute, beside batchspawner's."""

from batchspawner import SlurmSpawner
from traitlets import Unicode
class GpuSlurmSpawner(SlurmSpawner):
    req_partition = Unicode("gpu").tag(config=True)
    req_gres = Unicode("gpu:1").tag(config=True)
    req_runtime = "4:00:00"
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.GpuSlurmSpawner.req_memory = "8G"
c.ProfilesSpawner.profiles = [
    ("GPU", "g", GpuSlurmSpawner, {"req_nprocs": "4"}),
    ("CPU", "c", "batchspawner.SlurmSpawner", {"req_partition": "cpu", "req_nprocs": "2"}),
]
