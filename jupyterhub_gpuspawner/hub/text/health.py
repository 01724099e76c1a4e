"""The section *Health* of the map."""

from __future__ import annotations

from jupyterhub_gpuspawner.hub.text import times

HEALTH = "Health"
INTRO = (
    "What servers have reported about their nodes: which nodes differ from most nodes of their kind, and how well "
    "Slurm placed jobs on them. A GPU that no job has seen yet is not judged."
)
NOTHING = "No server has reported from a node with GPUs yet."
AS_REPORTED = "Slurm is not responding; its configuration is that of the last reports."
DIFFERS = "differs"
ALIKE = "as its siblings"
ALONE = "no siblings"
GRANTS = "Grants"
SIMULATED = "simulated"
ALL_GRANTS = "All nodes together: {grants}."
GRES_CONF = (
    "“Siblings” are nodes with the same GPUs in Slurm; a majority of at least two defines what is usual. A grant is "
    "compared with the GPUs that were free when the job started."
)


def siblings(number: int) -> str:
    """The number of nodes of the same kind; empty for none, which the node's state says."""
    return f"{number:,} sibling{'s' * (number != 1)}" if number else ""


def seen_at(when: float, now: float) -> str:
    """When a job last reported from the node."""
    ago = times.relative(when, now=now)
    return f"last report {'just now' if ago == times.NOW else ago}"


def left_out(number: int) -> str:
    """The rest of a list that is longer than the section."""
    return f"{number:,} more node{'s' * (number != 1)} not shown: use gpuspawner fleet."


def summary(nodes: int, ill: int) -> str:
    """All nodes in one line."""
    what = f"{nodes:,} node{'s' * (nodes != 1)} known"
    one = "s" * (ill <= 1)
    return f"{what}; {f'{ill:,}' if ill else 'none'} differ{one} or contradict{one} Slurm's configuration"
