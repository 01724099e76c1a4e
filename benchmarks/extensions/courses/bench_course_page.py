"""The page of a course with two hundred participants: time to put it together and to render it, and size of the page.

    python -m pytest benchmarks/extensions/courses/bench_course_page.py

The bars are in processor time, by the fastest of the rounds, since other work on the machine only adds. It is done at
most every two seconds while somebody looks, once for all who do, in a thread beside the hub's event loop.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.page import CoursePageState, CourseSnapshot
from jupyterhub_gpuspawner.extensions.courses.participants import participants_of
from jupyterhub_gpuspawner.extensions.courses.view import CourseView, course_view
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.job.cause import job_ended_in_start
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.routes import PageTools
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

PEOPLE = 200
NOW = 1_800_000_000.0
VIEW_BAR, PAGE_BAR, CHANGE_BAR = 0.03, 0.1, 0.02
"""Limits in seconds of processor time: what the page shows; all of it as HTML; it again after ten changes."""
PAGE_BYTES, EVENT_BYTES = 240_000, 20_000

FAILED = Job("7", Phase.ENDED, state="FAILED", exit_code="1:0", end=End.FAILED)


def view(failed: int = 20) -> CourseView:
    """Most servers run; the first ``failed`` did not start and have fifteen lines of a log."""
    ends_at = datetime.fromtimestamp(NOW + 7200, timezone.utc).isoformat()
    people = tuple(f"train{number:03}" for number in range(PEOPLE))
    of_course = partial(Server, last_profile="course-large")
    servers = [
        of_course(
            user, ending=Ending(job_ended_in_start(FAILED.end), at=NOW, job=FAILED, lines="no such module\n" * 15)
        )
        if number < failed
        else of_course(
            user,
            ready=True,
            job_id=str(number),
            placement=PlacementDocument(node=f"g{number // 4}", gpus=(PlacedGpu(number % 4),), ends_at=ends_at),
        )
        for number, user in enumerate(people)
    ]
    course = HubCourse("large", CourseFile("large"), people=people)
    return course_view(course, participants_of(course, servers, now=NOW), now=NOW)


ENVIRONMENT = Environment(
    autoescape=True, loader=FileSystemLoader([str(TEMPLATES), *HubExtensions(installed()).templates])
)


class Page(CoursePageState):
    """The page of these views."""

    def __init__(self, views: list[CourseView]) -> None:
        tools = PageTools(HubExtensions(installed()))
        super().__init__("large", {}, lambda name, **_: ENVIRONMENT.get_template(name), tools)
        self.views = views

    async def view(self) -> CourseView:
        """The next one."""
        return self.views.pop(0)


@pytest.mark.benchmark(timer=time.process_time)
def test_view(benchmark: Any) -> None:
    """The state of everybody, and the words on the tiles."""
    shown = benchmark.pedantic(view, rounds=10, warmup_rounds=1)
    assert len(shown.tiles) == PEOPLE
    assert benchmark.stats.stats.min <= VIEW_BAR


@pytest.mark.benchmark(timer=time.process_time)
def test_page(benchmark: Any) -> None:
    """All tiles as HTML."""
    shown = view()
    snapshot = benchmark.pedantic(lambda: asyncio.run(Page([shown]).recent()), rounds=10, warmup_rounds=1)
    size = len("".join(snapshot.tiles.values()).encode())
    print(f"\n{PEOPLE} participants: {size:,} bytes of HTML")
    assert size <= PAGE_BYTES
    assert benchmark.stats.stats.min <= PAGE_BAR


@pytest.mark.benchmark(timer=time.process_time)
def test_changes(benchmark: Any) -> None:
    """The tiles that have changed as HTML, and the event that tells every viewer."""
    before, after = view(20), view(30)

    def set_up() -> tuple[tuple[Page, CourseSnapshot], dict[str, Any]]:
        page = Page([before, replace(after, title="later")])
        first = asyncio.run(page.recent())
        page.expire()
        return (page, first), {}

    def change(page: Page, first: CourseSnapshot) -> str:
        return asyncio.run(page.recent()).event_since(first)

    size = len(benchmark.pedantic(change, setup=set_up, rounds=10).encode())
    print(f"\n10 of {PEOPLE} changed: {size:,} bytes of JSON")
    assert size <= EVENT_BYTES
    assert benchmark.stats.stats.min <= CHANGE_BAR
