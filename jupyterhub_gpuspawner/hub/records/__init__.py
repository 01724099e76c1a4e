"""Keeps a record of each session of the hub's servers."""
