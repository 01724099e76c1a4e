"""Prometheus metrics of the expected starts that were said of jobs, and what came."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from jupyterhub_gpuspawner.extensions.records.promises import outcomes
from jupyterhub_gpuspawner.hub.job.session import Event, Placed

_PROMISES = Counter(
    "gpuspawner_promised_starts",
    "Expected starts that were said of jobs that have started, at the click, when they began to wait (queued) and at "
    "each half of the rest (half): within the range as said, or early or late.",
    ["cluster", "profile", "moment", "kept"],
)
_PROMISE_ERRORS = Histogram(
    "gpuspawner_promised_start_error_seconds",
    "Seconds between the likely start and what came, by the moment of the promise.",
    ["cluster", "profile", "moment"],
    buckets=(10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 2 * 3600, 4 * 3600, 12 * 3600, 48 * 3600),
)


def observe_promises(event: Event) -> None:
    """Observe what was said of a start when Slurm has started its job."""
    if isinstance(event, Placed):
        for outcome in outcomes(event.promises, event.allocated_at, None):
            moment = outcome.promise.moment.value
            _PROMISES.labels(event.cluster, event.profile, moment, outcome.result).inc()
            _PROMISE_ERRORS.labels(event.cluster, event.profile, moment).observe(outcome.error)
