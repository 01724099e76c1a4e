"""The administrators' map of the cluster."""

from __future__ import annotations

from jupyterhub_gpuspawner.words import counted, duration

CLUSTER = "Cluster"
CLUSTER_INTRO = "The nodes and GPUs of the cluster, who is using them, and which are out of service and why."
FILTER = "Filter"
FILTER_TEXT = "Node, user, job, GPU, reason"
FILTER_PARTITION = "Partition"
FILTER_USE = "State"
EVERY_PARTITION = "all"
CLEAR = "Clear"
USES = {
    "": "all",
    "with-free-gpus": "with free GPUs",
    "idle": "free",
    "mixed": "partly used",
    "full": "full",
    "out": "out of service",
}
NOTHING_KNOWN = "Slurm has not responded to this hub yet, so nothing is known about the cluster."
CLUSTER_SILENT = "Slurm is not responding at the moment. This is the last known state."
HOLDERS_UNKNOWN = "Slurm did not report which job has which GPU; jobs are listed beside their nodes."
NO_MATCH = "No node matches."
NO_NODES = "This partition has no nodes."
CORES = "CPUs"
MEMORY = "Memory"
FREE = "free"
OUT = "out"
IN_USE = "in use"


def age(seconds: float) -> str:
    """How old the map is; empty for a few seconds."""
    return "" if seconds < 5 else f"{duration(seconds)} ago"


def gpus(total: int, free: int, used: int, out: int) -> str:
    """The GPUs of some nodes by what they do, such as ``4 GPUs: 1 free, 3 in use``."""
    if not total:
        return "no GPU"
    parts = [(free, FREE), (used, IN_USE), (out, OUT)]
    told = ", ".join(f"{number:,} {word}" for number, word in parts if number)
    return f"{counted(total, 'GPU')}: {told}"


def waiting(jobs: int) -> str:
    """The number of jobs that wait in a partition."""
    return f"{counted(jobs, 'job')} waiting"


def partition_state(state: str) -> str:
    """A partition that is not up; ``state`` is Slurm's word (scontrol(1))."""
    words = {
        "DOWN": "not starting jobs",
        "DRAIN": "not accepting new jobs",
        "INACTIVE": "not accepting or starting jobs",
    }
    return words.get(state, state)


def holder(user: str, job_id: str, server: str | None) -> str:
    """The job that has a GPU: a server of this hub (``server`` is its name), or any other job (None)."""
    if server is None:
        return f"job {job_id} of {user or 'an unknown user'}"
    return f"{user}'s server{f' {server}' if server else ''}, job {job_id}"


def more_jobs(number: int) -> str:
    """The number of a node's jobs that are not named."""
    return counted(number, "more job")


def folded(number: int) -> str:
    """The link to the nodes of a partition that would make the page too long."""
    return f"Show {counted(number, 'node')}"


def left_out(number: int) -> str:
    """The rest of a partition that is longer than a page."""
    return f"{counted(number, 'more node')} not shown: use the filter above to find them."


def in_reservation(name: str) -> str:
    """A node in a reservation that is active."""
    return f"reservation {name}"


def reason(words: str, by: str, since: str) -> str:
    """Why a node is out of service, in its administrator's words, with who set the reason and when."""
    return f"{words} (since {since}, {by})" if by else words


def of_total(used: str, total: str) -> str:
    """``4 of 24``."""
    return f"{used} of {total}"
