"""Starts begin a few at a time, in the order of the clicks; none is kept waiting by one that takes long."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from jupyterhub.handlers.pages import SpawnHandler

from jupyterhub_gpuspawner.hub.choose.page import ChoosePage, Turns


class Start:
    """A start that has begun, and is done, when the test says so."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name
        self.begun = False
        self.done = asyncio.Event()

    async def run(self) -> None:
        """Note that it was let in, and wait."""
        self.log.append(self.name)
        await self.done.wait()


async def _begin(turns: Turns, count: int) -> tuple[list[str], list[Start], list[asyncio.Task[None]]]:
    log = list[str]()
    starts = [Start(log, f"click {number}") for number in range(count)]

    def begin(start: Start) -> asyncio.Task[None]:
        return asyncio.create_task(turns.begin(start.run, lambda: start.begun))

    tasks = [begin(start) for start in starts]
    await _all_let_in()
    return log, starts, tasks


async def _all_let_in() -> None:
    """Let every task that can go on do so; a click that need not wait for its turn has begun after its second step."""
    for _ in range(20):
        await asyncio.sleep(0)


async def _until(log: list[str], length: int) -> list[str]:
    while len(log) < length:  # noqa: ASYNC110 - a list has no event
        await asyncio.sleep(0.01)
    await _all_let_in()
    return list(log)


async def _end(starts: list[Start], tasks: list[asyncio.Task[None]]) -> None:
    for start in starts:
        start.done.set()
    await asyncio.gather(*tasks)


async def test_the_next_click_has_its_turn_when_a_job_was_submitted() -> None:
    """The first two at once, then one for each that has begun or ended; every click waits for its own end."""
    log, starts, tasks = await _begin(Turns(2, longest=60.0), 4)
    first = list(log)
    starts[1].begun = True
    second = await _until(log, 3)
    starts[0].done.set()
    third = await _until(log, 4)

    assert (first, second, third) == (
        ["click 0", "click 1"],
        ["click 0", "click 1", "click 2"],
        ["click 0", "click 1", "click 2", "click 3"],
    )
    assert [task.done() for task in tasks] == [True, False, False, False]
    await _end(starts, tasks)


async def test_a_start_that_takes_long_keeps_its_turn_for_a_while_only() -> None:
    """As one without a job, or one whose sbatch does not answer."""
    log, starts, tasks = await _begin(Turns(1, longest=0.2), 2)

    assert await _until(log, 2) == ["click 0", "click 1"]
    assert not any(task.done() for task in tasks)
    await _end(starts, tasks)


async def test_a_start_that_fails_says_so_and_gives_its_turn_on() -> None:
    """Its error is the caller's."""
    turns = Turns(1, longest=60.0)

    async def refused() -> None:
        raise ValueError("no such profile")

    with pytest.raises(ValueError, match="no such profile"):
        await turns.begin(refused, lambda: False)
    log, starts, tasks = await _begin(turns, 1)

    assert log == ["click 0"]
    await _end(starts, tasks)


async def test_a_start_that_fails_when_its_page_is_sent_is_not_logged_by_asyncio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """JupyterHub's page asks how a start has ended in its first second only."""
    logged = list[dict[str, Any]]()

    async def fail(*_: object) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("too late for the page")

    monkeypatch.setattr(SpawnHandler, "spawn_single_user", fail)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
    page = ChoosePage.__new__(ChoosePage)
    await asyncio.wait({asyncio.ensure_future(page.spawn_single_user())})
    gc.collect()

    assert logged == []
