"""Work for many people, one after the other."""
# ruff: noqa: ASYNC110 - what is waited for has no event

from __future__ import annotations

import asyncio

from jupyterhub_gpuspawner.hub.course.actions import Pace, Queue
from jupyterhub_gpuspawner.hub.course.participants import State

STARTS, STOPS = Queue("deep", State.STARTING), Queue("deep", State.STOPPING)


class Log:
    """Work that can be held up, and what of it has begun and ended."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gate = asyncio.Event()

    async def work(self, name: str) -> None:
        """Wait at the gate."""
        self.begun.append(name)
        await self.gate.wait()
        self.ended.append(name)


async def until(pace: Pace, *people: str) -> None:
    """Wait until there is no work for these people."""
    while any(pace.kind(person) for person in people):
        await asyncio.sleep(0)


async def test_no_more_are_under_way_than_is_allowed() -> None:
    """The others wait until one has ended."""
    log, pace = Log(), Pace(0.0, 2)
    for name in ("ada", "bob", "eve"):
        pace.put(STARTS, name, lambda name=name: log.work(name))  # type: ignore[misc]
    while len(log.begun) < 2:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert log.begun == ["ada", "bob"]

    log.gate.set()
    await until(pace, "ada", "bob", "eve")

    assert log.ended == ["ada", "bob", "eve"]


async def test_work_that_has_not_begun_is_replaced_or_dropped() -> None:
    """The last word for a person counts; a failure of one does not stop the others."""
    log, pace = Log(), Pace(0.0, 1)
    log.gate.set()

    async def fails() -> None:
        raise RuntimeError

    pace.put(STARTS, "ada", fails)
    pace.put(STARTS, "bob", lambda: log.work("start bob"))
    pace.put(STOPS, "bob", lambda: log.work("stop bob"))
    pace.put(STARTS, "eve", lambda: log.work("start eve"))
    assert (pace.drop("eve"), pace.drop("eve"), pace.kind("eve")) == (True, False, None)

    await until(pace, "ada", "bob")

    assert log.ended == ["stop bob"]


async def test_two_pieces_for_one_person_are_not_done_at_once() -> None:
    """A stop that is asked for while a start is under way comes after it."""
    log, pace = Log(), Pace(0.001, 5)
    pace.put(STARTS, "ada", lambda: log.work("start"))
    while not log.begun:
        await asyncio.sleep(0)
    pace.put(STOPS, "ada", lambda: log.work("stop"))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert log.begun == ["start"]

    log.gate.set()
    await until(pace, "ada")

    assert log.ended == ["start", "stop"]


async def test_neither_a_stop_nor_another_course_waits_for_the_starts_of_a_course() -> None:
    """Even where no more starts may be under way, and the next one's turn is a minute away."""
    log, pace = Log(), Pace(60.0, 2)
    log.gate.set()
    for person in ("ada", "bob", "eve"):
        pace.put(STARTS, person, lambda person=person: log.work(f"start {person}"))  # type: ignore[misc]
    pace.put(STOPS, "zoe", lambda: log.work("stop zoe"))
    pace.put(Queue("maths", State.STARTING), "kim", lambda: log.work("start kim"))

    await until(pace, "ada", "zoe", "kim")

    assert (log.ended, [pace.kind(person) for person in ("ada", "bob")]) == (
        ["start ada", "stop zoe", "start kim"],
        [None, State.STARTING],
    )
