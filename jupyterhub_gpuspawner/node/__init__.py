"""What runs on the compute node, inside the job: standard library only, Python 3.9 or newer."""
