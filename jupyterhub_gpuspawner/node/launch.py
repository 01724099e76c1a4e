"""From the job's script to the server: observe, choose, bind, report, exec.

``python3 launch.pyz --plan FILE -- COMMAND ARGUMENT…``; the plan may stand in place of FILE as JSON. Each step may fail
and only says so: what cannot be learned or done is a sentence in the report, and the command is started all the same.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Callable, List, Mapping, MutableMapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, TypeVar

from jupyterhub_gpuspawner.node import binding, grant, port, report
from jupyterhub_gpuspawner.topology import NodeTopology, to_document
from jupyterhub_gpuspawner.units import format_cpulist
from jupyterhub_gpuspawner.wire import LaunchPlan, NodeReport, PlacedGpu, PlacementDocument, parse_plan

T = TypeVar("T")

USAGE = "usage: launch.pyz --plan FILE|JSON -- COMMAND [ARGUMENT...]"
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Set to the number of cores unless set; without them each library starts a thread for every CPU of the node."""
_PORT = "{port}"


class Gpus(NamedTuple):
    """The server's GPUs, in order, and what is said about them."""

    placed: Tuple[PlacedGpu, ...] = ()
    positions: Tuple[int, ...] = ()
    visible: Optional[str] = None
    """For ``CUDA_VISIBLE_DEVICES``; None leaves it as it is."""
    weakest_link: Optional[str] = None
    numa_nodes: Tuple[int, ...] = ()
    aligned: Optional[bool] = None
    why: str = ""


class Launch:
    """One start of one server: its plan, its environment (changed step by step), and what went wrong so far."""

    def __init__(self, plan: LaunchPlan, environ: MutableMapping[str, str]) -> None:
        self.plan = plan
        self.environ = environ
        self.problems: List[str] = []
        self.node = environ.get("SLURMD_NODENAME") or os.uname().nodename
        self._detail: Optional[grant.JobDetail] = None

    def attempt(self, doing: str, work: Callable[[], T], otherwise: T) -> T:
        """What ``work`` returns; if it fails, a sentence that names what was being done, and ``otherwise``."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the notebook always starts
            self.problems.append(f"{doing} failed: {type(error).__name__}: {error}")
            return otherwise

    def ask_slurm(self) -> grant.JobDetail:
        """What slurmctld says of this job; asked once at most."""
        if self._detail is None:
            from jupyterhub_gpuspawner.node import scontrol

            self._detail = self.attempt("Asking scontrol", lambda: scontrol.ask(self.environ), grant.JobDetail())
        return self._detail

    def place(self) -> Tuple[PlacementDocument, NodeTopology]:
        """Observe, choose and bind; the environment is ready for the command after it."""
        unknown = NodeTopology(hostname=self.node)
        topology = self.attempt("Looking at the node", self._observe, unknown)
        self.problems.extend(topology.problems)
        allowed = self.attempt("Reading the CPU affinity", binding.allowed_cpus, ())
        cpus = self.attempt("Reading the granted CPUs", lambda: self._granted_cpus(topology, allowed), allowed)
        gpus = self.attempt("Choosing GPUs", lambda: self._gpus(topology, cpus), Gpus())
        cpus = self.attempt("Choosing CPUs", lambda: self._cpus(topology, cpus, gpus), cpus)
        memory = "none"
        if topology.simulated:
            self.problems.append("This node is simulated: CPUs and memory of the real machine are not bound.")
        else:
            cpus = self.attempt("Binding CPUs", lambda: self._bind_cpus(cpus), allowed)
            memory = self.attempt("Binding memory", lambda: self._bind_memory(topology, cpus, gpus), "none")
        self.attempt("Setting the environment", lambda: self._export(topology, cpus, gpus), None)
        document = PlacementDocument(
            job_id=self.environ.get("SLURM_JOB_ID"),
            node=self.node,
            partition=self.environ.get("SLURM_JOB_PARTITION"),
            simulated=topology.simulated,
            gpus=gpus.placed,
            cpus=format_cpulist(cpus),
            numa_nodes=_numa_nodes(topology, cpus) or gpus.numa_nodes,
            memory_policy=memory,
            policy=self.plan.policy,
            aligned=gpus.aligned,
            weakest_link=gpus.weakest_link,
            why=gpus.why,
            problems=tuple(dict.fromkeys(self.problems)),
            started_at=utc(time.time()),
            ends_at=self.attempt("Reading the job's end", self._ends_at, None),
        )
        return document, topology

    def listen(self) -> int:
        """Pick the server's port and put it into ``JUPYTERHUB_SERVICE_URL``."""
        text = self.environ.get("JUPYTERHUB_SERVICE_URL", "")
        url = port.parse_url(text) if text else port.Url("http", "", None, "/")
        number = self._port(url)
        if text:
            self.environ["JUPYTERHUB_SERVICE_URL"] = str(url._replace(port=number))
        return number

    def _port(self, url: port.Url) -> int:
        tries: List[Tuple[str, Optional[Tuple[int, int]], int]] = [(url.host, self.plan.port_range, url.port or 0)]
        tries += [(url.host, None, 0), ("", None, 0)]
        for host, port_range, wish in tries:
            try:
                return port.pick(host, port_range=port_range, wish=wish)
            except OSError as error:
                self.problems.append(f"No port on {host or 'any address'} as planned: {error.strerror or error}.")
        return 0

    def _observe(self) -> NodeTopology:
        from jupyterhub_gpuspawner.node.observe import observe

        return observe(node=self.node, topology_file=self.plan.topology_file, deadline=self.plan.deadline)

    def _granted_cpus(self, topology: NodeTopology, allowed: Tuple[int, ...]) -> Tuple[int, ...]:
        granted = grant.cpus(self.environ, topology, allowed, self.ask_slurm)
        self.problems.extend(granted.problems)
        return granted.cpus

    def _gpus(self, topology: NodeTopology, cpus: Tuple[int, ...]) -> Gpus:
        granted = grant.gpus(self.environ, topology, self.ask_slurm)
        self.problems.extend(granted.problems)
        promised = self.plan.gpus or 0
        if not granted.managed and not promised:
            return Gpus()
        if promised > len(granted.names):
            self.problems.append(f"The profile promised {promised} GPUs; {len(granted.names)} could be had.")
        if not granted.names:
            return self._no_gpus(topology, granted)
        count = promised or len(granted.names)
        if granted.positions is None:
            names = granted.names[:count]
            return Gpus(placed=tuple(_placed(name) for name in names), visible=",".join(names))
        from jupyterhub_gpuspawner import placement

        choice = placement.choose(
            topology, granted=granted.positions, count=count, cpus=cpus, policy=self.plan.policy
        )
        named = dict(zip(granted.positions, granted.names))
        names = tuple(named[position] for position in choice.gpus)
        return Gpus(
            placed=tuple(_placed(named[position], topology, position) for position in choice.gpus),
            positions=choice.gpus,
            visible=",".join(names),
            weakest_link=choice.weakest_link,
            numa_nodes=choice.numa_nodes,
            aligned=choice.aligned,
            why=choice.why,
        )

    def _no_gpus(self, topology: NodeTopology, granted: grant.GpuGrant) -> Gpus:
        """No GPU is this job's: those that the node has are hidden from the server."""
        if granted.positions is None or not topology.gpus:
            return Gpus()
        return Gpus(visible="", why="Slurm granted no GPU, so the node's GPUs are hidden.")

    def _cpus(self, topology: NodeTopology, granted: Tuple[int, ...], gpus: Gpus) -> Tuple[int, ...]:
        promised = self.plan.cpus or len(granted)
        if promised > len(granted):
            self.problems.append(f"The profile promised {promised} CPUs; {len(granted)} could be had.")
        if promised >= len(granted):
            return granted
        from jupyterhub_gpuspawner import placement

        return placement.choose_cpus(topology, granted=granted, count=promised, gpus=gpus.positions)

    def _bind_cpus(self, cpus: Tuple[int, ...]) -> Tuple[int, ...]:
        bound = binding.bind_cpus(cpus)
        self.problems.extend(bound.problems)
        return bound.cpus

    def _bind_memory(self, topology: NodeTopology, cpus: Tuple[int, ...], gpus: Gpus) -> str:
        from jupyterhub_gpuspawner import placement

        nodes = placement.memory_nodes(topology, cpus, gpus.positions)
        bound = binding.bind_memory(self.plan.memory_policy, nodes)
        self.problems.extend(bound.problems)
        return bound.policy

    def _export(self, topology: NodeTopology, cpus: Tuple[int, ...], gpus: Gpus) -> None:
        if gpus.visible is not None:
            self.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            self.environ["CUDA_VISIBLE_DEVICES"] = gpus.visible
            self.environ["GPUSPAWNER_GPUS"] = gpus.visible
        self.environ["GPUSPAWNER_CPUS"] = format_cpulist(cpus)
        self.environ["GPUSPAWNER_NUMA_NODES"] = format_cpulist(_numa_nodes(topology, cpus))
        if self.plan.set_threads and cpus:
            for name in THREADS:
                self.environ.setdefault(name, str(_cores(topology, cpus)))

    def _ends_at(self) -> Optional[str]:
        end = self.environ.get("SLURM_JOB_END_TIME", "")
        return utc(int(end)) if end.isdigit() else None


def _placed(name: str, topology: Optional[NodeTopology] = None, position: int = 0) -> PlacedGpu:
    """A GPU for the report; its index is the number in ``CUDA_VISIBLE_DEVICES``, if that holds numbers."""
    if topology is None:
        return PlacedGpu(index=int(name)) if name.isdigit() else PlacedGpu(index=0, uuid=name)
    gpu = topology.gpus[position]
    return PlacedGpu(
        index=int(name) if name.isdigit() else gpu.index,
        uuid=gpu.uuid,
        pci=gpu.pci,
        name=gpu.name,
        memory_mib=gpu.memory_mib,
        numa_node=gpu.numa_node,
        mig=gpu.mig,
    )


def _numa_nodes(topology: NodeTopology, cpus: Sequence[int]) -> Tuple[int, ...]:
    nodes = {topology.numa_node_of_cpu(cpu) for cpu in cpus}
    return tuple(sorted(node for node in nodes if node is not None))


def _cores(topology: NodeTopology, cpus: Sequence[int]) -> int:
    """Cores, not threads."""
    core_of = {cpu: core[0] for core in topology.siblings for cpu in core}
    return len({core_of.get(cpu, cpu) for cpu in cpus})


def utc(seconds: float) -> str:
    """ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def launch(plan: LaunchPlan, command: Sequence[str], environ: MutableMapping[str, str], *problems: str) -> NoReturn:
    """Place, report if the plan says so, and become ``command``; ``{port}`` in its arguments is the server's port."""
    this = Launch(plan, environ)
    this.problems.extend(problems)
    document, topology = this.attempt(
        "Placing the server", this.place, (PlacementDocument(node=this.node), NodeTopology())
    )
    if plan.report:
        number = this.attempt("Picking a port", this.listen, 0)
        command = [argument.replace(_PORT, str(number)) for argument in command] if number else command
        this.attempt("Reporting", lambda: _report(this, number, document, topology), None)
    for problem in dict.fromkeys(this.problems):
        report.complain(problem)
    become(command, environ)


def _report(this: Launch, number: int, document: PlacementDocument, topology: NodeTopology) -> None:
    from dataclasses import replace

    document = replace(document, problems=tuple(dict.fromkeys(this.problems)))
    nothing = not topology.gpus and not topology.numa_nodes
    failure = report.deliver(
        NodeReport(number, document, None if nothing else to_document(topology)), this.environ
    )
    if failure:
        this.problems.append(failure)


def become(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by ``command``; exits 127 where there is no such command, 126 where it can't be run."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), dict(environ))  # noqa: S606 - no shell is wanted
    except FileNotFoundError:
        report.complain(f"{command[0]}: no such command; PATH is {environ.get('PATH', 'not set')}")
        raise SystemExit(127) from None
    except OSError as error:
        report.complain(f"{command[0]}: {error.strerror}; PATH is {environ.get('PATH', 'not set')}")
        raise SystemExit(126) from None


def parse_arguments(arguments: Sequence[str]) -> Tuple[str, List[str]]:
    """The plan (a file's name or JSON; empty where none is given) and the command; raises ValueError."""
    words = list(arguments)
    plan = ""
    while words and words[0] != "--":
        word = words.pop(0)
        if word == "--plan" and words:
            plan = words.pop(0)
        elif word.startswith("--plan="):
            plan = word[len("--plan=") :]
        else:
            raise ValueError(f"{word}: not understood")
    if len(words) < 2:
        raise ValueError("no command after --")
    return plan, words[1:]


def read_plan(text: str) -> LaunchPlan:
    """The plan that ``text`` is or names; raises OSError or ValueError."""
    if not text:
        return LaunchPlan()
    if text.lstrip().startswith("{"):
        return parse_plan(text)
    with open(text, encoding="utf-8") as file:
        return parse_plan(file.read())


def main(arguments: Sequence[str]) -> NoReturn:
    """The zipapp's entry: ``--plan FILE|JSON -- COMMAND ARGUMENT…``."""
    try:
        text, command = parse_arguments(arguments)
    except ValueError as error:
        report.complain(f"{error}; {USAGE}")
        raise SystemExit(2) from None
    problems = []
    try:
        plan = read_plan(text)
    except Exception as error:  # noqa: BLE001 - the notebook always starts
        plan = LaunchPlan()
        problems.append(f"The launch plan could not be read: {error}")
    launch(plan, command, os.environ, *problems)
