"""Background tasks of the hub."""
