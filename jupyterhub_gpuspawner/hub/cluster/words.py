"""The administrators' map of the cluster."""

from __future__ import annotations

from functools import lru_cache

from jupyterhub_gpuspawner.hub.times import silence
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
NOTHING_KNOWN = silence(since_the_start=True, more="Nothing is known about the cluster.")
CLUSTER_SILENT = silence(since_the_start=False)
HOLDERS_UNKNOWN = "Slurm did not report which job has which GPU; jobs are listed beside their nodes."
NO_MATCH = "No node matches."
NO_NODES = "This partition has no nodes."
GPUS = "GPUs"
CORES = "CPUs"
MEMORY = "Memory"
FREE = "free"
OUT = "out"
IN_USE = "in use"
LEGEND = "Colours"
LEGEND_ENTRIES = {
    "used": "in use",
    "own": "in use by a server of this hub",
    "free": "free",
    "out": "out of service",
}
WAITING = "Waiting"
EXPECTED_SOON = "expected to start soon,"
NO_LIMIT = "no time limit"
PER_NODE = " on each"
LOG = "Log"
STOP = "Stop"


def gpus(total: int, free: int, used: int, out: int) -> str:
    """The GPUs of some nodes by what they do, such as ``4 GPUs: 1 free, 3 in use``."""
    if not total:
        return "no GPU"
    parts = [(free, FREE), (used, IN_USE), (out, OUT)]
    text = ", ".join(f"{number:,} {word}" for number, word in parts if number)
    return f"{counted(total, 'GPU')}: {text}"


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


def left(seconds: float) -> str:
    """``1 h 20 min left``, ``less than a minute left``: in full minutes, rounded down."""
    if seconds <= 0:
        return "no time left"
    return "less than a minute left" if seconds < 60 else f"{_minutes(int(seconds) // 60)} left"


@lru_cache(maxsize=4096)
def _minutes(number: int) -> str:
    return duration(60 * number)


def stop(user: str, server: str) -> str:
    """The button that stops a server."""
    return f"Stop {user}'s server {server}".rstrip()


def waiting_for(seconds: float) -> str:
    """How long a job has waited; the time since when follows."""
    return f"for {duration(seconds)}, since"


def starts_in(seconds: float) -> str:
    """Slurm's estimate of a job's start; the time follows."""
    return f"expected to start in {duration(seconds)}," if seconds >= 0 else EXPECTED_SOON


def time_limit(seconds: int | None) -> str:
    """The time that a job asks for."""
    return NO_LIMIT if seconds is None else duration(seconds)


def more_waiting(number: int) -> str:
    """The number of a partition's pending jobs that are not listed."""
    return f"{counted(number, 'more job')} waiting: use the filter above to find them."


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
