# A hub in front of a remote supercomputer: commands go through ssh with certificates, the job opens a tunnel to the hub
import os
import sys

sys.path.append(os.path.dirname(__file__))
from sitespawner import TunnelSpawner

c.JupyterHub.ip = "0.0.0.0"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.authenticator_class = "dummy"

c.JupyterHub.spawner_class = TunnelSpawner
c.SlurmSpawner.req_nprocs = "2"
c.SlurmSpawner.req_queue = "compute"
c.SlurmSpawner.req_runtime = "12:00:00"
c.SlurmSpawner.req_memory = "4gb"
c.SlurmSpawner.req_host = "login.example.org"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name="jupyterhub"
#SBATCH --output="jupyterhub.%j.%N.out"
#SBATCH --partition={queue}
#SBATCH --nodes=1
###SBATCH --export=ALL
#SBATCH --time={runtime}
#SBATCH --export={keepvars}
#SBATCH --get-user-env=L
{other}

export PATH=/sw/anaconda/bin:$PATH
export PYTHONPATH=
ssh -o "StrictHostKeyChecking no" -i /sw/keys/tunnel -N -f -L 8081:localhost:8081 tunnel@hub.example.org
{cmd}
"""
c.SlurmSpawner.batch_submit_cmd = 'env X509_USER_PROXY="/tmp/cert.{username}" gsissh {username}@{host} sbatch'
c.SlurmSpawner.batch_query_cmd = "gsissh {username}@{host} squeue -h -j {job_id} -o '%T %B'"
c.SlurmSpawner.batch_cancel_cmd = "gsissh {username}@{host} scancel {job_id}"
c.SlurmSpawner.state_exechost_exp = r"\1.example.org"
c.SlurmSpawner.cmd = ["/sw/anaconda/bin/jupyterhub-singleuser"]
c.SlurmSpawner.start_timeout = 7200
c.SlurmSpawner.startup_poll_interval = 5.0
c.SlurmSpawner.http_timeout = 7200
