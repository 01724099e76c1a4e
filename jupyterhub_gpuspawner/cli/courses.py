"""``gpuspawner course``: check a course before it begins."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
import time
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.words import people

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from jupyterhub_gpuspawner.courses.report import SessionReport
    from jupyterhub_gpuspawner.site.courses import Checked, Rehearsed

EXIT_NOT_FIT = 1
_SOON = 120.0
"""Seconds after its beginning at which a session still counts as begun."""


@click.group()
def course() -> None:
    """Prepare a course, and run it."""


@course.command()
@click.argument("name", required=False)
@click.option("--session", default="", help="Check one session alone: its date, such as 2026-03-02.")
@click.option("--all", "past", is_flag=True, help="Check sessions that have ended, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@CONFIG
def check(*, name: str | None, session: str, past: bool, as_json: bool, config: Path) -> None:
    """Count the seats of each session of course NAME, and list what would go wrong; without NAME, of every course.

    Exit code 0: everybody fits in each session; 1: not, or the course's file is wrong; 3: Slurm does not answer.
    """
    from jupyterhub_gpuspawner.courses.report import check_document
    from jupyterhub_gpuspawner.site.configuration import load_site
    from jupyterhub_gpuspawner.site.courses import check_courses, check_named_course

    if session and name is None:
        raise click.UsageError("--session needs the name of a course.")
    try:
        site = load_site(config)
        if name is not None:
            checked = [asyncio.run(check_named_course(site, name, session, past=past))]
        else:
            checked = list(asyncio.run(check_courses(site, past=past)))
    except GPUSpawnerError as error:
        fail(error)
    if as_json:
        faults = [None if file.fault is None else str(file.fault) for file in checked]
        documents = [
            asdict(check_document(file.slug, file.reports, fault)) for file, fault in zip(checked, faults, strict=True)
        ]
        click.echo(json.dumps({"courses": documents} if name is None else documents[0], indent=2))
    else:
        click.echo("\n".join(line for report in checked for line in _lines(report, named=name is None)))
    if not all(report.is_valid for report in checked):
        raise SystemExit(EXIT_NOT_FIT)


@course.command()
@click.argument("name")
@click.option("--session", default="", help="The session's date, such as 2026-03-02. Default: the next one.")
@click.option("--only", multiple=True, metavar="USER", help="Ask for this participant alone; may be repeated.")
@click.option("--every", default=0.5, show_default=True, help="Seconds between two questions to Slurm.")
@CONFIG
def rehearse(*, name: str, session: str, only: tuple[str, ...], every: float, config: Path) -> None:
    """Ask Slurm for each participant of course NAME, as that user, whether and when their server would start.

    Nothing is submitted. Slurm is asked as if each of them started a server as soon as the session's may be started.
    One question knows nothing of the others, so without --only the last line says how many fit together, as `check`
    counts them. Exit code 0: each one would start with the session, and all fit together; 1: not.
    """
    from jupyterhub_gpuspawner.site.configuration import load_site
    from jupyterhub_gpuspawner.site.courses import rehearse as questions

    async def ask() -> bool:
        all_start = True
        rehearsal = await questions(load_site(config), name, session, only=only, every=every)
        begin, together = rehearsal.session.start.timestamp(), rehearsal.together
        async for answer in rehearsal.answers:
            late = answer.starts_at is None or answer.starts_at > max(begin, time.time()) + _SOON
            all_start = all_start and not late
            click.echo(_answered(answer, late=late))
        if together is None:
            return all_start
        fit, wanted = together.fit, together.seats.wanted
        more = f"; `gpuspawner course check {name}` says what is missing" if fit < wanted else ""
        click.echo(f"{'ok   ' if fit >= wanted else 'WRONG'} together: {fit} of {people(wanted)} fit{more}")
        return all_start and fit >= wanted

    try:
        all_started = asyncio.run(ask())
    except GPUSpawnerError as error:
        fail(error)
    if not all_started:
        raise SystemExit(EXIT_NOT_FIT)


def _answered(answer: Rehearsed, *, late: bool) -> str:
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
    from jupyterhub_gpuspawner.courses.course import calendar
    from jupyterhub_gpuspawner.site.configuration import load_site
    from jupyterhub_gpuspawner.site.courses import named_course

    try:
        site = load_site(config)
        course_file = named_course(site, name)
    except GPUSpawnerError as error:
        fail(error)
    hub = site.spawner("nobody").hub_name
    click.echo(calendar(name, course_file, hub=hub, now=datetime.now(timezone.utc)), nl=False)


@course.command()
@click.argument("name")
@click.option("--hub", default="", help="The hub's address, such as https://hub.example.org/hub/.")
@CONFIG
def link(*, name: str, hub: str, config: Path) -> None:
    """Print the link that participants of course NAME open: the form with the course selected, then its materials.

    Without --hub, and without c.JupyterHub.public_url, it is a path. Whether nbgitpuller is installed where the servers
    run cannot be seen from here.
    """
    from jupyterhub_gpuspawner.courses.course_profile import participants_link
    from jupyterhub_gpuspawner.site.configuration import load_site
    from jupyterhub_gpuspawner.site.courses import address_of, named_course

    try:
        site = load_site(config)
        course_file = named_course(site, name)
    except GPUSpawnerError as error:
        fail(error)
    click.echo(participants_link(name, course_file, hub or address_of(site)))


def _lines(checked: Checked, *, named: bool) -> Iterator[str]:
    if named:
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
    for hint in dict.fromkeys(hint.text for report in checked.reports for hint in report.hints):
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
    yield f"{head} {begin:%a %Y-%m-%d %H:%M}-{end:%H:%M %Z}: {people(report.seats.wanted)}, {report.fit} fit"
    yield from (_indented(problem.text) for problem in report.problems if problem.text not in everywhere)


def _indented(text: str) -> str:
    return textwrap.fill(text, _width(), initial_indent=" " * 6, subsequent_indent=" " * 6)


def _width() -> int:
    """That of the terminal; programs read each sentence on a line of its own."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize
