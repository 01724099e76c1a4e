"""Giving a running server more time."""
