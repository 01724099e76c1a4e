"""A private Slurm of simulated GPU nodes and a hub in front of it: ``gpuspawner demo``; the tests use the same parts."""
