"""What the administrators' map of the cluster says, with the health of its nodes."""

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
FAILING = "The last {starts} starts here failed, those of {people}."
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

HEALTH = "Health"
HEALTH_INTRO = (
    "What servers have reported about their nodes: which nodes differ from most nodes of their kind, and how well "
    "Slurm placed jobs on them. A GPU that no job has seen yet is not judged."
)
NO_REPORTS = "No server has reported from a node with GPUs yet."
AS_REPORTED = "Slurm is not responding; its configuration is that of the last reports."
DIFFERS = "differs"
PERHAPS = "perhaps differs"
ALIKE = "as its siblings"
ALONE = "no siblings"
GRANTS = "Grants"
SIMULATED = "simulated"
ALL_GRANTS = "All nodes together: {grants}."
LAST_REPORT = "last report {ago}"
MORE_REPORTS = "{nodes} not shown: use gpuspawner fleet."
GRES_CONF = (
    "“Siblings” are nodes with the same GPUs in Slurm; a majority of at least two defines what is usual. A grant is "
    "compared with the GPUs that were free when the job started."
)
