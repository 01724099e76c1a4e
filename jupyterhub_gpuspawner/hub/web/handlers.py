"""What handlers share: the server that is named, the body and its limit, refusals for a while, and a rate limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from jupyterhub.apihandlers import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.spawner import Spawner
from tornado import web

_CALLERS = 1000
"""Callers remembered; beyond that, those with their full allowance are forgotten."""


@dataclass
class RateLimit:
    """A token bucket for each caller."""

    burst: int
    """Requests that are allowed at once."""
    per_minute: float
    """Requests per minute in the long run."""
    clock: Callable[[], float] = time.monotonic
    _left: dict[Hashable, tuple[float, float, int]] = field(default_factory=dict)
    """For each caller the allowance left, the time at which that was so, and what was added to its burst."""

    def wait(self, caller: Hashable, *, more: int = 0) -> float:
        """Seconds until ``caller`` may make the next request; 0.0: now, and this request is counted.

        ``more`` is added to the burst of this caller.
        """
        now = self.clock()
        left = self._allowance(caller, now, more)
        if left < 1.0:
            return (1.0 - left) * 60.0 / self.per_minute
        if len(self._left) >= _CALLERS:
            self._left = {
                key: entry
                for key, entry in self._left.items()
                if self._allowance(key, now, entry[2]) < self.burst + entry[2]
            }
        self._left[caller] = (left - 1.0, now, more)
        return 0.0

    def _allowance(self, caller: Hashable, now: float, more: int) -> float:
        burst = float(self.burst + more)
        left, since, _ = self._left.get(caller, (burst, now, more))
        return min(burst, left + (now - since) * self.per_minute / 60.0)


class RESTHandler(APIHandler):
    """A handler of JupyterHub's, with what ours need beside."""

    body_limit = 65536
    """Bytes at most of the body of a request."""
    body_name = "body"
    """What error messages call it."""

    def limited_body(self) -> Any:
        """The body's JSON, None for an empty one; raises 413 for one that is too large."""
        if len(self.request.body) > self.body_limit:
            self.refuse_large_body()
        return self.get_json_body()

    def refuse_large_body(self) -> None:
        """Raise 413."""
        raise web.HTTPError(413, f"The {self.body_name} is larger than {self.body_limit} bytes.")

    def try_later(self, status: int, seconds: float, sentence: str) -> None:
        """Raise an error with ``Retry-After``; return where ``seconds`` is 0."""
        if seconds > 0:
            refusal = web.HTTPError(status, "%s", sentence)
            # JupyterHub's write_error sends these headers
            refusal.headers = {"Retry-After": str(math.ceil(seconds))}  # type: ignore[attr-defined]
            raise refusal


def server_named(handler: BaseHandler, user_name: str, server_name: str) -> tuple[Any, Spawner]:
    """The user and the spawner of a server, which need not run; raises 404 where there is none."""
    user = handler.find_user(user_name)
    if user is None or server_name not in user.orm_spawners:
        raise web.HTTPError(404, "There is no such server.")
    return user, user.spawners[server_name]


def utc(at: float) -> str:
    """ISO 8601, UTC, in full seconds."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")
