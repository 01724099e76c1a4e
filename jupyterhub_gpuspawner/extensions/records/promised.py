"""What the hub has said of the start of one server, kept with it until its session is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from jupyterhub_gpuspawner.extensions.records.promises import PROMISES, Promise, PromiseMoment, Wait
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.slurm.estimate import Estimate

AT_MOST = 20
"""Predictions kept per start: one is made at each half of the remaining wait, so these suffice for a month."""


class ServerPromises(WithServer):
    """The promises of one start."""

    def __init__(self, spawner: Any) -> None:
        super().__init__(spawner)
        self.forget()

    def forget(self) -> None:
        """Nothing is said of a start."""
        self._said: tuple[Promise, ...] = ()
        self._wait = Wait()

    def expects(self, estimate: Estimate, partition: str, *, now: float) -> None:
        """Keep what is said now, where it is a promise. After a restart of the hub a job begins to wait only once."""
        if not self.spawner.job_id:
            self.forget()
            self._said = (Promise(now, PromiseMoment.CLICK, estimate, partition),)
            return
        promise = self._wait.follow(estimate, partition, now=now)
        if promise is None or len(self._said) >= AT_MOST:
            return
        if promise.moment in {earlier.moment for earlier in self._said}:
            promise = replace(promise, moment=PromiseMoment.HALF)
        self._said += (promise,)

    def promises(self) -> tuple[Promise, ...]:
        """What was said so far."""
        return self._said

    def to_state(self) -> Mapping[str, Any]:
        """The same, once there is a job."""
        promises = self._said if self.spawner.job_id else ()
        return {"promises": PROMISES.dump_python(promises, mode="json")} if promises else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on with these."""
        self.forget()
        with suppress(ValidationError):
            self._said = PROMISES.validate_json(json.dumps(state.get("promises")), strict=True)
