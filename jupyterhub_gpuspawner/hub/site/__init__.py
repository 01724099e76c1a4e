"""What all servers of a hub share."""
