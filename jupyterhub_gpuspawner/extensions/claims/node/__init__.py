"""What runs on the compute node: standard library only, Python 3.9 or newer."""
