"""``gpuspawner init``: a hub's first configuration and profiles, made from what Slurm says of its cluster."""
