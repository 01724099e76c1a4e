"""The documents that hub and node exchange; standard library only."""
