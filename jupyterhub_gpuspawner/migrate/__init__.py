"""Converts a hub's configuration for batchspawner, wrapspawner, moss or SlurmFormSpawner to one for this package."""
