"""The demo's course: four participants, an instructor, and a session that is on when the demo starts."""

from __future__ import annotations

from datetime import datetime, timedelta

SLUG = "deep-learning"
"""Its name on the command line and in addresses."""
_TEXT = """\
# A course of the demo. The file is read again when you change it.
name: Deep learning in practice
instructors: teacher
roster: student[1-4]
profile: {profile}
sessions:
  - {{date: {today}, from: "{begin}", to: "{end}"}}
  - {{date: {tomorrow}, from: "9:00", to: "12:00"}}
message: Today we train a first network. Ask in the chat if your server does not start.
"""


def course_file(now: datetime, *, with_slurm: bool) -> str:
    """The text of its file: a session from the last full hour for three hours, or until midnight."""
    last = now.hour + 3
    return _TEXT.format(
        profile="{slug: mig, cpus: 2, memory: 8G}" if with_slurm else "local",
        today=now.date().isoformat(),
        begin=f"{now.hour}:00",
        end=f"{last}:00" if last < 24 else "23:59",
        tomorrow=(now + timedelta(days=1)).date().isoformat(),
    )
