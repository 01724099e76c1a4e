"""What travels to the nodes."""
