"""Courses: people, sessions and seats, started, watched and ended together."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "courses",
    "Instructors give courses, whose servers start ahead of a session, and are watched and ended together.",
    needs=("messages", "seats"),
    hub=".hub:HUB",
)
