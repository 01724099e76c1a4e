"""Work in the background of the hub."""
