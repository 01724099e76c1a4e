"""``gpuspawner why`` and ``failures``: what became of somebody's last server, and why starts fail."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from jupyterhub import orm
from sqlalchemy import select

from jupyterhub_gpuspawner.cli.options import CONFIG, JSON, JSON_VERSION, printable, since
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.extensions.records.cli import DATABASE, file_of
from jupyterhub_gpuspawner.extensions.records.failures import (
    FailingNode,
    Failures,
    failing_nodes,
    failures_of,
    never_started,
    slurm_commands,
)
from jupyterhub_gpuspawner.extensions.records.last_server import BEFORE_SECONDS, LastServer, last_server
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord, on_clusters
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.hub.job.ending import Ending, stored_ending
from jupyterhub_gpuspawner.hub.site.database import NOT_CACHED
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.site.database import is_readable
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.estimate import utc
from jupyterhub_gpuspawner.slurm.gpu_model import device_model
from jupyterhub_gpuspawner.slurm.job import Phase, job_words
from jupyterhub_gpuspawner.words import counted, duration, people, some


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
    path, commands = file_of(config, database), _commands(config)
    if is_readable(path) or database is not None:
        with closing(SessionStore(path, create=False)) as store:
            records = on_clusters(store.sessions(username=user), next(iter(commands), ""))
    endings = _endings(config, user)
    last = last_server(user, records, endings, now=time.time(), server=server, commands=commands)
    if last is None:
        which = f"a server {server} of {user}" if server else f"a server of {user}"
        raise ConfigError(
            f"nothing is known of {which}.",
            hint="The name is that of JupyterHub. A start that the form refused leaves no record; one that is kept "
            "until Slurm answers has none yet, but a line in the hub's log.",
        )
    if last.state == "starting" and last.record.job_id:
        with suppress(GPUSpawnerError):  # `gpuspawner check` says why
            spawner = load_site(config).spawner(user, cluster=last.record.cluster)
            last = replace(last, waits=asyncio.run(_waits(spawner.connection().client, last.record.job_id)))
    if as_json:
        click.echo(json.dumps(_document(last), indent=2))
        return
    on = _on(commands, last.record.cluster)
    click.echo("\n".join(map(printable, _lines(last, time.time(), on))))


async def _waits(client: SlurmClient, job_id: str) -> str:
    """What a pending job waits for, in a sentence; empty for one that is not."""
    job = await client.job(job_id)
    if job is None or job.phase is not Phase.QUEUED:
        return ""
    return job_words(job, out=(await client.snapshot()).out_of_service(job)).sentence


def _commands(config: Path) -> Mapping[str, str]:
    """How a command of Slurm's is typed for each cluster; empty in a hub that names none, or cannot be read."""
    try:
        return slurm_commands(load_site(config).spawner("somebody"))
    except GPUSpawnerError:  # `gpuspawner check` says why
        return {}


def _on(clusters: Collection[str], cluster: str) -> str:
    """Such as `` on cedar``, where that tells one cluster from another."""
    return f" on {cluster}" if cluster and {*clusters} != {cluster} else ""


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


def _document(last: LastServer) -> dict[str, Any]:
    record, ending, explained = last.record, last.ending, last.explanation
    return {
        "version": JSON_VERSION,
        "user": record.username,
        "server": record.servername,
        "state": last.state,
        "job_id": record.job_id,
        **({"cluster": record.cluster} if record.cluster else {}),
        **{name: getattr(record, name) for name in _OF_RECORD},
        "begun_at": utc(record.begun_at) if record.session else None,
        "ready_at": utc(record.ready_at),
        "ended_at": utc(record.ended_at),
        "cause": record.cause.to_json() if record.cause is not None else None,
        "sentence": explained.sentence,
        "fix": explained.fix,
        "log": ending.log if ending is not None else "",
        "lines": ending.lines if ending is not None else "",
        "starts_before": last.starts,
        "failed_before": last.failed,
    }


_OF_RECORD = ("begun_at", "profile", "course", "node", "gpus", "gpu_model", "queue_seconds", "reasons")
_STATES = {
    "running": "is running",
    "starting": "is starting",
    "failed": "did not start",
    "ended": "ran, and ended",
}


def _lines(last: LastServer, now: float, on: str) -> Iterator[str]:
    """What became of a server; ``on`` names its cluster where there are several."""
    record, ending, shown = last.record, last.ending, last.explanation
    name = f"{record.username} (server {record.servername})" if record.servername else record.username
    job = f", job {record.job_id}" if record.job_id else ""
    profile = f", profile {record.profile}" if record.profile else ""
    yield f"{name}: the last server {_STATES[last.state]}{profile}{job}{on}"
    if record.session:
        yield _line("asked for", f"{parse_time(record.begun_at):%Y-%m-%d %H:%M}, {duration(now - record.begun_at)} ago")
        yield _line("waited", _waited(record, now))
        if record.node:
            gpus = f", {record.gpus} x {device_model(record.gpu_model)}" if record.gpus else ""
            yield _line("ran on", f"{record.node}{on}{gpus}{_for(record, now)}")
    if shown.sentence:
        at = f"{parse_time(record.ended_at):%H:%M}: " if record.ended_at is not None else ""
        yield _line("now" if last.state == "starting" else "ended", f"{at}{shown.sentence}")
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
    waited = duration(max((left_at or now) - record.submitted_at, 1.0))
    return f"{'at most ' if record.node else ''}{waited} in Slurm's queue{why_pending}"


def _for(record: SessionRecord, now: float) -> str:
    if record.ready_at is None:
        return ""
    if record.ended_at is None:
        return f", for {duration(now - record.ready_at)} until now"
    return f", for {duration(record.ended_at - record.ready_at)}"


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
    """List starts that failed by cluster, cause and profile, with their nodes, and what mends each cause.

    Below them are the nodes on which the last starts failed, those of several people, with the command that drains
    them; a start of a profile that works nowhere does not count against its node. The records of sessions are read; the
    hub need not run. `gpuspawner why USER` shows one of the starts.
    """
    commands = _commands(config)
    first = next(iter(commands), "")
    with closing(SessionStore(file_of(config, database), create=False)) as store:
        records = on_clusters(store.sessions(since=since, course=course, profile=profile), first)
        # a node is at fault only where its profiles have worked: the starts that say so may be older
        recent = on_clusters(store.sessions(since=min(since, time.time() - BEFORE_SECONDS)), first)
    groups = failures_of(records, commands)
    nodes = [node for node in failing_nodes(recent, commands) if node.latest_at >= since]
    never = never_started(recent)
    failed = sum(len(group.records) for group in groups)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "version": JSON_VERSION,
                    "since": utc(since),
                    "starts": len(records),
                    "failed": failed,
                    "failures": [_group_document(group) for group in groups],
                    "nodes": [node.to_json() for node in nodes],
                },
                indent=2,
            )
        )
        return
    click.echo(f"{failed} of {counted(len(records), 'start')} failed since {parse_time(since):%Y-%m-%d %H:%M}.")
    for group in groups:
        untried = (group.cluster, group.profile) in never
        for line in _group_lines(group, _on(commands, group.cluster), untried=untried):
            click.echo(printable(line))
    for node in nodes:
        for line in _node_lines(node, _on(commands, node.cluster)):
            click.echo(line)
    if failed:
        click.echo("\n`gpuspawner why USER` shows one of them, with the end of its log.")


def _group_lines(group: Failures, on: str, *, untried: bool) -> Iterator[str]:
    shown = group.explanation
    yield ""
    yield f"{len(group.records)} x {shown.sentence} [{group.fault}]"
    nodes = (
        ", ".join(f"{node} ({number})" for node, number in group.nodes.items()) or "none, since no job had been placed"
    )
    yield _line("profile", f"{group.profile or 'not known'}{on}")
    yield _line("nodes", nodes)
    yield _line("people", f"{some(group.people)}; the last one at {parse_time(group.latest_at):%H:%M}")
    if untried:
        yield _line("perhaps", "the profile: no server of it has started yet")
    yield _line("to do", shown.fix)


def _node_lines(node: FailingNode, on: str) -> Iterator[str]:
    yield ""
    yield f"node {node.node}{on}: the last {len(node.records)} starts failed, of {people(len(node.people))}"
    yield _line("drain it", node.drain)
    yield _line("afterwards", node.resume)
    yield _line("or exclude", f"{node.exclude} in the profile")
    if node.doubt:
        yield _line("but first", node.doubt)


def _group_document(group: Failures) -> dict[str, Any]:
    shown = group.explanation
    return {
        **({"cluster": group.cluster} if group.cluster else {}),
        "fault": group.fault,
        "subject": group.subject,
        "sentence": shown.sentence,
        "fix": shown.fix,
        "profile": group.profile,
        "nodes": group.nodes,
        "starts": len(group.records),
        "people": list(group.people),
        "latest_at": utc(group.latest_at),
    }
