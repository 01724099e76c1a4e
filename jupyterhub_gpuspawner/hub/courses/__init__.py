"""Courses in a running hub: who is on them, what their instructors may do, and their servers."""
