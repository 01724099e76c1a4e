"""Requests in the class, in two sections of its bases, and by a method."""

from batchspawner import SlurmSpawner
from traitlets import Unicode, default


class Base(SlurmSpawner):
    req_partition = Unicode("base").tag(config=True)
    req_nprocs = Unicode("2").tag(config=True)


class Server(Base):
    @default("req_runtime")
    def _hours(self):
        return "4:00:00"


c.JupyterHub.spawner_class = Server
c.Base.req_partition = "cpu"
c.BatchSpawnerBase.req_memory = "2G"
c.Server.req_gres = "gpu:a100:2"
