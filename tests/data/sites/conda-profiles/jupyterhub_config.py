# A bioinformatics group: an environment of conda for each profile
c = get_config()
CONDA = "/opt/miniforge"


def activated(name):
    """Lines of a prologue."""
    return f"source {CONDA}/etc/profile.d/conda.sh\nset +u\nconda activate {name}\nset -u"


c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.Spawner.environment = {"GROUP": "bio"}
c.Spawner.args = ["--ServerApp.root_dir=~", "--debug"]
c.SlurmSpawner.exec_prefix = "sudo -E -u {username}"
c.SlurmSpawner.req_partition = "bio"
c.SlurmSpawner.req_epilogue = "conda deactivate"
c.SlurmSpawner.req_keepvars_extra = "CONDA_PKGS_DIRS"
c.ProfilesSpawner.profiles = [
    ("Base", "base", "batchspawner.SlurmSpawner", {"req_prologue": activated("base"), "req_memory": "4G"}),
    (
        "scanpy",
        "scanpy",
        "batchspawner.SlurmSpawner",
        {"req_prologue": activated("scanpy"), "req_memory": "32G", "req_nprocs": "8", "req_runtime": "12:00:00"},
    ),
    (
        "Environment of its own Jupyter",
        "own",
        "batchspawner.SlurmSpawner",
        {
            "cmd": [f"{CONDA}/envs/lab/bin/jupyterhub-singleuser"],
            "batchspawner_singleuser_cmd": f"{CONDA}/envs/lab/bin/batchspawner-singleuser",
            "req_epilogue": "",
            "req_qos": "short",
            "environment": {"OWN": "1"},
        },
    ),
]
