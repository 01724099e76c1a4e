"""Classes with defaults of their own, as members of wrapspawner's tuples; each has a section, too."""

from batchspawner import SlurmSpawner
from traitlets import Unicode


class GpuSlurmSpawner(SlurmSpawner):
    req_partition = Unicode("gpu").tag(config=True)
    req_gres = Unicode("gpu:1").tag(config=True)


c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.GpuSlurmSpawner.req_memory = "8G"
c.ProfilesSpawner.profiles = [
    ("GPU", "gpu", GpuSlurmSpawner, {"req_nprocs": "4"}),
    ("CPU", "cpu", "batchspawner.SlurmSpawner", {"req_partition": "cpu", "req_nprocs": "2"}),
]
