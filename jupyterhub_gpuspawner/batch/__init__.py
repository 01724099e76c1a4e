"""The batch script as text."""
