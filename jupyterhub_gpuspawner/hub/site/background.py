"""The loops that run as long as the hub does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from jupyterhub.app import JupyterHub
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.site.database import fault, roll_back
from jupyterhub_gpuspawner.tasks import contained, in_background, timeout

DAY_SECONDS = 86400.0
RETRY_SECONDS = 30.0
"""The most seconds until something is done again that has failed."""
_START_POLL_SECONDS = 0.5


class Failures:
    """Logs what fails, once until it works again or fails in another way, and rolls JupyterHub's session back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._logged: dict[str, tuple[type, str]] = {}

    @contextmanager
    def of(self, work: str) -> Iterator[None]:
        """Let no Exception out of the block; ``work`` begins the sentence for the log: "The search for lost jobs"."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever is wrong now, it is tried again
            roll_back(self._session)
            expected = isinstance(error, (SQLAlchemyError, GPUSpawnerError))
            message = fault(error) if isinstance(error, SQLAlchemyError) else str(error)
            if self._logged.get(work) != (type(error), message):
                self._logged[work] = (type(error), message)
                level, traceback = (logging.WARNING, None) if expected else (logging.ERROR, error)
                get_logger().log(level, "%s failed and is repeated: %s", work, message, exc_info=traceback)
        else:
            if self._logged.pop(work, None) is not None:
                get_logger().info("%s works again", work)


def every(
    app: JupyterHub, seconds: float, action: Callable[[], object], work: str, *, wake: asyncio.Event | None = None
) -> asyncio.Task[None]:
    """Call ``action`` when the hub has started, and again after so many seconds, as long as the hub runs.

    ``action`` may be a coroutine function. If it returns a number, the next call is after that many seconds; with 0
    ``seconds``, a call that returns none is the last. ``wake`` ends a pause. What fails is logged and repeated, see
    :class:`Failures`, after :data:`RETRY_SECONDS` at most.
    """
    task = in_background(_repeat(app, seconds, action, work, wake))
    task.set_name(work)
    return task


async def _repeat(
    app: JupyterHub, seconds: float, action: Callable[[], object], work: str, wake: asyncio.Event | None
) -> None:
    failures = Failures(app.db)
    while app.http_server is None:  # noqa: ASYNC110 - JupyterHub has no event for it
        await asyncio.sleep(_START_POLL_SECONDS)
    while True:
        pause = min(seconds or RETRY_SECONDS, RETRY_SECONDS)
        with failures.of(work):
            result = await contained(action)
            if not isinstance(result, (int, float)) and not seconds:
                return
            pause = result if isinstance(result, (int, float)) else seconds
        await _pause(pause, wake)


async def _pause(seconds: float, wake: asyncio.Event | None) -> None:
    if wake is None:
        await asyncio.sleep(seconds)
        return
    with suppress(asyncio.TimeoutError):
        async with timeout(seconds):
            await wake.wait()
    wake.clear()
