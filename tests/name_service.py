"""A name service that does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest


async def holds_nothing_else(
    call: str, ask: Callable[[], Coroutine[object, object, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that asyncio's threads are free while twenty questions wait for this call, which does not return."""
    answers = threading.Event()

    def hang(*_: object, **__: object) -> None:
        answers.wait(30)
        raise OSError

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    with monkeypatch.context() as patch:
        patch.setattr(call, hang)
        tasks = [asyncio.ensure_future(ask()) for _ in range(20)]
        await asyncio.sleep(0)
        try:
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "read"), 5) == "read"
        finally:
            answers.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
