"""A wrapper of one class, with its settings, as the options spawner is one."""

from wrapspawner import WrapSpawner
from traitlets import List
class OptionsFormSpawner(WrapSpawner):
    form_fields = List([]).tag(config=True)
c.JupyterHub.spawner_class = OptionsFormSpawner
c.OptionsFormSpawner.child_class = "batchspawner.SlurmSpawner"
c.OptionsFormSpawner.child_config = {"req_partition": "debug", "req_nprocs": "2", "req_memory": "4gb", "req_runtime": "2:00:00"}
c.OptionsFormSpawner.form_fields = []
