"""Profiles, user options, and how they become a job request."""
