"""Checks of what the hub may run as its users."""
