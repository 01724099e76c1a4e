"""``gpuspawner why`` and ``failures``: what became of somebody's last server, and why starts fail."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
from jupyterhub import orm
from sqlalchemy import select

from jupyterhub_gpuspawner.cli.options import CONFIG, JSON, printable, since
from jupyterhub_gpuspawner.cli.records import DATABASE, file_of
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub.job.ending import Ending, stored_ending, words_of
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED
from jupyterhub_gpuspawner.records.explanation import Explanation, explanation
from jupyterhub_gpuspawner.records.failures import FailingNode, Failures, failing_nodes, failures_of, start_failed
from jupyterhub_gpuspawner.records.record import SessionRecord
from jupyterhub_gpuspawner.records.store import SessionStore
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.wire.bounds import FAULTS
from jupyterhub_gpuspawner.words import counted, duration, people, some

VERSION = 1
"""Version of both commands' JSON."""
BEFORE_SECONDS = 7 * 86400.0
"""How far back `why` counts the person's other starts, and `failures` looks for what works."""


@dataclass(frozen=True)
class LastServer:
    """What is known of somebody's last server."""

    user: str
    server: str
    record: SessionRecord | None
    """None where the start failed before it had a record."""
    ending: Ending | None
    """As the hub keeps it until the next start; None where that has begun, or the hub's database cannot be read."""
    starts: int = 0
    """How many other starts of this person the last week had, and how many of these failed."""
    failed: int = 0

    @property
    def state(self) -> str:
        """``running``, ``starting``, ``failed`` (it did not start) or ``ended``."""
        if self.record is None or self.record.ended_at is not None:
            failed = start_failed(self.record) if self.record is not None else True
            return "failed" if failed else "ended"
        return "running" if self.record.ready_at is not None else "starting"

    @property
    def fault(self) -> str:
        """The class of the fault of a start that failed; empty otherwise."""
        cause = self.record.cause if self.record is not None else self.ending.cause if self.ending is not None else None
        return cause.fault if cause is not None else ""

    @property
    def job_id(self) -> str:
        """Slurm's job id; empty where there was none."""
        return self.record.job_id if self.record is not None else self.ending.job_id if self.ending is not None else ""

    @property
    def explanation(self) -> Explanation:
        """Why it did not start or ended, and what mends it; both may be empty."""
        record, ending = self.record, self.ending
        node, profile, subject = (record.node, record.profile, record.subject) if record is not None else ("", "", "")
        known = explanation(self.fault, subject=subject, node=node, profile=profile, job=self.job_id)
        sentence, fix = (known.sentence, known.fix) if self.state == "failed" else ("", "")
        if ending is not None:
            shown = words_of(ending, title=f"The server {self.server}" if self.server else "The server")
            at = f"{_clock(ending.at):%H:%M}" if ending.at is not None else "an unknown time"
            # what a job has reported says more than how it ended
            hint = shown.hint if self.fault not in FAULTS else ""
            sentence = " ".join(filter(None, (shown.sentence.replace("{time}", at), hint)))
        elif self.state == "starting":
            fix = f"`squeue --start -j {self.job_id}`" if self.job_id else ""
        elif record is not None and record.cause is not None and not sentence:
            sentence = f"{record.cause.kind.value.capitalize()}."
        return Explanation(sentence, fix)

    def to_json(self) -> dict[str, Any]:
        """The document of ``why --json``."""
        record, sentence = self.record, self.explanation
        facts: dict[str, Any] = {"begun_at": None, "profile": "", "course": "", "node": "", "gpus": None}
        facts |= {"gpu_model": "", "queue_seconds": None, "reasons": [], "ready_at": None, "ended_at": None}
        if record is not None:
            facts = {name: getattr(record, name) for name in facts}
        times = {name: _utc(at) for name, at in facts.items() if name.endswith("_at")}
        if record is None and self.ending is not None:
            times["ended_at"] = _utc(self.ending.at)
        cause = record.cause if record is not None else self.ending.cause if self.ending is not None else None
        log = {"log": self.ending.log, "lines": self.ending.lines} if self.ending is not None else {}
        return {
            "version": VERSION,
            "user": self.user,
            "server": self.server,
            "state": self.state,
            "job_id": self.job_id,
            **facts,
            "reasons": list(facts["reasons"]),
            **times,
            "cause": cause.to_json() if cause is not None else None,
            "sentence": sentence.sentence,
            "fix": sentence.fix,
            **({"log": "", "lines": ""} | log),
            "starts_before": self.starts,
            "failed_before": self.failed,
        }


@click.command()
@click.argument("user")
@click.option("--server", help="The server of this name; by default the last one, of whatever name.")
@JSON
@DATABASE
@CONFIG
def why(*, user: str, server: str | None, as_json: bool, database: Path | None, config: Path) -> None:
    """Say what happened to the last server of USER: how long it waited, where it ran, and why it ended.

    It reads the records of sessions and the hub's database; the hub need not run. For a start that failed, the cause is
    followed by what mends it and by the end of the job's log, as far as the hub may read it. Exit code 1: nothing is
    known of a server of USER.
    """
    records: list[SessionRecord] = []
    path = file_of(config, database)
    if path.is_file() or database is not None:
        with closing(SessionStore(path, create=False)) as store:
            records = list(store.sessions(username=user))
    last = last_server(user, records, _endings(config, user), now=time.time(), server=server)
    if last is None:
        which = f"a server {server} of {user}" if server else f"a server of {user}"
        raise ConfigError(
            f"nothing is known of {which}.",
            hint="The name is that of JupyterHub. A start that the form refused leaves no record.",
        )
    if as_json:
        click.echo(json.dumps(last.to_json(), indent=2))
        return
    click.echo("\n".join(map(printable, _lines(last, time.time()))))


def _endings(config: Path, user: str) -> Mapping[str, Ending]:
    """How the last server of each name ended; empty, with a line on stderr, where the hub's database cannot be read."""
    endings: dict[str, Ending] = {}
    query = select(orm.Spawner.name, orm.Spawner.state).join(orm.User).where(orm.User.name == user)
    try:
        with load_site(config).database("the hub's database cannot be read") as connection:
            for name, state in connection.execute(query, execution_options=NOT_CACHED):
                ending = stored_ending(state or {})
                if ending is not None:
                    endings[name] = ending
    except GPUSpawnerError as error:
        click.echo(f"Without the end of the log: {error}", err=True)
    return endings


def last_server(
    user: str, records: Sequence[SessionRecord], endings: Mapping[str, Ending], *, now: float, server: str | None = None
) -> LastServer | None:
    """The last server by the records, oldest first, and by the endings of servers by name; None if there was none."""
    records = [record for record in records if server in (None, record.servername)]
    record = records[-1] if records else None
    unrecorded = [
        (ending.at, name)
        for name, ending in endings.items()
        if server in (None, name) and ending.at is not None and not any(r.job_id == ending.job_id for r in records)
    ]
    last = max(unrecorded, default=None)
    if last is not None and (record is None or last[0] > (record.ended_at or now)):
        return LastServer(user, last[1], None, endings[last[1]])
    if record is None:
        return None
    ending = endings.get(record.servername)
    others = [other for other in records[:-1] if other.begun_at >= now - BEFORE_SECONDS]
    return LastServer(
        user,
        record.servername,
        record,
        ending if ending is not None and ending.job_id == record.job_id else None,
        len(others),
        sum(map(start_failed, others)),
    )


_STATES = {
    "running": "is running",
    "starting": "is starting",
    "failed": "did not start",
    "ended": "ran, and ended",
}


def _lines(last: LastServer, now: float) -> Iterator[str]:
    record, ending, shown = last.record, last.ending, last.explanation
    name = f"{last.user} (server {last.server})" if last.server else last.user
    job = f", job {last.job_id}" if last.job_id else ""
    profile = f", profile {record.profile}" if record is not None and record.profile else ""
    yield f"{name}: the last server {_STATES[last.state]}{profile}{job}"
    if record is not None:
        yield _line("asked for", f"{_clock(record.begun_at):%Y-%m-%d %H:%M}, {duration(now - record.begun_at)} ago")
        yield _line("waited", _waited(record, now))
        if record.node:
            gpus = f", {record.gpus} x {record.gpu_model}" if record.gpus else ""
            yield _line("ran on", f"{record.node}{gpus}{_for(record, now)}")
    at = record.ended_at if record is not None else ending.at if ending is not None else None
    if shown.sentence:
        yield _line("ended", f"{_clock(at):%H:%M}: {shown.sentence}" if at is not None else shown.sentence)
    if shown.fix:
        yield _line("to do", shown.fix)
    if ending is not None and ending.log:
        yield _line("log", ending.log)
    for line in ending.lines.splitlines() if ending is not None else ():
        yield _line("", f"| {line}")
    if last.starts:
        yield _line("before", f"{counted(last.starts, 'start')} in the last week, {last.failed} of them failed")


def _line(name: str, text: str) -> str:
    return f"  {name:<10} {text}"


def _waited(record: SessionRecord, now: float) -> str:
    """Such as ``2 min in Slurm's queue (Priority, Resources)``."""
    why_pending = f" ({', '.join(record.reasons)})" if record.reasons else ""
    if record.queue_seconds is not None:
        return f"{duration(record.queue_seconds)} in Slurm's queue{why_pending}"
    if record.submitted_at is None:
        return "not in Slurm's queue: there was no job"
    left_at = record.allocated_at or record.placed_at or record.ended_at
    waited = duration(max((left_at or now) - record.submitted_at, 0.0))
    return f"{'at most ' if record.node else ''}{waited} in Slurm's queue{why_pending}"


def _for(record: SessionRecord, now: float) -> str:
    if record.ready_at is None:
        return ""
    ended_at = record.ended_at
    return (
        f", for {duration(ended_at - record.ready_at)}"
        if ended_at is not None
        else (f", for {duration(now - record.ready_at)} until now")
    )


def _clock(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone()


def _utc(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")


# ``gpuspawner failures``.


@click.command()
@click.option(
    "--since",
    metavar="TIME",
    callback=since,
    default="1h",
    show_default=True,
    help="How far to look back: 90min, 12h, 7d, or a date.",
)
@click.option("--course", default="", help="Only starts of this course (its short name).")
@click.option("--profile", default="", help="Only starts of this profile.")
@JSON
@DATABASE
@CONFIG
def failures(*, since: float, course: str, profile: str, as_json: bool, database: Path | None, config: Path) -> None:
    """List starts that failed by cause and profile, with their nodes, and what mends each cause.

    Below them are the nodes on which the last starts failed, those of several people, with the command that drains
    them. The records of sessions are read; the hub need not run. `gpuspawner why USER` shows one of the starts.
    """
    with closing(SessionStore(file_of(config, database), create=False)) as store:
        records = list(store.sessions(since=since, course=course, profile=profile))
        known = list(store.sessions(since=min(since, time.time() - BEFORE_SECONDS)))
    groups = failures_of(records)
    nodes = [node for node in failing_nodes(known) if node.latest_at >= since]
    failed = sum(len(group.records) for group in groups)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "version": VERSION,
                    "since": _utc(since),
                    "starts": len(records),
                    "failed": failed,
                    "failures": [_group_document(group) for group in groups],
                    "nodes": [node.to_json() for node in nodes],
                },
                indent=2,
            )
        )
        return
    click.echo(f"{failed} of {counted(len(records), 'start')} failed since {_clock(since):%Y-%m-%d %H:%M}.")
    for line in (line for group in groups for line in _group_lines(group)):
        click.echo(printable(line))
    for line in _node_lines(nodes):
        click.echo(line)
    if failed:
        click.echo("\n`gpuspawner why USER` shows one of them, with the end of its log.")


def _explained(group: Failures) -> Explanation:
    nodes = list(group.nodes)
    node = nodes[0] if len(nodes) == 1 else "the nodes" if nodes else ""
    job = group.records[-1].job_id
    return explanation(group.fault, subject=group.subject, node=node, profile=group.profile, job=job)


def _group_lines(group: Failures) -> Iterator[str]:
    shown = _explained(group)
    yield ""
    yield f"{len(group.records)} x {shown.sentence} [{group.fault}]"
    nodes = (
        ", ".join(f"{node} ({number})" for node, number in group.nodes.items()) or "none, since no job had been placed"
    )
    yield _line("profile", group.profile or "not known")
    yield _line("nodes", nodes)
    yield _line("people", f"{some(group.people)}; the last one at {_clock(group.latest_at):%H:%M}")
    yield _line("to do", shown.fix)


def _node_lines(nodes: Sequence[FailingNode]) -> Iterator[str]:
    for node in nodes:
        yield ""
        yield f"node {node.node}: the last {len(node.records)} starts failed, of {people(len(node.people))}"
        yield _line("drain it", node.drain)
        yield _line("afterwards", node.resume)
        yield _line("or exclude", f"{node.exclude} in the profile")


def _group_document(group: Failures) -> dict[str, Any]:
    shown = _explained(group)
    return {
        "fault": group.fault,
        "subject": group.subject,
        "sentence": shown.sentence,
        "fix": shown.fix,
        "profile": group.profile,
        "nodes": group.nodes,
        "starts": len(group.records),
        "people": list(group.people),
        "latest_at": _utc(group.latest_at),
    }
