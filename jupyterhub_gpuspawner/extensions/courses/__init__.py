"""Courses: people, sessions and seats, started, watched and ended together."""

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    "courses",
    "Instructors give courses, whose servers start ahead of a session, and are watched and ended together.",
    needs=("availability", "live_pages", "messages", "seats"),
    hub=".hub:HUB",
    spawner_settings=".settings:CourseSettings",
    profile_fields=".fields:FIELDS",
    commands={"course": Command(".cli:course", "Prepare a course, and run it.")},
    command_options={"check": ".checks:with_people", "show": ".site:with_courses"},
    checks=".checks",
    requests=".site:requests_of",
)
