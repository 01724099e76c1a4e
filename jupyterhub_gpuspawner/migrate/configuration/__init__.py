"""Reads a configuration of the older spawners, and edits its text."""
