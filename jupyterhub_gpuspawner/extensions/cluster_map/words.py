"""What the administrators' map of the cluster says."""

from __future__ import annotations

from jupyterhub_gpuspawner.hub.times import silence

CLUSTER = "Cluster"
CLUSTER_INTRO = "The nodes and GPUs of the cluster, who is using them, and which are out of service and why."
FILTER = "Filter"
FILTER_TEXT = "Node, user, job, GPU, reason"
FILTER_PARTITION = "Partition"
FILTER_USE = "State"
EVERY_CLUSTER = "all"
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
CLUSTER_UNKNOWN = silence(since_the_start=True, more="Nothing is known about the cluster.")
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
DRAIN = "Until that is mended, drain it:"
WAITING = "Waiting"
EXPECTED = "expected start: {words}"
NO_LIMIT = "no time limit"
PER_NODE = " on each"
LOG = "Log"
STOP = "Stop"


PARTITION_STATES = {
    "DOWN": "not starting jobs",
    "DRAIN": "not accepting new jobs",
    "INACTIVE": "not accepting or starting jobs",
}
"""Of a partition that is not up, by Slurm's word (scontrol(1))."""
JOB_OF = "job {job} of {user}"
SOMEBODY = "an unknown user"
SERVER_OF = "{user}'s server {server}"
STOP_SERVER = "Stop {user}'s server {server}"
WAITING_SINCE = "for {duration}, since"
MORE_WAITING = "{jobs} waiting: use the filter above to find them."
FOLDED = "Show {nodes}"
LEFT_OUT = "{nodes} not shown: use the filter above to find them."
IN_RESERVATION = "reservation {name}"
OF_TOTAL = "{used} of {total}"
