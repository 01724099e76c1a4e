"""Settings in profiles that batchspawner's class does not have."""

c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.ProfilesSpawner.profiles = [
    ("One node", "one", "batchspawner.SlurmSpawner", {"req_nodes": "1", "req_cores": "2", "req_precmd": "/site/spark.sh",
     "req_culltime": 3900, "req_partition": "main", "req_memory": "4G", "req_runtime": "0:30:00"}),
    ("Other", "other", "batchspawner.SlurmSpawner", {"req_partition": "main", "req_memory": "8G"}),
]
