"""Courses: who takes part, when, with which profile, and whether everybody fits. Pure."""
