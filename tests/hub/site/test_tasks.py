"""The asyncio functions lose neither a cancellation nor a task."""

from __future__ import annotations

import asyncio
import socket

import pytest

from jupyterhub_gpuspawner.hub.site.tasks import Looks, connected, first_of


async def test_the_first_wait_ends_it_and_the_others_are_cancelled() -> None:
    """No task is left running."""
    ended: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise
        ended.append(name)

    await first_of(wait("short", 0), wait("long", 60))
    await asyncio.sleep(0)

    assert ended == ["short", "long cancelled"]


async def test_a_cancelled_waiter_is_cancelled_and_its_waits_too() -> None:
    """CancelledError is raised."""
    started = asyncio.Event()
    ended: list[str] = []

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    task = asyncio.ensure_future(first_of(wait(), wait()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert ended == ["ended", "ended"]


async def test_a_server_that_begins_to_listen_is_noticed() -> None:
    """Refused connections are tried again until one is accepted."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        host, port = server.getsockname()
        waiting = asyncio.ensure_future(connected(host, port))
        await asyncio.sleep(0.2)

        assert not waiting.done()

        server.listen()
        await asyncio.wait_for(waiting, 5)


async def test_a_change_of_a_value_wakes_those_who_wait_for_it() -> None:
    """One change wakes everybody who looks at that value, once; nobody else."""
    looks, values, woken = Looks(0.001), {"a": 1, "b": 1}, list[str]()

    async def follow(name: str) -> None:
        with looks.at(lambda: values[name], again=3600.0) as news:
            while True:
                news.seen()
                await news.wait()
                woken.append(f"{name}{values[name]}")

    followers = [asyncio.create_task(follow(name)) for name in ("a", "a", "b")]
    await asyncio.sleep(0.02)
    values["a"] = 2
    while len(woken) < 2:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.001)
    values["b"] = 3
    while len(woken) < 3:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.001)
    for follower in followers:
        follower.cancel()
    await asyncio.wait(followers)
    assert woken == ["a2", "a2", "b3"]


async def test_the_same_value_is_news_again_after_a_while() -> None:
    """Without a change the wait ends when the time is up."""
    looks = Looks(0.001)
    with looks.at(lambda: "same", again=0.01) as news:
        for _ in range(3):
            news.seen()
            await news.wait()


async def test_a_value_that_cannot_be_had_wakes_whoever_waits_and_ends_no_other_wait() -> None:
    """The error is raised where the value is asked for, and others are still looked at."""
    looks, fault = Looks(0.001), list[bool]()

    def odd() -> str:
        if fault:
            raise KeyError("gone")
        return "fine"

    with looks.at(odd, again=3600.0) as first, looks.at(lambda: len(fault), again=3600.0) as second:
        first.seen()
        second.seen()
        fault.append(True)
        await first.wait()
        await second.wait()
        with pytest.raises(KeyError):
            first.seen()
