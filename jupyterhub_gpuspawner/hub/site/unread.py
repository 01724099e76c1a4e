"""Records of Slurm's answers that were not understood: each is counted and named in the log once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traitlets.log import get_logger

from jupyterhub_gpuspawner.hub.site import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.cluster.snapshot import Unread

NAMED = 5
"""Records that one line of the log names."""
REMEMBERED = 10_000
"""Records that are remembered as told of: as many as Slurm keeps jobs, unless configured (MaxJobCount)."""


class UnreadRecords:
    """What a :class:`SlurmClient` reports, for one hub. A job's id and a field's name are logged, never its text."""

    def __init__(self) -> None:
        self._told: dict[Unread, None] = {}

    def report(self, unread: Sequence[Unread]) -> None:
        """Take in the records of one answer: one line for those that are new."""
        new = [each for each in dict.fromkeys(unread) if each not in self._told]
        self._told.update(dict.fromkeys(new))
        while len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        for each in new:
            metrics.unread_record(each.kind)
        if new:
            named = ", ".join(_named(each) for each in new[:NAMED])
            more = f" and {len(new) - NAMED} more" if len(new) > NAMED else ""
            get_logger().warning(
                "Slurm's answer is not understood for %s%s; the rest of the answer counts.", named, more
            )


def _named(unread: Unread) -> str:
    name = f"{unread.kind} {unread.name[:80]!r}" if unread.kind != "job" else f"job {unread.name or 'without an id'}"
    return f"{name} (field {unread.field or 'unknown'})"
