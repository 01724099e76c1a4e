"""``gpuspawner idle``: whom the idle policy would have stopped, and how many GPU-hours that would have freed."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, JSON, JSON_VERSION, since, table
from jupyterhub_gpuspawner.extensions.idle.times import IdleTime, due_since
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.estimate import utc
from jupyterhub_gpuspawner.words import counted

HEAD = ("user", "server", "profile", "job", "GPUs", "from", "to", "due", "action", "GPU-hours", "after due")


@click.command()
@CONFIG
@click.option(
    "--since",
    metavar="DURATION",
    callback=since,
    default="7d",
    show_default=True,
    help="How far to look back: 90min, 12h, 7d.",
)
@JSON
def idle(config: Path, *, since: float, as_json: bool) -> None:
    """List servers that were idle for as long as their profile allows, with the GPU-hours that they held unused.

    The hub's database is read; the hub need not run. `due` is when the policy would have stopped the server; with
    action `stop` it did. Exit code 1: the configuration or the database cannot be read.
    """
    with load_site(config).database("the database cannot be read") as connection:
        idle_times = list(due_since(connection, since))
    total, freed = sum(map(hours, idle_times)), sum(map(hours_after, idle_times))
    if as_json:
        servers = [_document(row) for row in idle_times]
        click.echo(
            json.dumps(
                {
                    "version": JSON_VERSION,
                    "gpu_hours": round(total, 2),
                    "gpu_hours_after_due": round(freed, 2),
                    "servers": servers,
                }
            )
        )
        return
    if not idle_times:
        click.echo("No server was idle for as long as its profile allows.")
        return
    click.echo(table([HEAD, *map(_row, idle_times)]))
    times = counted(len(idle_times), "time")
    click.echo(f"{times}, {total:.1f} GPU-hours unused, {freed:.1f} of them after the server was due.")


def hours(row: IdleTime) -> float:
    """GPU-hours of the whole time without use."""
    return row.gpus * (row.seen - row.since) / 3600


def hours_after(row: IdleTime) -> float:
    """GPU-hours after the server was due."""
    return row.gpus * max(0.0, row.seen - (row.due_at or row.seen)) / 3600


def _row(row: IdleTime) -> tuple[str, ...]:
    counts = (f"{hours(row):.1f}", f"{hours_after(row):.1f}")
    times = [_clock(at) for at in (row.since, row.seen, row.due_at or row.seen)]
    done = "stopped" if row.stopped else row.action
    return (row.user, row.server or "-", row.profile or "-", row.job_id, str(row.gpus), *times, done, *counts)


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, timezone.utc).astimezone():%Y-%m-%d %H:%M}"


def _document(row: IdleTime) -> dict[str, Any]:
    return {
        "user": row.user,
        "server": row.server,
        "profile": row.profile,
        "job_id": row.job_id,
        "gpus": row.gpus,
        "from": utc(row.since),
        "to": utc(row.seen),
        "due_at": utc(row.due_at),
        "action": row.action,
        "told_at": utc(row.told_at),
        "keeps": row.keeps,
        "stopped": row.stopped,
        "most": row.most,
        "held_mib": row.held_mib,
        "gpu_hours": round(hours(row), 2),
        "gpu_hours_after_due": round(hours_after(row), 2),
    }
