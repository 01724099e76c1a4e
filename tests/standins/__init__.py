"""Stand-ins for hardware that a test machine lacks."""
