"""What every page says while Slurm does not respond; ``{time}`` is the time of its last answer."""

from __future__ import annotations

SILENT = "Slurm is not responding at the moment. This is as of {time}."
NEVER = "Slurm has not responded to this hub yet."


def silence(*, since_the_start: bool, more: str = "") -> str:
    """The sentence, followed by what holds on this page; ``since_the_start``: there has been no answer yet."""
    return f"{NEVER if since_the_start else SILENT} {more}".strip()
