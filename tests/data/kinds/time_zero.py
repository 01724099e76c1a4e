"""No time limit, as sbatch writes it."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_runtime = "0"   # sbatch: no time limit
c.SlurmSpawner.req_memory = "8G"
