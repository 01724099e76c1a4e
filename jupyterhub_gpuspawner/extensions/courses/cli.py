"""``gpuspawner course``: prepare a course, and run it through the hub's REST API."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from jupyterhub_gpuspawner.cli.hub_api import ADDRESS, HUB, hub_base, hub_of
from jupyterhub_gpuspawner.cli.options import CONFIG, JSON, JSON_VERSION, printable, table
from jupyterhub_gpuspawner.extensions.courses.course import calendar as calendar_of
from jupyterhub_gpuspawner.extensions.courses.course_profile import participants_link
from jupyterhub_gpuspawner.extensions.courses.real_rehearsal import Causes, probed, real_rehearsal
from jupyterhub_gpuspawner.extensions.courses.rehearsal import PersonsAnswer
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport, check_document
from jupyterhub_gpuspawner.extensions.courses.site import Checked, address_of, check_courses, courses_of
from jupyterhub_gpuspawner.extensions.courses.site import rehearse as rehearsed
from jupyterhub_gpuspawner.site.configuration import Site, load_site
from jupyterhub_gpuspawner.words import people

EXIT_WRONG = 1
EXIT_NOT_COUNTED = 4
"""Everybody fits, as far as that could be counted."""
_SOON = 120.0
"""Seconds after its beginning at which a session still counts as begun."""


@click.group()
def course() -> None:
    """Prepare a course, and run it."""


@course.command()
@click.argument("name", required=False)
@click.option("--session", default="", help="Check one session alone: its date, such as 2026-03-02.")
@click.option("--all", "past", is_flag=True, help="Check sessions that have ended, too.")
@JSON
@CONFIG
def check(*, name: str | None, session: str, past: bool, as_json: bool, config: Path) -> None:
    """Count the seats of each session of course NAME, and list what would go wrong; without NAME, of every course.

    Slurm is asked as each participant whether it would take their job: each question takes one of its job numbers.

    Exit code 0: everybody fits in each session; 1: not, or the course's file is wrong; 3: Slurm does not answer; 4:
    everybody fits, but what limits them could not all be counted, such as those of accounts that Slurm does not show.
    """
    if session and name is None:
        raise click.UsageError("--session needs the name of a course.")
    checked = asyncio.run(check_courses(load_site(config), name or "", session, past=past))
    if as_json:
        documents = [asdict(check_document(file.slug, file.reports, file.fault)) for file in checked]
        click.echo(
            json.dumps({"version": JSON_VERSION, "courses": documents} if name is None else documents[0], indent=2)
        )
    else:
        click.echo("\n".join(line for report in checked for line in _lines(report, named=name is None)))
    if not all(report.is_valid for report in checked):
        raise SystemExit(EXIT_WRONG)
    if any(report.not_counted for file in checked for report in file.reports):
        raise SystemExit(EXIT_NOT_COUNTED)


@course.command()
@click.argument("name")
@click.option("--session", default="", help="The session's date, such as 2026-03-02. Default: the next one.")
@click.option("--only", multiple=True, metavar="USER", help="Ask for this participant alone; may be repeated.")
@click.option("--every", default=0.5, show_default=True, help="Seconds between two questions to Slurm.")
@click.option("--real", is_flag=True, help="Submit a short job for each participant, and look at the node as they do.")
@click.option(
    "--nodes", is_flag=True, help="With --real: one job on each node of each profile, as the first participant."
)
@click.option(
    "--at-once",
    "concurrency",
    default=4,
    show_default=True,
    help="With --real: jobs at a time.",
    type=click.IntRange(1, 50),
)
@click.option("--yes", is_flag=True, help="With --real: submit the jobs without a question.")
@CONFIG
def rehearse(
    *,
    name: str,
    session: str,
    only: tuple[str, ...],
    every: float,
    real: bool,
    nodes: bool,
    concurrency: int,
    yes: bool,
    config: Path,
) -> None:
    """Ask Slurm for each participant of course NAME, as that user, whether and when their server would start.

    Nothing is submitted, except with --real: then a short job for each participant, at the lowest priority, says
    whether home folder, environment, materials, GPU and the ways to the hub are in order; a table at the end has the
    causes. It says first what it costs, and asks. Like `check --submit` it submits as the hub does.

    Without --real, Slurm is asked as if each of them started a server as soon as the session's may be started. Each
    question takes one of Slurm's job numbers.
    One question knows nothing of the others, so without --only the last line says how many fit together, as `check`
    counts them. Exit code 0: each one would start with the session, and all fit together; 1: not; 4: they do, as far as
    it could be counted.
    """
    if real:
        _rehearse_real(load_site(config), name, session, only, nodes=nodes, concurrency=concurrency, yes=yes)
        return
    if nodes or yes:
        raise click.UsageError("--nodes and --yes need --real.")

    async def ask() -> int:
        all_start = True
        planned, answers, together = await rehearsed(load_site(config), name, session, only=only, every=every)
        async for answer in answers:
            late = answer.starts_at is None or answer.starts_at > max(planned.start.timestamp(), time.time()) + _SOON
            all_start = all_start and not late
            click.echo(_answered(answer, late=late))
        if together is None:
            return 0 if all_start else EXIT_WRONG
        fit, wanted = together.fit, together.wanted
        more = f"; `gpuspawner course check {name}` says what is missing" if fit < wanted else ""
        head = "ok   " if fit >= wanted else "WRONG"
        click.echo(f"{head} together: {fit} of {people(wanted)} fit{together.provisos}{more}")
        for text in together.not_counted:
            click.echo(f"note  {text}")
        return EXIT_WRONG if not all_start or fit < wanted else EXIT_NOT_COUNTED if together.not_counted else 0

    if code := asyncio.run(ask()):
        raise SystemExit(code)


def _rehearse_real(
    site: Site, name: str, session: str, only: Sequence[str], *, nodes: bool, concurrency: int, yes: bool
) -> None:
    rehearsal = asyncio.run(real_rehearsal(site, name, session, only=only, nodes=nodes))
    for reservation in rehearsal.later_reservations:
        click.echo(f"Reservation {reservation} has not begun: the jobs run on nodes outside it.")
    click.echo(rehearsal.cost(concurrency))
    if not yes:
        click.confirm("Submit them?", abort=True)
    causes = Causes()

    async def run() -> None:
        async for done in probed(rehearsal, concurrency=concurrency):
            causes.add(done)
            click.echo(f"{'WRONG' if done.faults else 'ok   '} {done}")

    asyncio.run(run())
    click.echo()
    for line in causes.table():
        click.echo(line)
    if causes.faults:
        raise SystemExit(EXIT_WRONG)


def _answered(answer: PersonsAnswer, *, late: bool) -> str:
    head = "WRONG" if late else "ok   "
    if answer.starts_at is None:
        return f"{head} {answer.user}: {answer.refusal}"
    return (
        f"{head} {answer.user}: would start {datetime.fromtimestamp(answer.starts_at).astimezone():%Y-%m-%d %H:%M %Z}"
    )


@course.command()
@click.argument("name")
@CONFIG
def calendar(*, name: str, config: Path) -> None:
    """Print the sessions of course NAME as iCalendar, for a file that calendars import.

    An event keeps its identity when its times change, so that importing the file again moves it.
    """
    site = load_site(config)
    _, course = courses_of(site).named(name)
    hub, now = site.spawner("nobody").hub_name, datetime.now(timezone.utc)
    click.echo(calendar_of(name, course, hub=hub, now=now), nl=False)


@course.command()
@click.argument("name")
@click.option("--hub", default="", metavar="URL", help=f"{ADDRESS} Default: c.JupyterHub.public_url.")
@CONFIG
def link(*, name: str, hub: str, config: Path) -> None:
    """Print the link that participants of course NAME open: the form with the course selected, then its materials.

    Without --hub, and without c.JupyterHub.public_url, it is a path. Whether nbgitpuller is installed where the servers
    run cannot be seen from here.
    """
    site = load_site(config)
    _, course = courses_of(site).named(name)
    click.echo(participants_link(name, course, f"{hub_base(hub)}/hub/" if hub else address_of(site)))


def _lines(checked: Checked, *, named: bool) -> Iterator[str]:
    if named and checked.slug:
        yield f"{checked.slug}:"
    if checked.fault is not None:
        yield f"WRONG {checked.fault}"
    elif not checked.reports:
        yield "ok    no session from now on"
    everywhere = _in_every(checked.reports)
    if everywhere:
        yield "WRONG in every session:"
        yield from map(_indented, everywhere)
    for report in checked.reports:
        yield from _printed(report, everywhere)
    hints = (hint for report in checked.reports for hint in report.hints if hint.kind != "seats")
    for hint in dict.fromkeys(hint.text for hint in hints):
        yield textwrap.fill(f"Note: {hint}", _width(), subsequent_indent=" " * 6)


def _in_every(reports: Sequence[SessionReport]) -> list[str]:
    """What is wrong in each of several sessions, so that it is printed once."""
    if len(reports) < 2:
        return []
    texts = [[problem.text for problem in report.problems] for report in reports]
    return [text for text in texts[0] if all(text in others for others in texts)]


def _printed(report: SessionReport, everywhere: Collection[str]) -> Iterator[str]:
    begin, end = report.session.start, report.session.end
    head = "ok   " if report.fits else "WRONG"
    yield f"{head} {begin:%a %Y-%m-%d %H:%M}-{end:%H:%M %Z}: {people(report.wanted)}, {report.fit_in_words}"
    yield from (_indented(problem.text) for problem in report.problems if problem.text not in everywhere)
    yield from (_indented(hint.text) for hint in report.hints if hint.kind == "seats")


def _indented(text: str) -> str:
    return textwrap.fill(text, _width(), initial_indent=" " * 6, subsequent_indent=" " * 6)


def _width() -> int:
    """That of the terminal; programs read each sentence on a line of its own."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize


# A running course, through the hub's REST API.

ONLY = click.option("--only", multiple=True, metavar="USER", help="For this participant alone; may be repeated.")


def _ask(address: str, method: str, name: str, action: str = "", body: Mapping[str, Any] | None = None) -> Any:
    """The document of an answer about course ``name``; raises GPUSpawnerError."""
    path = "/".join(filter(None, ("courses", quote(name, safe=""), action)))
    return hub_of(address).ask(method, path, body)


def _act(address: str, name: str, action: str, only: Sequence[str], **more: object) -> None:
    """Do an action and print what became of it for each person; exit code 1 where somebody is refused."""
    body = {**({"only": list(only)} if only else {}), **more}
    document = _ask(address, "POST", name, action, body)
    for outcome in document["outcomes"]:
        click.echo(printable(f"{outcome['result']:<9} {outcome['user']}: {outcome['sentence']}"))
    if any(outcome["result"] == "refused" for outcome in document["outcomes"]):
        raise SystemExit(EXIT_WRONG)


@course.command()
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


@course.command()
@click.argument("name")
@ONLY
@HUB
def stop(*, name: str, only: tuple[str, ...], address: str) -> None:
    """Stop the servers of the participants of course NAME. Unsaved work is lost."""
    _act(address, name, "stop", only)


@course.command()
@click.argument("name")
@click.argument("text")
@ONLY
@HUB
def message(*, name: str, text: str, only: tuple[str, ...], address: str) -> None:
    """Show TEXT to the participants of course NAME on the hub's pages and in JupyterLab, until the session ends."""
    _act(address, name, "message", only, message=text)


@course.command()
@click.argument("name")
@click.option("--minutes", type=int, help="How much longer their servers may run. Default: as their profile says.")
@ONLY
@HUB
def extend(*, name: str, minutes: int | None, only: tuple[str, ...], address: str) -> None:
    """Give the running servers of the participants of course NAME more time."""
    _act(address, name, "extend", only, **({"minutes": minutes} if minutes is not None else {}))


@course.command()
@click.argument("name")
@ONLY
@HUB
def report(*, name: str, only: tuple[str, ...], address: str) -> None:
    """Print the state of each participant of course NAME, from what the hub knows now.

    LAST ACTIVE is when the person, or their server, was last active in JupyterHub. START says what became of the start
    that the hub made for this session, such as visited or unvisited; it is empty for those who start by themselves.
    The hub keeps no other history of a session.
    """
    document = _ask(address, "GET", name)
    course_of, participants = document["course"], document["people"]
    session = course_of["session_now"]
    held = f"session {session['name']}" if session else "no session now"
    click.echo(printable(f"{course_of['name']}: {held}"))
    click.echo(", ".join(f"{number} {state}" for state, number in document["totals"].items()) or "nobody")
    for fault in course_of["faults"]:
        click.echo(printable(f"WRONG {fault}"))
    rows = [("USER", "STATE", "START", "NODE", "LAST ACTIVE", "FAULT")]
    for person in participants:
        if not only or person["user"] in only:
            active = _local(person["last_activity"]) if person["last_activity"] else "never"
            rows.append((person["user"], person["state"], person["stage"], person["node"], active, person["fault"]))
    click.echo(table(rows))


def _local(moment: str) -> str:
    """A time of a document as people read it, in the zone of this machine."""
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"
