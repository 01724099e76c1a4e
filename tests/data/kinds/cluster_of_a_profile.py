"""A profile on a cluster that only the query names."""

c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.batch_query_cmd = "squeue -M {cluster} -h -j {job_id} -o '%T %B'"
c.ProfilesSpawner.profiles = [("Teach", "t", "batchspawner.SlurmSpawner", {"req_runtime": "3:00:00", "req_cluster": "teach", "req_partition": "gpu", "req_options": "-c 2 --gres=gpu:1"})]
