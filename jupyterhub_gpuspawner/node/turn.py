"""Asks the hub whether this job runs the server, where another job may have been submitted beside it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.wire.documents import ASKS_TURN, TURN_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

PATIENCE = 300.0
"""Seconds without a decision after which the job ends: it holds its GPUs meanwhile."""
PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between two questions; the last one repeats."""
NO_ANSWER = 75
"""Exit code of a job that ends without a decision (EX_TEMPFAIL of sysexits.h)."""
_ANOTHERS = 409
_TRY = 10.0
"""Seconds for one question, with the look-up of the hub's name."""


def wait_for_turn(environ: MutableMapping[str, str], sleep: Callable[[float], None] = time.sleep) -> None:
    """Return once the hub has said that this job runs the server; at once in a job that does not ask.

    Until then the variable :data:`ASKS_TURN` stays in ``environ``: a launcher that fails starts no server by then.
    Raises SystemExit: with 0 where another job runs it, with :data:`NO_ANSWER` without a decision in time.
    """
    if ASKS_TURN not in environ:
        return
    from jupyterhub_gpuspawner.node.report import RefusedError, post

    body = json.dumps({"version": TURN_VERSION, "job_id": environ.get("SLURM_JOB_ID", "")}).encode()
    began, asking, tries, why = time.monotonic(), child.DeadlineThread(), 0, ""
    while time.monotonic() - began < PATIENCE:
        try:
            asking.ask(lambda: post(body, environ, to="turn"), _TRY)
        except RefusedError as refused:
            if refused.status == _ANOTHERS:
                child.complain("Another job runs this server; this one ends.")
                raise SystemExit(0) from None
            why = str(refused)
        except Exception as error:  # noqa: BLE001 - no answer, or no thread to ask in
            why = str(error) or type(error).__name__
        else:
            del environ[ASKS_TURN]
            return
        sleep(PAUSES[min(tries, len(PAUSES) - 1)])
        tries += 1
    child.complain(f"The hub has not said within {PATIENCE:g} s whether this job runs the server: {why}")
    raise SystemExit(NO_ANSWER)
