"""``gpuspawner sessions``: the records of the hub's sessions."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.words import counted, duration, people

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.records.record import SessionRecord
    from jupyterhub_gpuspawner.records.store import SessionStore

_UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_AGO = re.compile(r"([0-9]{1,4})([hdw])", re.ASCII)


def _since(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A time in seconds since the epoch: ``7d``, ``12h`` and ``4w`` ago, or a date."""
    if value is None:
        return None
    ago = _AGO.fullmatch(value)
    if ago is not None:
        return time.time() - int(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.strptime(value, "%Y-%m-%d").astimezone().timestamp()
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a time: use for example 12h, 30d, 4w or 2026-03-02.") from None


_SINCE = click.option(
    "--since", callback=_since, metavar="TIME", help="Only sessions begun since then, such as 30d or 2026-03-02."
)
_COURSE = click.option("--course", default="", help="Only sessions of this course (its short name).")
_DATABASE = click.option(
    "--database",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of the records; by default the one that the configuration names.",
)


@click.group()
def sessions() -> None:
    """Read, export and delete the records of sessions."""


def file_of(config: Path, database: Path | None) -> Path:
    """The file of the records; raises ConfigError.

    A relative path in a configuration is relative to the hub's working directory. If it is not below the present one,
    it is taken to be below the configuration's folder, in which most hubs are started.
    """
    from traitlets import TraitError

    from jupyterhub_gpuspawner.errors import ConfigError
    from jupyterhub_gpuspawner.hub.records.keeper import GPUSessions
    from jupyterhub_gpuspawner.hub.site.database import DEFAULT
    from jupyterhub_gpuspawner.site.configuration import load_site

    if database is not None:
        return database
    site = load_site(config)
    try:
        path = GPUSessions(config=site.config).file(str(site.config.JupyterHub.get("db_url", DEFAULT)))
    except TraitError as error:
        raise ConfigError(str(error)) from error
    return path if path.is_file() else config.parent / path


def _open(config: Path, database: Path | None) -> SessionStore:
    from jupyterhub_gpuspawner.records.store import SessionStore

    return SessionStore(file_of(config, database), create=False)


@sessions.command("list")
@_SINCE
@_COURSE
@click.option("--profile", default="", help="Only sessions of this profile.")
@click.option("--user", default="", help="Only sessions of this user.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object on each line.")
@_DATABASE
@CONFIG
def list_sessions(
    *, since: float | None, course: str, profile: str, user: str, as_json: bool, database: Path | None, config: Path
) -> None:
    """List sessions, oldest first: who, when, what, how long it waited and ran, and why it ended."""
    try:
        with closing(_open(config, database)) as store:
            any_listed = False
            for record in store.sessions(since=since, course=course, profile=profile, username=user):
                any_listed = True
                click.echo(_json(record) if as_json else _line(record))
        if not any_listed:
            click.echo("There are no such sessions.", err=True)
    except GPUSpawnerError as error:
        fail(error)


def _json(record: SessionRecord) -> str:
    computed = {
        "wait_seconds": record.wait_seconds,
        "run_seconds": record.run_seconds,
        "gpu_seconds_held": record.gpu_seconds_held,
        "cause": record.cause.to_json() if record.cause is not None else None,
    }
    return json.dumps(asdict(record) | computed)


def _line(record: SessionRecord) -> str:
    begun = datetime.fromtimestamp(record.begun_at).astimezone().strftime("%Y-%m-%d %H:%M")
    who = f"{record.username}/{record.servername}" if record.servername else record.username
    what = f"{record.gpus} x {record.gpu_model}" if record.gpus else "no GPU"
    waited = f"waited {duration(record.wait_seconds)}" if record.wait_seconds is not None else "not ready"
    ran = f"ran {duration(record.run_seconds)}" if record.run_seconds is not None else ""
    ended = record.cause.kind.value if record.cause is not None else "under way"
    fault = f" ({record.cause.fault})" if record.cause is not None and record.cause.fault else ""
    parts = (begun, who, record.profile, record.node, what, waited, ran, f"{ended}{fault}")
    return "  ".join(filter(None, parts))


@sessions.command()
@click.option(
    "--output", "-o", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to."
)
@click.option(
    "--format", "kind", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True, help="Of the table."
)
@_SINCE
@_COURSE
@click.option(
    "--min-group",
    default=5,
    show_default=True,
    type=click.IntRange(min=1),
    help="Fewest people with the same published time, profile, hardware and cause; what is rarer is made coarser.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the key of the pseudonyms; by default sessions.key beside the records. It is made if missing.",
)
@_DATABASE
@CONFIG
def export(
    *,
    output: Path,
    kind: str,
    since: float | None,
    course: str,
    min_group: int,
    key: Path | None,
    database: Path | None,
    config: Path,
) -> None:
    """Export sessions that have ended, with pseudonyms, as a table with datapackage.json.

    Parquet needs the extra `records`. Names of servers and ids of jobs are not exported. The export is personal data.
    """
    from jupyterhub_gpuspawner.records.export import export as write
    from jupyterhub_gpuspawner.records.export import read_key

    try:
        path = file_of(config, database)
        with closing(_open(config, path)) as store:
            records = list(store.sessions(since=since, course=course))
        key_file = key or path.with_name("sessions.key")
        secret, new = read_key(key_file)
        if new:
            click.echo(f"Made the key of the pseudonyms, {key_file}: whoever has it can recognise names.", err=True)
        created_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        done = write(records, output, kind=kind, key=secret, group=min_group, created=created_at)
    except GPUSpawnerError as error:
        fail(error)
    rows = counted(done.rows, "session")
    click.echo(f"{rows} in {output}: {done.coarser} of them coarser, and {done.left_out} left out.")


@sessions.command()
@click.option(
    "--output",
    "-o",
    default="sessions.html",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The HTML file to write.",
)
@_SINCE
@_COURSE
@_DATABASE
@CONFIG
def report(*, output: Path, since: float | None, course: str, database: Path | None, config: Path) -> None:
    """Write a report with plots as one HTML file: waits by profile and hour, use of GPUs, alignment, ends by cause.

    It contains no names.
    """
    from jupyterhub_gpuspawner.errors import ConfigError
    from jupyterhub_gpuspawner.records.report import report as page

    try:
        with closing(_open(config, database)) as store:
            records = [
                session for session in store.sessions(since=since, course=course) if session.ended_at is not None
            ]
        title = f"Sessions of course {course}" if course else "Sessions"
        try:
            output.write_text(page(records, title=title, created=time.time()), "utf-8")
        except OSError as error:
            raise ConfigError(f"the report cannot be written: {error}.", where=str(output)) from error
    except GPUSpawnerError as error:
        fail(error)
    number = len({record.username for record in records})
    click.echo(f"{output}: {counted(len(records), 'session')} of {people(number)}.")


@sessions.command()
@click.argument("user")
@_DATABASE
@CONFIG
def forget(*, user: str, database: Path | None, config: Path) -> None:
    """Delete all records of USER, so that nothing of them is left in the file, and USER's idle times.

    Idle times are in the hub's database. Exit code 1 if one of both cannot be deleted; the other is all the same. Files
    that were exported, event logs and backups are out of reach.
    """
    faults: list[GPUSpawnerError] = []
    for what, delete in (("session", _forget_sessions), ("idle time", _forget_idle_times)):
        try:
            click.echo(f"{counted(delete(config, database, user), what)} of {user} deleted.")
        except GPUSpawnerError as error:
            faults.append(error)
    for fault in faults[:-1]:
        click.echo(f"gpuspawner: {fault}", err=True)
    if faults:
        fail(faults[-1])
    click.echo("Exported files, event logs and backups are out of reach.")


def _forget_sessions(config: Path, database: Path | None, user: str) -> int:
    """Delete them from the file of records, and return how many there were; 0 where no records are kept.

    Raises ConfigError and StoreError.
    """
    from jupyterhub_gpuspawner.hub.records.keeper import GPUSessions
    from jupyterhub_gpuspawner.site.configuration import load_site

    path = file_of(config, database)
    if database is None and not path.is_file() and not GPUSessions(config=load_site(config).config).enabled:
        return 0
    with closing(_open(config, path)) as store:
        return store.forget(user)


def _forget_idle_times(config: Path, _database: Path | None, user: str) -> int:
    """Delete them from the hub's database, and return how many there were; raises ConfigError."""
    from sqlalchemy.exc import SQLAlchemyError

    from jupyterhub_gpuspawner.errors import ConfigError
    from jupyterhub_gpuspawner.hub.idle import forget_user
    from jupyterhub_gpuspawner.hub.site.database import DEFAULT, open_database
    from jupyterhub_gpuspawner.site.configuration import load_site

    hub = load_site(config).config.JupyterHub
    engine = open_database(str(hub.get("db_url", DEFAULT)), hub.get("db_kwargs", {}))
    try:
        with engine.connect() as connection:
            return forget_user(connection, user)
    except SQLAlchemyError as error:
        text = str(error).partition("\n")[0]
        raise ConfigError(f"idle times cannot be deleted: {text}", where="c.JupyterHub.db_url") from error
    finally:
        engine.dispose()
