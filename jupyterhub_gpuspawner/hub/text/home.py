"""The home page's cards, one for each server."""

from __future__ import annotations

from jupyterhub_gpuspawner.words import counted, duration

STATES = {
    "running": "running",
    "starting": "starting",
    "stopping": "stopping",
    "ended": "ended",
    "failed": "did not start",
}
SIMULATED = "simulated node"
NODE = "Node"
JOB = "Job"
GPUS = "GPUs"
CORES = "Cores"
NUMA_NODES = "NUMA nodes"
MEMORY_POLICY = "Memory policy"
ALIGNED = "Aligned"
OTHER_NODES = "Other nodes"
ENDS = "Ends"
YES, NO, NOT_KNOWN, NONE = "yes", "no", "not known", "none"
HERE = "none: the server runs on the hub's own machine, without a time limit"
STOPPING = "Slurm is ending the job and releasing its GPUs. This takes a few seconds."
START_FAILED = "The server failed to start."
SILENT = "Slurm is not responding at the moment. Your server is not affected; this is the last known state."
WARNINGS = "Warnings"
PICTURE = "Picture of the node"
IN_WORDS = "Description of the node"
OPEN = "Open"
LOG = "Log"
STOP = "Stop"
SHOW_PROGRESS = "Show progress"
START_AGAIN = "Start again"
ENDS_SOON = "It ends in {left}. Save your work."
ENDS_VERY_SOON = "It ends in {left}! Save your work now."
TIME_IS_OVER = "Time is up: Slurm may end the server at any moment."
LESS = "less than a minute"
NO_TIME = "no time left"


def title(name: str, display_name: str) -> str:
    """A card's heading."""
    return f"Server {display_name}" if name else "My server"


def job(job_id: str, partition: str) -> str:
    """A job and its partition."""
    return f"{job_id}, partition {partition}" if partition else job_id


def node(name: str) -> str:
    """The heading of a node's picture."""
    return f"Node {name}"


def near(numa_node: int) -> str:
    """The NUMA node of a GPU."""
    return f"NUMA node {numa_node}"


def cpus(number: int) -> str:
    """The number of CPUs that a server may use; hardware threads where there are any."""
    return counted(number, "CPU")


def more_nodes(number: int) -> str:
    """The number of a job's nodes beside the server's."""
    return counted(number, "more node")


def time_left(seconds: float) -> str:
    """``2 h 30 min``, ``14 min``, ``less than a minute``: in full minutes, rounded down."""
    if seconds <= 0:
        return NO_TIME
    return LESS if seconds < 60 else duration(seconds // 60 * 60)
