"""``gpuspawner sessions``: the records of the hub's sessions."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, JSON_VERSION, since
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.extension import FUNCTION, Fault, installed, load_each
from jupyterhub_gpuspawner.extensions.records.export import export as write
from jupyterhub_gpuspawner.extensions.records.export import read_key
from jupyterhub_gpuspawner.extensions.records.keeper import GPUSessions, records_file
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.extensions.records.report import report as page
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.hub.start.submission import forget_starts
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.site.database import DEFAULT, is_readable
from jupyterhub_gpuspawner.words import counted, duration, people

_SINCE = click.option(
    "--since", callback=since, metavar="TIME", help="Only sessions begun since then, such as 30d or 2026-03-02."
)
_COURSE = click.option("--course", default="", help="Only sessions of this course (its short name).")
DATABASE = click.option(
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
    path = database or records_file(str(load_site(config).config.JupyterHub.get("db_url", DEFAULT)))
    files = [path] if database is not None else [path, config.parent / path]
    return next(filter(is_readable, files), files[-1])


def _open(config: Path, database: Path | None) -> SessionStore:
    return SessionStore(file_of(config, database), create=False)


@sessions.command("list")
@_SINCE
@_COURSE
@click.option("--profile", default="", help="Only sessions of this profile.")
@click.option("--user", default="", help="Only sessions of this user.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document on each line, with its version.")
@DATABASE
@CONFIG
def list_sessions(
    *, since: float | None, course: str, profile: str, user: str, as_json: bool, database: Path | None, config: Path
) -> None:
    """List sessions, oldest first: who, when, what, how long it waited and ran, and why it ended."""
    any_listed = False
    with closing(_open(config, database)) as store:
        for record in store.sessions(since=since, course=course, profile=profile, username=user):
            any_listed = True
            click.echo(_json(record) if as_json else _line(record))
    if not any_listed:
        click.echo("There are no such sessions.", err=True)


def _json(record: SessionRecord) -> str:
    computed = {
        "wait_seconds": record.wait_seconds,
        "run_seconds": record.run_seconds,
        "gpu_seconds_held": record.gpu_seconds_held,
        "cause": record.cause.to_json() if record.cause is not None else None,
    }
    return json.dumps({"version": JSON_VERSION} | asdict(record) | computed)


def _line(record: SessionRecord) -> str:
    begun = datetime.fromtimestamp(record.begun_at).astimezone().strftime("%Y-%m-%d %H:%M")
    who = f"{record.username}/{record.servername}" if record.servername else record.username
    what = f"{record.gpus} x {record.gpu_model or 'GPU'}" if record.gpus else "no GPU"
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
@DATABASE
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

    Parquet needs the extra `records`. Names of servers and ids of jobs are not exported. The export is personal data:
    whoever can read Slurm's accounting finds whose the rows are.
    """
    path = file_of(config, database)
    with closing(_open(config, path)) as store:
        records = list(store.sessions(since=since, course=course))
    key_file = key or path.with_name("sessions.key")
    secret, new = read_key(key_file)
    if new:
        click.echo(f"Made the key of the pseudonyms, {key_file}: whoever has it can recognise names.", err=True)
    created_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    done = write(records, output, kind=kind, key=secret, group=min_group, created=created_at)
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
@DATABASE
@CONFIG
def report(*, output: Path, since: float | None, course: str, database: Path | None, config: Path) -> None:
    """Write a report with plots as one HTML file: waits, expected starts, use of GPUs, alignment, ends by cause.

    Waits and expected starts are by profile and by hour. It contains no names.
    """
    with closing(_open(config, database)) as store:
        records = [session for session in store.sessions(since=since, course=course) if session.ended_at is not None]
    title = f"Sessions of course {course}" if course else "Sessions"
    try:
        output.write_text(page(records, title=title, created=time.time()), "utf-8")
    except OSError as error:
        raise ConfigError(f"the report cannot be written: {error}.", where=str(output)) from error
    number = len({record.username for record in records})
    click.echo(f"{output}: {counted(len(records), 'session')} of {people(number)}.")


@sessions.command()
@click.argument("user")
@DATABASE
@CONFIG
def forget(*, user: str, database: Path | None, config: Path) -> None:
    """Delete all records of USER, so that nothing of them is left in the file, and USER's idle times and starts.

    Idle times and starts are in the hub's database. Exit code 1 if the file or the database cannot be reached; what the
    other one has is deleted all the same. Stop USER's servers before: without the record of its start, a job that the
    hub loses runs until its time limit. Files that were exported, event logs and backups are out of reach.
    """
    faults: list[GPUSpawnerError] = []
    for delete in (_forget_sessions, _forget_in_database):
        try:
            for what, number in delete(config, database, user).items():
                click.echo(f"{counted(number, what)} of {user} deleted.")
        except GPUSpawnerError as error:
            faults.append(error)
    for fault in faults[:-1]:
        click.echo(f"gpuspawner: {fault}", err=True)
    if faults:
        raise faults[-1]
    click.echo("Exported files, event logs and backups are out of reach.")


def _forget_sessions(config: Path, database: Path | None, user: str) -> dict[str, int]:
    """Delete them from the file of records, and return how many there were; none where no records are kept.

    Raises ConfigError and StoreError.
    """
    path = file_of(config, database)
    if database is None and not is_readable(path) and not GPUSessions(config=load_site(config).config).enabled:
        return {"session": 0}
    with closing(_open(config, path)) as store:
        return {"session": store.forget(user)}


def _forget_in_database(config: Path, _database: Path | None, user: str) -> dict[str, int]:
    """Delete idle times and starts from the hub's database, and return how many there were; raises ConfigError.

    What is known of nodes stays, without the user's name.
    """
    with load_site(config).database("idle times and starts cannot be deleted") as connection:
        faults, counts = list[Fault](), dict[str, int]()
        for extension, forget in load_each(installed(), lambda own: own.forget, faults.append, FUNCTION):
            try:
                counts |= forget(connection, user)
            except Exception as error:  # noqa: BLE001 - an extension's fault, and what the others keep is deleted
                faults.append(Fault(extension.name, f"its forget failed: {type(error).__name__}: {error}", error))
        counts |= {"start": forget_starts(connection, user)}
    if faults:
        raise ConfigError(f"not all of {user} was deleted: {faults[0]}")
    return counts
