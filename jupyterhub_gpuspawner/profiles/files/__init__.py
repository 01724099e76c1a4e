"""Profiles in YAML files, which people other than the admin may write."""
