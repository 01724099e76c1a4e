"""A template that cleans up at its end."""

c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={{partition}}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
{{cmd}}
"""
c.ProfilesSpawner.profiles = [("CPU", "cpu", "batchspawner.SlurmSpawner", {"req_partition": "cpu"})]
