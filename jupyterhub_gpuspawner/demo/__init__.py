"""A private Slurm of simulated GPU nodes with a hub, for the demo and the tests."""
