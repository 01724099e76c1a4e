"""A private Slurm of simulated GPU nodes and a hub in front of it; the tests use the same parts."""
