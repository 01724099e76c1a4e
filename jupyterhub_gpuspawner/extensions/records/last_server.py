"""What became of somebody's last server, by the records of sessions and by what the hub keeps of its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jupyterhub_gpuspawner.extensions.records.explanation import Explanation, explanation
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.slurm.commands import COMMAND
from jupyterhub_gpuspawner.wire.bounds import FAULTS

BEFORE_SECONDS = 7 * 86400.0
"""How far back other starts count, of the person or on a node."""


@dataclass(frozen=True)
class LastServer:
    """The last server of a person."""

    record: SessionRecord
    """Of a start that failed before it had one, what is known of it by its end; then it names no session."""
    ending: Ending | None
    """As the hub keeps it until the next start; None where that has begun, or the hub's database cannot be read."""
    starts: int = 0
    """How many other starts of this person there were within :data:`BEFORE_SECONDS`."""
    failed: int = 0
    """How many of these failed."""
    waits: str = ""
    """What its job waits for, as Slurm says now, in a sentence; empty where it was not asked, or that is not known."""
    slurm: str = COMMAND
    """How a command of Slurm's is typed for the server's cluster."""

    @property
    def state(self) -> str:
        """``running``, ``starting``, ``failed`` (it did not start) or ``ended``."""
        record = self.record
        if record.ended_at is not None:
            return "failed" if record.start_failed or not record.session else "ended"
        return "running" if record.ready_at is not None else "starting"

    @property
    def explanation(self) -> Explanation:
        """Why it did not start or ended, and what to do; both may be empty."""
        record, cause, ending, fix = self.record, self.record.cause, self.ending, ""
        if self.state == "failed":
            facts = {"subject": record.subject, "node": record.node, "profile": record.profile, "job": record.job_id}
            explained = explanation(cause.fault if cause is not None else "", **facts, slurm=self.slurm)
            if ending is None:
                return explained
            fix = explained.fix
        if ending is not None:
            return Explanation(self._in_words(ending), fix)
        if self.state == "starting":
            squeue = self.slurm.replace(COMMAND, "squeue")
            return Explanation(self.waits, f"`{squeue} --start -j {record.job_id}`" if record.job_id else "")
        return Explanation(f"{cause.kind.value.capitalize()}." if cause is not None else "", "")

    def _in_words(self, ending: Ending) -> str:
        """What its user reads of its end, with what an admin should know."""
        record = self.record
        shown = words_of(ending, title=f"The server {record.servername}" if record.servername else "The server")
        at = f"{parse_time(ending.at):%H:%M}" if ending.at is not None else "an unknown time"
        # what a job has reported says more than how it ended
        hint = shown.hint if record.cause is None or record.cause.fault not in FAULTS else ""
        return " ".join(filter(None, (shown.sentence.replace("{time}", at), hint)))


def last_server(
    user: str,
    records: Sequence[SessionRecord],
    endings: Mapping[str, Ending],
    *,
    now: float,
    server: str | None = None,
    commands: Mapping[str, str] = MappingProxyType({}),
) -> LastServer | None:
    """The last server by the records, oldest first, and by the endings of servers by name; None if there was none.

    With ``server`` only those of this name count. ``now`` in seconds since the epoch; ``commands`` is how a command of
    Slurm's is typed for each cluster that is not this machine's own.
    """
    records = [record for record in records if server in (None, record.servername)]
    record = records[-1] if records else None
    recorded = {(record.servername, record.job_id) for record in records}
    unrecorded = [
        (ending.at, name)
        for name, ending in endings.items()
        if server in (None, name) and ending.at is not None and (name, ending.job_id) not in recorded
    ]
    last = max(unrecorded, default=None)
    if last is not None and (record is None or last[0] > (record.ended_at or now)):
        at, name = last
        ending = endings[name]
        return LastServer(SessionRecord("", user, name, ending.job_id, ended_at=at, cause=ending.cause), ending)
    if record is None:
        return None
    own = endings.get(record.servername)
    others = [other for other in records[:-1] if other.begun_at >= now - BEFORE_SECONDS]
    return LastServer(
        record,
        own if own is not None and own.job_id == record.job_id else None,
        len(others),
        sum(other.start_failed for other in others),
        slurm=commands.get(record.cluster, COMMAND),
    )
