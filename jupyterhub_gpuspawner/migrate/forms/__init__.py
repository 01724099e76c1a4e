"""Converts the spawners that have a form of their own: its fields become options of profiles."""
