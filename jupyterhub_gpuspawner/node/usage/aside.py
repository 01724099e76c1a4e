"""Work that may hang, in a thread beside: its caller waits for a limited time.

A driver that does not respond, or a resolver, blocks its thread; the sampler goes on without it. The thread does not
keep the process from ending (:func:`~jupyterhub_gpuspawner.node.child.leave` ends it by ``_exit``).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Result = TypeVar("Result")


class Aside:
    """One thread's work at a time."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def ask(self, work: Callable[[], Result], seconds: float) -> Result:
        """What ``work`` returns or raises; TimeoutError after ``seconds`` or while earlier work hangs."""
        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
                errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._thread.join(seconds)
        if results:
            return results[0]
        if errors:
            raise errors[0]
        raise TimeoutError
