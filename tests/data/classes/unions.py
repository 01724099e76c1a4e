"""Settings of other types than batchspawner's: numbers, and a text or a function."""

from batchspawner import SlurmSpawner
from traitlets import Callable, Integer, Unicode, Union


class Typed(SlurmSpawner):
    req_nprocs = Integer(4).tag(config=True)
    req_memory = Union([Unicode(), Callable()], default_value="4G").tag(config=True)
    req_partition = Union([Unicode(), Callable()], default_value="none").tag(config=True)


c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.Typed.req_partition = "typed"
c.ProfilesSpawner.profiles = [("Typed", "typed", Typed, {}), ("More", "more", Typed, {"req_nprocs": 8})]
