"""Generating the batch script."""
