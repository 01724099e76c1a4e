"""Two classes with two sets of values, one of them by methods for defaults."""

from batchspawner import SlurmSpawner
from traitlets import Unicode, default


class Short(SlurmSpawner):
    req_runtime = Unicode("0:30:00").tag(config=True)
    req_partition = Unicode("debug").tag(config=True)


class Long(SlurmSpawner):
    @default("req_runtime")
    def _days(self):
        return "2-00:00:00"

    def _req_partition_default(self):
        return "long"


c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.BatchSpawnerBase.req_nprocs = "2"
c.Short.req_memory = "1G"
c.Long.req_memory = "64G"
c.ProfilesSpawner.profiles = [("Short", "short", Short, {}), ("Long", "long", Long, {})]
