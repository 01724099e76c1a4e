"""The two versioned documents that hub and node exchange. Pure, standard library only.

:class:`LaunchPlan` goes from the hub to the node inside the batch script, so it contains nothing secret.
:class:`NodeReport` comes back by ``POST /hub/api/gpuspawner/report`` with the server's own token. The hub does not
trust it and checks it in :mod:`~jupyterhub_gpuspawner.hub.report.server_report`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from jupyterhub_gpuspawner.wire import bounds

PLAN_VERSION = 1
REPORT_VERSION = 4
"""Launchers submitted by an older hub send version 3, which has no failure, version 2, which is about the server's own
node alone, or version 1, which names the port before anything listens on it."""
PLACEMENT_VERSION = 1
TURN_VERSION = 1
ASKS_TURN = "GPUSPAWNER_ASKS_TURN"
"""Variable of a job that asks the hub whether it runs the server, by :class:`TurnQuestion`, before it does."""
REPORT_LIMIT = 65536
"""Largest report, in bytes."""
STRICT = {"extra": "forbid", "strict": True}
"""How the hub's pydantic reads a document: no field but its own, and no conversion of values."""


@dataclass(frozen=True)
class Step:
    """What an extension adds to a launch: a function that travels with the launcher, and what it is called with."""

    entry: str
    """``package.module:function``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """A JSON object."""
    doing: str = ""
    """What it does, as in *Providing a command*, for the sentence that says that it failed."""


UNKNOWN_STEP = Step("")
"""Value of ``choose`` if a node could not read whether something must choose this server's GPUs."""


@dataclass(frozen=True)
class LaunchPlan:
    """Instructions for the launcher on the node."""

    gpus: int | None = None
    """GPUs that the profile promises; None: all granted."""
    cpus: int | None = None
    """CPUs that the profile promises, as the least; None: all granted."""
    policy: str = "best-effort"
    memory_policy: str = "preferred"
    port_range: tuple[int, int] | None = None
    """First and last port to try, both inclusive; None: any free port."""
    topology_file: str | None = None
    """A topology file to use instead of the hardware; ``{node}`` in it is replaced by Slurm's name of the node."""
    deadline: float = 3.0
    """Time limit for reading the hardware, in seconds."""
    set_threads: bool = True
    """Export OMP_NUM_THREADS and similar variables unless they are set."""
    report: bool = True
    """False: bind and exec only."""
    readers: tuple[str, ...] = ()
    """Classes that read more of the hardware (:class:`~jupyterhub_gpuspawner.node.hardware.Reader`)."""
    choose: Step | None = None
    """Chooses GPUs that Slurm does not manage; None: the server may use all that Slurm granted.

    On a node it may be :data:`UNKNOWN_STEP`: then the server uses no GPU.
    """
    before: tuple[Step, ...] = ()
    """Taken before the server is reported, with its environment and command."""
    beside: tuple[Step, ...] = ()
    """Go on in a process beside the server."""
    instead: Step | None = None
    """Makes the command to be run in the place of the server's."""
    gpu_type: str | None = None
    """Slurm's name of the GPUs' type, for a node with several; None: the profile names none."""

    def dumps(self) -> str:
        """One line of JSON for :func:`recover_plan`."""
        document = asdict(self)
        choose = document.pop("choose")
        return json.dumps({"choose": choose, **dict(sorted(document.items())), "version": PLAN_VERSION})


def recover_plan(text: str) -> tuple[LaunchPlan, str]:
    """Read a plan; returns it with what keeps it from being read (empty: nothing).

    The server starts whatever the plan contains: one that cannot be read, as on a full disk, promises nothing. Fields
    that a newer hub added are ignored. GPUs that Slurm does not manage may be another server's, so then ``choose`` is
    :data:`UNKNOWN_STEP`. :meth:`LaunchPlan.dumps` writes it first, so that it is known even from a truncated plan that
    there is nothing to be chosen.
    """
    try:
        fields = LaunchPlan.__dataclass_fields__
        values = {name: value for name, value in json.loads(text).items() if name in fields}
        for name in {"choose", "instead"} & values.keys():
            values[name] = None if values[name] is None else Step(**values[name])
        for name in {"before", "beside"} & values.keys():
            values[name] = tuple([Step(**step) for step in values[name]])
        for name in {"port_range", "readers"} & values.keys():
            values[name] = None if values[name] is None else tuple(values[name])
        return LaunchPlan(**values), ""
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return LaunchPlan(choose=None if text.lstrip().startswith('{"choose": null,') else UNKNOWN_STEP), str(error)


@dataclass(frozen=True)
class PlacedGpu:
    """One of the server's own GPUs, in the order of ``CUDA_VISIBLE_DEVICES``."""

    __pydantic_config__ = STRICT

    index: bounds.GpuIndex
    uuid: bounds.Text = ""
    pci: bounds.Text = ""
    name: bounds.Text = ""
    memory_mib: bounds.MiB | None = None
    numa_node: bounds.NumaNumber | None = None
    mig: bounds.Text | None = None
    mig_device: bounds.GpuIndex | None = None
    """The number of a MIG device on its GPU, as ``nvidia-smi -L`` counts; None for a whole GPU, and if not known."""
    nic: bounds.Text | None = None
    """The network card that is nearest to it, for a job on several nodes; None if none is known."""
    nic_link: bounds.LinkWord | None = None
    """The link word between the two; ``?`` if it is not known."""


@dataclass(frozen=True)
class NodeGrant:
    """What a job on several nodes has on one of the other nodes, as Slurm reports it to the hub."""

    __pydantic_config__ = STRICT

    node: bounds.Text
    gpus: bounds.Items[bounds.GpuIndex] = ()
    """Slurm's indices, in the order of gres.conf."""
    gpu_type: bounds.Text | None = None
    """Slurm's name of the type, such as ``k80``; None if there is none, or several."""
    cpus: bounds.CpuCount = 0
    """Number of CPUs, as Slurm counts them."""
    memory_mib: bounds.MiB = 0
    placement: PlacementDocument | None = None
    """What the launcher on this node reports, without ``other_nodes``; None: it has not reported."""


@dataclass(frozen=True)
class PlacementDocument:
    """Where a server runs and what it got: version 1, as pages and REST show it."""

    __pydantic_config__ = STRICT

    job_id: bounds.Text | None = None
    """Slurm's job id; None for a server on the hub's own machine."""
    node: bounds.Text = ""
    partition: bounds.Text | None = None
    simulated: bool = False
    gpus: bounds.Items[PlacedGpu] = ()
    cpus: bounds.CpuList = ""
    """CPUs the server may use, as a kernel cpulist (``0-3,8``)."""
    memory_mib: bounds.MiB | None = None
    """The job's memory on the server's node, as allocated or requested; set by the hub, None if unknown."""
    numa_nodes: bounds.Items[bounds.NumaNumber] = ()
    """NUMA nodes of these CPUs, by kernel number; those of the GPUs if the CPUs' are not known."""
    memory_policy: bounds.Text = "none"
    """The memory policy as read from the kernel: ``default``, ``preferred:0``, ``bind:0-1``, …"""
    policy: bounds.Policy = "best-effort"
    aligned: bool | None = None
    """Whether the CPUs are near the GPUs, and the memory near the CPUs; None if unknown."""
    weakest_link: bounds.LinkWord | None = None
    why: bounds.Text = ""
    problems: bounds.Items[bounds.Text] = ()
    started_at: bounds.Time | None = None
    """ISO 8601, UTC."""
    ends_at: bounds.Time | None = None
    other_nodes: bounds.Items[NodeGrant] = ()
    """The job's other nodes, at most 64."""
    weakest_link_over_nodes: bounds.LinkWord | None = None
    """For a job on several nodes the weakest link of all its GPUs: those of each node, and between each GPU and its
    network card. None if that is not known of every node."""

    def to_json(self) -> dict[str, Any]:
        """The JSON document that pages, REST and the spawner's state contain."""
        return {"version": PLACEMENT_VERSION, **asdict(self)}


@dataclass(frozen=True)
class PortReport:
    """What was found at the server's port, in the kernel's table of sockets."""

    __pydantic_config__ = STRICT

    seen: bounds.Seen
    """``process``: one of the server's processes listens; ``user``: a process of the server's user listens, but cannot
    be identified; ``unseen``: the table cannot be read; ``taken``: another process listens."""
    addresses: bounds.Items[bounds.IPAddress] = ()
    """Addresses on which the server listens; ``0.0.0.0`` and ``::`` stand for all."""


@dataclass(frozen=True)
class StartFailure:
    """Why a job ends before its server runs, or what may keep the server from running.

    The job reports it, so its user can have it say anything.
    """

    __pydantic_config__ = STRICT

    fault: bounds.Fault
    subject: bounds.Text = ""
    """What has failed: a module, an environment, a command, a folder."""
    line: bounds.Text = ""
    """The last line of the job's log, of :data:`FAULTS_WITH_LINE` alone."""


@dataclass(frozen=True)
class TurnQuestion:
    """Whether the job with this id runs the server: a second one may have been submitted for it."""

    __pydantic_config__ = STRICT

    job_id: bounds.Text


FAULTS_WITH_LINE = ("setup", "prologue", "script", "server")
"""Faults that say little without the last line of the job's log."""
LOG_MARK = "gpuspawner: "
"""What begins a line of the job's log that the batch script or the launcher has written."""
SLURM_LINE = r"(\[[\d:.T-]+\] )?(slurmstepd|srun|slurmd)\S*: "
"""A pattern of what begins a line of the job's log that Slurm has written."""


@dataclass(frozen=True)
class NodeReport:
    """The launcher's report to the hub: the server's placement, and its port once the server listens on it."""

    __pydantic_config__ = STRICT

    port: bounds.Port
    """0 (null in JSON) while the server does not listen."""
    placement: PlacementDocument = field(default_factory=PlacementDocument)
    topology: bounds.Topology | None = None
    """The node's topology document, for the picture; None if it is unknown or, as a problem then says, too large."""
    door: PortReport | None = None
    """None before anything listens on the port, and in reports of version 1."""
    other_node: bool = False
    """It is about one of the job's other nodes, where no server runs: it has neither port nor door."""
    failure: StartFailure | None = None
    """The job ends, and the report says nothing else; only a fault of a folder comes with a report of a server."""

    def dumps(self) -> str:
        """The report as JSON."""
        document: dict[str, Any] = {
            "version": REPORT_VERSION,
            "port": self.port or None,
            "placement": self.placement.to_json(),
        }
        if self.other_node:
            document["other_node"] = True
        if self.door is not None:
            document["door"] = asdict(self.door)
        if self.topology is not None:
            document["topology"] = self.topology
        if self.failure is not None:
            document["failure"] = asdict(self.failure)
        return json.dumps(document, separators=(",", ":"))
