"""``gpuspawner idle``: whom the idle policy would have stopped, and how many GPU-hours that would have freed."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, fail
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.words import counted

if TYPE_CHECKING:
    from pathlib import Path

    from jupyterhub_gpuspawner.hub.idle import IdleTime

_UNITS = {"min": 60, "h": 3600, "d": 86400}
HEAD = ("user", "server", "profile", "job", "GPUs", "from", "to", "due", "action", "GPU-hours", "after due")


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> float:
    """``90min``, ``12h`` or ``7d`` in seconds."""
    match = re.fullmatch(r"([0-9]{1,5})(min|h|d)", value, re.ASCII)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a duration: use for example 90min, 12h or 7d")
    return float(int(match[1]) * _UNITS[match[2]])


@click.command()
@CONFIG
@click.option(
    "--since",
    metavar="DURATION",
    callback=_seconds,
    default="7d",
    show_default=True,
    help="How far to look back: 90min, 12h, 7d.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def idle(config: Path, *, since: float, as_json: bool) -> None:
    """List servers that were idle for as long as their profile allows, with the GPU-hours that they held unused.

    The hub's database is read; the hub need not run. `due` is when the policy would have stopped the server; with
    action `stop` it did. Exit code 1: the configuration or the database cannot be read.
    """
    try:
        idle_times = _times(config, time.time() - since)
    except ConfigError as error:
        fail(error)
    total, freed = sum(map(hours, idle_times)), sum(map(hours_after, idle_times))
    if as_json:
        servers = [_document(row) for row in idle_times]
        click.echo(
            json.dumps(
                {"version": 1, "gpu_hours": round(total, 2), "gpu_hours_after_due": round(freed, 2), "servers": servers}
            )
        )
        return
    if not idle_times:
        click.echo("No server was idle for as long as its profile allows.")
        return
    rows = [HEAD, *map(_row, idle_times)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    times = counted(len(idle_times), "time")
    click.echo(f"{times}, {total:.1f} GPU-hours unused, {freed:.1f} of them after the server was due.")


def _times(config: Path, since: float) -> list[IdleTime]:
    from sqlalchemy.exc import SQLAlchemyError

    from jupyterhub_gpuspawner.hub.idle import due_since
    from jupyterhub_gpuspawner.hub.site.database import DEFAULT, open_database
    from jupyterhub_gpuspawner.site.configuration import load_site

    hub = load_site(config).config.JupyterHub
    engine = open_database(str(hub.get("db_url", DEFAULT)), hub.get("db_kwargs", {}))
    try:
        with engine.connect() as connection:
            return list(due_since(connection, since))
    except SQLAlchemyError as error:
        text = str(error).partition("\n")[0]
        raise ConfigError(f"the database cannot be read: {text}", where="c.JupyterHub.db_url") from error
    finally:
        engine.dispose()


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
    def utc(at: float | None) -> str | None:
        return None if at is None else datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")

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
