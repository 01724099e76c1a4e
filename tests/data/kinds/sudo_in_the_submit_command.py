"""Who runs sbatch, where it is, and options of the job, all in the command line."""

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.exec_prefix = ""
c.SlurmSpawner.batch_submit_cmd = "sudo -E -u {username} /opt/slurm/bin/sbatch --parsable --gres=gpu:1 --account=proj -p gpu"
c.SlurmSpawner.batch_query_cmd = "/opt/slurm/bin/squeue -h -j {job_id} -o '%T %B'"
c.SlurmSpawner.batch_cancel_cmd = "sudo -E -u {username} /opt/slurm/bin/scancel {job_id}"
c.SlurmSpawner.req_nprocs = "2"
