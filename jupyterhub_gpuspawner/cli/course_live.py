"""``gpuspawner course start|stop|message|extend|report``: a running course, through the hub's REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from jupyterhub_gpuspawner.cli.hub_api import HUB, hub_of, printable
from jupyterhub_gpuspawner.cli.options import fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXIT_REFUSED = 1
ONLY = click.option("--only", multiple=True, metavar="USER", help="For this participant alone; may be repeated.")


def _ask(address: str, method: str, name: str, action: str = "", body: Mapping[str, Any] | None = None) -> Any:
    """The document of an answer about course ``name``; raises GPUSpawnerError."""
    path = "/".join(filter(None, ("courses", quote(name, safe=""), action)))
    return hub_of(address).ask(method, path, body)


def _act(address: str, name: str, action: str, only: Sequence[str], **more: object) -> None:
    """Do an action and print what became of it for each person; exit code 1 where somebody is refused."""
    body = {**({"only": list(only)} if only else {}), **more}
    try:
        document = _ask(address, "POST", name, action, body)
    except GPUSpawnerError as error:
        fail(error)
    for outcome in document["outcomes"]:
        click.echo(printable(f"{outcome['result']:<9} {outcome['user']}: {outcome['sentence']}"))
    if any(outcome["result"] == "refused" for outcome in document["outcomes"]):
        raise SystemExit(EXIT_REFUSED)


@click.command()
@click.argument("name")
@ONLY
@click.option("--every", default=1.0, show_default=True, help="Seconds between two starts.")
@HUB
def start(*, name: str, only: tuple[str, ...], every: float, address: str) -> None:
    """Start the servers of the participants of course NAME; those that run already are left.

    The hub starts one after the other, not faster than its administrator allows, and goes on when this command has
    ended. The token in JUPYTERHUB_API_TOKEN must be an instructor's.
    """
    _act(address, name, "start", only, every=every)


@click.command()
@click.argument("name")
@ONLY
@HUB
def stop(*, name: str, only: tuple[str, ...], address: str) -> None:
    """Stop the servers of the participants of course NAME. Unsaved work is lost."""
    _act(address, name, "stop", only)


@click.command()
@click.argument("name")
@click.argument("text")
@ONLY
@HUB
def message(*, name: str, text: str, only: tuple[str, ...], address: str) -> None:
    """Show TEXT to the participants of course NAME on the hub's pages and in JupyterLab, until the session ends."""
    _act(address, name, "message", only, message=text)


@click.command()
@click.argument("name")
@click.option("--minutes", type=int, help="How much longer their servers may run. Default: as their profile says.")
@ONLY
@HUB
def extend(*, name: str, minutes: int | None, only: tuple[str, ...], address: str) -> None:
    """Give the running servers of the participants of course NAME more time."""
    _act(address, name, "extend", only, **({"minutes": minutes} if minutes is not None else {}))


@click.command()
@click.argument("name")
@ONLY
@HUB
def report(*, name: str, only: tuple[str, ...], address: str) -> None:
    """Print the state of each participant of course NAME, from what the hub knows now.

    LAST ACTIVE is when the person, or their server, was last active in JupyterHub. START says what became of the start
    that the hub made for this session, such as visited or unvisited; it is empty for those who start by themselves.
    The hub keeps no other history of a session.
    """
    try:
        document = _ask(address, "GET", name)
    except GPUSpawnerError as error:
        fail(error)
    course_of, people = document["course"], document["people"]
    session = course_of["session_now"]
    held = f"session {session['name']}" if session else "no session now"
    click.echo(printable(f"{course_of['name']}: {held}"))
    click.echo(", ".join(f"{number} {state}" for state, number in document["totals"].items()) or "nobody")
    for fault in course_of["faults"]:
        click.echo(printable(f"WRONG {fault}"))
    rows = [
        (
            person["user"],
            person["state"],
            person["stage"],
            person["node"],
            person["last_activity"] or "never",
            person["fault"],
        )
        for person in people
        if not only or person["user"] in only
    ]
    for line in columns((("USER", "STATE", "START", "NODE", "LAST ACTIVE", "FAULT"), *rows)):
        click.echo(line)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines with aligned columns."""
    clean = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in clean]


COMMANDS = (start, stop, message, extend, report)
