"""The home page's cards, one for each server, and the pages on which a server is stopped or deleted.

``{time}`` stays in a sentence: the page puts the time there, in the reader's time zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.text.silence import silence
from jupyterhub_gpuspawner.words import counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADING = "Your servers"
LINK_UNUSED = "The link has started nothing: {server} is still there. Stop it first, then open the link again."
LINK_USABLE = "The server that was in the way of the link has ended."
OPEN_LINK = "Open the link again"
NO_SERVER = "You have no running server."
STATES = {
    "running": "running",
    "waiting": "waiting in line",
    "starting": "starting",
    "stopping": "stopping",
    "stopped": "not running",
    "ended": "ended",
    "failed": "did not start",
}
SIMULATED = "simulated node"
SIMULATED_EXPLAINED = "This node is simulated: CPUs and memory of the real machine are not bound."
LEFT = "left"
ENDS_AT = "ends at {time}"
ENDED_AT = "It ended at {time}."
LESS = "less than a minute"
NO_TIME = "no time"
ENDS_SOON = "It ends soon. Save your work."
ENDS_VERY_SOON = "It ends in a few minutes. Save your work now."
TIME_IS_OVER = "Time is up: Slurm may end the server at any moment."
STOPPING = "Slurm is ending the job and releasing its GPUs. This takes a few seconds."
START_FAILED = "The server failed to start."
SILENT = silence(since_the_start=False, more="Your server is not affected.")
SILENT_FROM_THE_START = silence(since_the_start=True, more="Your server is not affected.")
WAITS = "If you stop it, you give up your place in line."

OPEN = "Open"
LOG = "Log"
STOP = "Stop"
MORE_TIME = "More time"
DELETE = "Delete"
SHOW_PROGRESS = "Show progress"
START = "Start"
START_DEFAULT = "Start My Server"
START_AGAIN = "Start again"

DETAILS = "Details"
NODE = "Node"
JOB = "Job"
GPU, GPUS = "GPU", "GPUs"
CPUS = "CPUs"
NUMA_NODES = "NUMA nodes"
MEMORY_POLICY = "Memory policy"
ALIGNED = "Aligned"
NETWORK = "Network"
OTHER_NODES = "Other nodes"
EXPLAINED = {
    NODE: "The machine of the cluster on which your server runs.",
    JOB: "Slurm's number for your server, and the partition (group of nodes) it runs in. Mention it when you ask for "
    "help.",
    GPUS: "Your GPUs by their number on the node, each with the memory that programs can use, which is a little less "
    "than it has, and the NUMA node next to it. Programs see only these GPUs, numbered from 0.",
    CPUS: "The processors that your server may use, by their number on the node. A core may have two of them.",
    NUMA_NODES: "The parts of the machine that your CPUs are in. Memory and GPUs of the same part are reached fastest.",
    MEMORY_POLICY: "Where memory is allocated: default means in the NUMA node of the processor that uses it, "
    "preferred:0 in NUMA node 0 as long as there is room, none that the server's memory was not bound.",
    ALIGNED: "Whether your GPUs, CPUs and memory are in the same NUMA nodes, where they work together fastest.",
    NETWORK: "The network card next to each GPU and the link between the two: PIX and PXB are the shortest ways, SYS "
    "the longest. Work on several nodes is as fast as the weakest link of all.",
    OTHER_NODES: "What the job has on its other machines.",
}
"""What each word of a card's details means."""
NO_NETWORK_CARD = "this node has no network card that GPUs can use directly"
NETWORK_NOT_KNOWN = "the network cards of this node are not known"
YES, NO, NOT_KNOWN, NONE = "yes", "no", "not known", "none"
WHOLE_NODE = "The whole node"
SCROLL = "Scroll sideways to see the whole picture."
IN_WORDS = "The picture in words"

NAMED_HEADING = "Start a named server"
NAMED_WHY = "You can run several servers side by side, each under its own name."
NAME = "Server name"
NAME_TAKEN = "You already have a server named {name}."
NOT_MORE = "You have {number} of at most {limit} named servers. Delete one before you start another."
OLD_NAMES = "These servers have names that JupyterHub no longer accepts for new servers: {names}."

EXTEND_MINUTES = "Minutes to add"
EXTENDED_UNTIL = "It ends at {time}."

LOST = "Unsaved work and running kernels are lost. Your files stay."
LOST_IN_APP = "Unsaved work and running processes are lost. Your files stay."
"""Of an application other than Jupyter."""
RUNS_SINCE = "It has been running for {duration}, since {time}."
KEEP = "Keep it running"
KEEP_PLACE = "Keep waiting"
BACK = "Back to the home page"
NOT_STOPPED = "The server could not be stopped. Try again in a minute, or contact your administrator."
STILL_STOPPING = "The server is being stopped. This takes a few seconds."
NOT_RUNNING = "This server is not running."
GIVEN_UP = "You give up your place in line. Nothing else is lost."
NOTHING_LOST = "It is not ready yet, so no work is lost."
DELETED = "Its name and its last choice are forgotten. Your files stay."
STOP_FIRST = "This server is active. Stop it before you delete it."


def title(name: str, display_name: str, profile: str = "") -> str:
    """A card's heading: ``K80``, ``K80 (server lab)``, ``My server``, ``Server lab``."""
    if profile:
        return f"{profile} (server {display_name})" if name else profile
    return f"Server {display_name}" if name else "My server"


def of_user(title: str, owner: str) -> str:
    """A server that belongs to somebody else."""
    return f"{title} of {owner}" if owner else title


def stop_heading(title: str) -> str:
    """The question before a server is stopped."""
    return f"Stop {title}?"


def extend_heading(title: str) -> str:
    """The page on which a server is given more time."""
    return f"More time for {title}"


def delete_heading(title: str) -> str:
    """The question before a named server is deleted."""
    return f"Delete {title}?"


def stopped(title: str, *, job_id: str = "", gpus: int = 0, by: str = "", waited: bool = False) -> str:
    """What a card says after a stop, such as ``K80 was stopped at {time}; job 42 released 1 GPU``."""
    what = f"{title} {'left the line' if waited else 'was stopped'} at {{time}}"
    if by:
        what = f"{what}: {by} stopped it" if waited else f"{what} by {by}"
    if not job_id:
        return f"{what}."
    if waited or not gpus:
        return f"{what}; job {job_id} was cancelled."
    return f"{what}; job {job_id} released {counted(gpus, 'GPU')}."


def stop_unconfirmed(job_id: str) -> str:
    """What a card says where Slurm did not take the request to cancel a job."""
    return (
        f"Slurm did not respond at {{time}}, so job {job_id} may still be running. The hub keeps trying to cancel it."
    )


def job(job_id: str, partition: str) -> str:
    """A job and its partition."""
    return f"{job_id}, partition {partition}" if partition else job_id


def picture_of(name: str) -> str:
    """What screen readers call the region with a node's picture."""
    return f"Picture of node {name}"


def details(warnings: int) -> str:
    """The heading of what is folded."""
    return f"{DETAILS} ({counted(warnings, 'warning')})" if warnings else DETAILS


def near(numa_node: int) -> str:
    """The NUMA node of a GPU."""
    return f"NUMA node {numa_node}"


def gpus(number: int, model: str, memory: str) -> str:
    """A number of GPUs, with the memory of each, as the form says it."""
    each = f" ({memory})" if memory else ""
    return f"{number} \N{MULTIPLICATION SIGN} {model}{each}"


def memory(amount: str) -> str:
    """The job's memory, as the form says it."""
    return f"{amount} memory"


def more_nodes(number: int) -> str:
    """The number of a job's nodes beside the server's."""
    return counted(number, "more node")


def time_left(seconds: float) -> str:
    """``2 h 30 min``, ``14 min``, ``less than a minute``: in full minutes, rounded down."""
    if seconds <= 0:
        return NO_TIME
    return LESS if seconds < 60 else duration(seconds // 60 * 60)


def other_node(name: str, got: Iterable[str]) -> str:
    """The heading of another node of the server's job."""
    return f"Node {name}: {', '.join(got)}".removesuffix(": ")


def not_reported(node: str) -> str:
    """A node of the job whose launcher has said nothing."""
    return f"{node} has not reported what the job has there. The log may say why."


def weakest_link(link: str | None) -> str:
    """Over all nodes of a job."""
    return f"weakest link of all nodes: {link or NOT_KNOWN}"


def nic(gpu: str, name: str, link: str) -> str:
    """A GPU's network card."""
    return f"{gpu}: {name}, {link if link != '?' else 'link not known'}"
