"""A form, and a hook that makes requests of what it sent."""

LEVELS = {"cpu": ("cpu", "2G"), "gpu": ("gpu", "4G")}
def apply(spawner):
    partition, memory = LEVELS[spawner.user_options.get("profile", "cpu")]
    spawner.req_partition, spawner.req_memory = partition, memory
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_partition = "cpu"
c.SlurmSpawner.req_runtime = "2:00:00"
c.Spawner.options_form = '<select name="profile"><option>cpu</option><option>gpu</option></select>'
c.Spawner.options_from_form = lambda form: {"profile": form.get("profile", ["cpu"])[0]}
c.Spawner.pre_spawn_hook = apply
