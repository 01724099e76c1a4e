"""``gpuspawner-run``: one program on all nodes and GPUs of the server's job, as a job step."""
