"""What runs on the compute node."""
