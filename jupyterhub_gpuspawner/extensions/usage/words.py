"""What is said of a server's use."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.usage.node.summary import memory_used, percent
from jupyterhub_gpuspawner.words import duration, nearest

USE_UNKNOWN = "use unknown for the whole time"


def what_was_used(*, ran: float, gpus: int, mean_use: float | None, memory_max_mib: int) -> str:
    """``its GPU was used 82 % on average, and ...``, as a clause; empty where nothing is known.

    What was measured is of the last hour of a server that ran for ``ran`` seconds.
    """
    facts = []
    if gpus and mean_use is not None:
        facts.append(f"{'its GPUs were' if gpus > 1 else 'its GPU was'} used {percent(mean_use)} on average")
    if memory_max_mib:
        facts.append(f"at most {memory_used(memory_max_mib, None)} of memory was in use")
    last = "in its last hour " if facts and ran > 3600 else ""
    return last + ", and ".join(facts)


def measured(interval: float, samples: int) -> str:
    """How often a server's use is measured, and so many samples sent; empty where the former is not known."""
    if not interval:
        return ""
    return f"It is measured every {duration(interval)} and sent every {duration(interval * samples)}."


def chart_description(mean: float | None, most: float | None) -> str:
    """A chart in words."""
    if mean is None or most is None:
        return f"{USE_UNKNOWN}."
    return f"used {nearest(mean)} % on average, at most {nearest(most)} %."
