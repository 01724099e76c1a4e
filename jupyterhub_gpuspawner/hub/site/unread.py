"""Count and log the records of Slurm's answers that were not understood, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.site import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.cluster.snapshot import Unread

NAMED = 5
"""Records that are named in one line of the log."""
REMEMBERED = 10_000
"""Records that are remembered as logged: as many as Slurm keeps jobs by default (MaxJobCount)."""


class UnreadRecords:
    """Takes what a :class:`SlurmClient` reports. Logs the names of records and fields, never a field's text."""

    def __init__(self) -> None:
        self._logged: dict[Unread, None] = {}

    def report(self, unread: Sequence[Unread]) -> None:
        """Count the new ones among the records of one answer, and log them in one line."""
        new = [each for each in dict.fromkeys(unread) if each not in self._logged]
        self._logged.update(dict.fromkeys(new))
        while len(self._logged) > REMEMBERED:
            del self._logged[next(iter(self._logged))]
        for each in new:
            metrics.unread_record(each.kind)
        if new:
            named = ", ".join(_named(each) for each in new[:NAMED])
            more = f" and {len(new) - NAMED} more" if len(new) > NAMED else ""
            get_logger().warning(
                "Slurm's answer was not understood for %s%s; the rest of the answer is used.", named, more
            )


def _named(unread: Unread) -> str:
    name = f"{unread.kind} {unread.name[:80]!r}" if unread.kind != "job" else f"job {unread.name or 'without an id'}"
    return f"{name} (field {unread.field or 'unknown'})"
