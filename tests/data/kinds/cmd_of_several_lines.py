"""A command that is several lines of the shell."""

c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.ProfilesSpawner.profiles = [("10 h", "a", "batchspawner.SlurmSpawner", {"req_partition": "main", "req_memory": "2200", "req_runtime": "0-10",
    "cmd": "unset XDG_RUNTIME_DIR\nsh /site/tree.sh\n/site/bin/python -E -s /site/bin/jupyterhub-singleuser"})]
