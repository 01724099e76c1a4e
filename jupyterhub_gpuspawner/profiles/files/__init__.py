"""Profiles in YAML files, which others than the admin may write."""
