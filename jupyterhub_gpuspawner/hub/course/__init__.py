"""Courses in a running hub: people, rights, what instructors do, starts ahead, the page, and REST."""
