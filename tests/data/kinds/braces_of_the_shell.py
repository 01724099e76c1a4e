"""Braces of the shell in a template of str.format, doubled."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.req_partition = "cpu"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --partition={partition}
export JUPYTER_RUNTIME_DIR=/tmp/${{HOME}}x
{cmd}
"""
