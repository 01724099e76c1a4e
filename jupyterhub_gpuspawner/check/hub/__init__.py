"""Checks of the hub's own settings, files and surroundings."""
