"""The home page's servers, their logs, and the admin's map of the cluster."""

from __future__ import annotations

from jupyterhub_gpuspawner.hub.pages.text import _

# --- the cluster -----------------------------------------------------------------------------------

CLUSTER = _("Cluster")
CLUSTER_INTRO = _("What Slurm has, who uses it, and what is out of service and why.")
FILTER = _("Filter")
FILTER_TEXT = _("Node, user, job, GPU, reason")
FILTER_PARTITION = _("Partition")
FILTER_USE = _("State")
EVERY_PARTITION = _("all")
CLEAR = _("Clear")
USES = {
    "": _("all"),
    "with-free-gpus": _("with free GPUs"),
    "idle": _("free"),
    "mixed": _("partly used"),
    "full": _("full"),
    "out": _("out of service"),
}
NOTHING_KNOWN = _("Slurm has not answered this hub yet, so nothing is known of the cluster.")
CLUSTER_SILENT = _("Slurm does not answer at the moment. This is what it last told.")
HOLDERS_UNKNOWN = _("Slurm did not tell which job has which GPU; jobs are named beside their nodes.")
NO_MATCH = _("No node matches.")
NO_NODES = _("There is no node in it.")
CORES = _("CPUs")
MEMORY = _("Memory")
FREE = _("free")
OUT = _("out")
IN_USE = _("in use")


def as_of(seconds: float) -> str:
    """How old what is shown is."""
    if seconds < 5:
        return _("as of now")
    if seconds < 90:
        return _("{count} s ago").format(count=round(seconds))
    if seconds < 90 * 60:
        return _("{count} min ago").format(count=round(seconds / 60))
    return _("{count} h ago").format(count=round(seconds / 3600))


def count(number: int, one: str, many: str) -> str:
    """``1 node``, ``1,000 nodes``."""
    return f"{number:,} {one if number == 1 else many}"


def nodes(number: int) -> str:
    """So many nodes."""
    return count(number, _("node"), _("nodes"))


def gpus(total: int, free: int, used: int, out: int) -> str:
    """GPUs of some nodes, by what they do."""
    if not total:
        return _("no GPU")
    parts = [(free, FREE), (used, IN_USE), (out, OUT)]
    told = ", ".join(f"{number:,} {word}" for number, word in parts if number)
    return f"{count(total, _('GPU'), _('GPUs'))}: {told}"


def waiting(jobs: int) -> str:
    """Jobs that wait in a partition."""
    return count(jobs, _("job waits"), _("jobs wait"))


def partition_state(state: str) -> str:
    """A partition that is not up; ``state`` is Slurm's word."""
    words = {
        "DOWN": _("starts no jobs"),
        "DRAIN": _("takes no new jobs"),
        "INACTIVE": _("takes and starts no jobs"),
    }
    return words.get(state, state)


def holder(user: str, job_id: str, server: str | None) -> str:
    """Who has a GPU: a server of this hub, or any other job."""
    if server is None:
        return _("job {job} of {user}").format(job=job_id, user=user or _("somebody"))
    if server:
        return _("{user}'s server {server}, job {job}").format(user=user, server=server, job=job_id)
    return _("{user}'s server, job {job}").format(user=user, job=job_id)


def more_jobs(number: int) -> str:
    """Jobs of a node that are not named."""
    return count(number, _("more job"), _("more jobs"))


def folded(number: int) -> str:
    """Nodes that would make the page too long."""
    return _("Show {nodes}").format(nodes=nodes(number))


def left_out(number: int) -> str:
    """The rest of a partition that is longer than a page."""
    return _("{nodes} more: the filter above finds them.").format(nodes=nodes(number))


def in_reservation(name: str) -> str:
    """A node in a reservation that runs."""
    return _("reservation {name}").format(name=name)


def reason(words: str, by: str, since: str) -> str:
    """Why a node is out, in its admin's words, who said so, and since when."""
    if by:
        return _("{words} (since {since}, {by})").format(words=words, by=by, since=since)
    return words


def of_total(used: str, total: str) -> str:
    """``4 of 24``."""
    return _("{used} of {total}").format(used=used, total=total)


# --- the home page's servers -----------------------------------------------------------------------

SERVERS = _("Your servers")
STATES = {
    "running": _("running"),
    "starting": _("starting"),
    "stopping": _("stopping"),
    "ended": _("ended"),
    "failed": _("did not start"),
}
SIMULATED = _("simulated node")
NODE = _("Node")
JOB = _("Job")
GPUS = _("GPUs")
CORES_OF_SERVER = _("Cores")
NUMA_NODES = _("NUMA nodes")
MEMORY_POLICY = _("Memory policy")
ALIGNED = _("Aligned")
OTHER_NODES = _("Other nodes")
ENDS = _("Ends")
YES, NO, NOT_KNOWN, NONE = _("yes"), _("no"), _("not known"), _("none")
HERE = _("none: it runs on the hub's own machine, without a time limit")
STOPPING = _("Slurm ends its job and frees its GPUs. This takes some seconds.")
START_FAILED = _("Its start failed.")
SILENT = _("Slurm does not answer at the moment; your server goes on. This is what was last known.")
PROBLEMS = _("What could not be learned or done on the node:")
PICTURE = _("The node in a picture")
IN_WORDS = _("The node in words")
OPEN = _("Open")
LOG = _("Log")
STOP = _("Stop")
HOW_FAR = _("See how far it is")
START_AGAIN = _("Start again")
ENDS_SOON = _("It ends in {left}. Save your work.")
ENDS_VERY_SOON = _("It ends in {left}! Save your work now.")
TIME_IS_OVER = _("Its time is over: Slurm ends it at any moment.")
HOURS = _("{hours} h {minutes} min")
MINUTES = _("{minutes} min")
LESS = _("less than a minute")
NO_TIME = _("no time")


def title(name: str, display_name: str) -> str:
    """A server's heading."""
    return _("Server {name}").format(name=display_name) if name else _("My server")


def job(job_id: str, partition: str) -> str:
    """A job and where it runs."""
    return _("{job}, partition {partition}").format(job=job_id, partition=partition) if partition else job_id


def node(name: str) -> str:
    """The heading of a node's picture."""
    return _("Node {name}").format(name=name)


def near(numa_node: int) -> str:
    """Where a GPU is."""
    return _("NUMA node {number}").format(number=numa_node)


def cpus(number: int) -> str:
    """So many CPUs that a server may use, hardware threads where there are any."""
    return count(number, _("CPU"), _("CPUs"))


def more_nodes(number: int) -> str:
    """The nodes of a job beside the server's."""
    return count(number, _("more node"), _("more nodes"))


def span(seconds: float) -> str:
    """``2 h 30 min``, ``14 min``, ``less than a minute``; whole minutes that are over are not counted."""
    if seconds <= 0:
        return NO_TIME
    if seconds < 60:
        return LESS
    hours, minutes = divmod(int(seconds) // 60, 60)
    return HOURS.format(hours=hours, minutes=minutes) if hours else MINUTES.format(minutes=minutes)


# --- a server's log --------------------------------------------------------------------------------

LOG_PATH = _("The whole log, on the cluster")
LOG_EMPTY = _("Nothing can be read in it from here.")
LOG_UNKNOWN = _("Where its log is, is not known: Slurm does not answer, or no longer knows the job.")
LOOK_AGAIN = _("Look again")
HOME = _("Home")


def log_of(server: str) -> str:
    """The heading of a log's page; ``server`` is a server's heading."""
    return _("Log: {server}").format(server=server)


def last_lines(number: int) -> str:
    """How much of a log is shown."""
    return _("Last line") if number == 1 else _("Last {number:,} lines").format(number=number)
