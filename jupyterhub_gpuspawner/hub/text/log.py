"""The page of a server's log."""

from __future__ import annotations

LOG_PATH = "Full log on the cluster"
LOG_EMPTY = "The log is empty, or the hub cannot read it."
LOG_UNKNOWN = "The log was not found: Slurm is not responding, or no longer has a record of the job."
DOWNLOAD = "Download"
REFRESH = "Refresh"
HOME = "Home"


def log_of(server: str) -> str:
    """The page's heading; ``server`` is the heading of the server's card."""
    return f"Log: {server}"


def last_lines(number: int) -> str:
    """How much of the log is shown."""
    return "Last line" if number == 1 else f"Last {number:,} lines"
