"""What runs on the compute node, inside the job: standard library only (pynvml if it is there), Python 3.9 or newer."""
