"""A private Slurm of simulated nodes on this host: real daemons, real jobs, device files for GPUs.

It runs one slurmctld, one slurmd for each node, and a munged of its own. Root is not needed; with root, each job runs
as its user. Without root slurmd runs every step as its own account, whoever asks for it: so no other account can reach
the socket of munged then, and the daemons do nothing without its credentials. A Slurm that is installed on this host is
not touched, and nothing is left behind.
"""

from __future__ import annotations

import atexit
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from jupyterhub_gpuspawner.demo.guard import Guard
from jupyterhub_gpuspawner.errors import GPUSpawnerError


@dataclass(frozen=True)
class SimulatedGPUs:
    """GPUs of one type on a node, with the same cores: one or more lines of gres.conf(5)."""

    type: str
    """As in ``--gres=gpu:TYPE:n``; a MIG profile's name for MIG devices."""
    devices: tuple[tuple[str, ...], ...]
    """For each GPU, the names of its device files in ``/dev``; a MIG device has three."""
    cores: str = ""
    """The cores closest to them, in Slurm's numbering (``0-11``); empty: no affinity."""


def whole_gpus(gpu_type: str, numbers: Iterable[int], cores: str = "") -> SimulatedGPUs:
    """GPUs that are not partitioned; ``numbers`` are their minor device numbers."""
    return SimulatedGPUs(gpu_type, tuple((f"nvidia{number}",) for number in numbers), cores)


def mig_devices(profile: str, number: int, capabilities: Iterable[int], cores: str = "") -> SimulatedGPUs:
    """MIG devices of GPU ``number``, each with the capability files of its GPU instance and its compute instance."""
    files = ((f"nvidia{number}", f"nvidia-cap{first}", f"nvidia-cap{first + 1}") for first in capabilities)
    return SimulatedGPUs(profile, tuple(files), cores)


@dataclass(frozen=True)
class SimulatedNode:
    """One node: its name in Slurm, and the hardware that slurmd reports."""

    name: str
    machine: str
    """The stem of its topology file in ``demo/machines/``."""
    sockets: int
    cores_per_socket: int
    memory_mib: int
    gpus: tuple[SimulatedGPUs, ...] = ()
    threads: int = 1
    features: tuple[str, ...] = ()
    gres_lines: tuple[str, ...] = ()
    """Lines of gres.conf instead of those that ``gpus`` imply; ``/dev`` in them stands for the node's device files."""


@dataclass(frozen=True)
class SimulatedPartition:
    """A partition; one of the cluster's partitions should be the default."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    max_time: str = "1-00:00:00"


@dataclass(frozen=True)
class ClusterDescription:
    """A whole simulated cluster."""

    nodes: tuple[SimulatedNode, ...]
    partitions: tuple[SimulatedPartition, ...]
    name: str = "demo"
    limits_memory: bool = False
    """slurmd kills a job that uses more memory than it asked for. It looks every few seconds: there are no cgroups."""


DEMO_CLUSTER = ClusterDescription(
    nodes=(
        SimulatedNode(
            "g1",
            machine="k80-2socket",
            sockets=2,
            cores_per_socket=12,
            memory_mib=64000,
            gpus=(whole_gpus("k80", range(2), cores="0-11"), whole_gpus("k80", range(2, 4), cores="12-23")),
            features=("k80",),
        ),
        SimulatedNode(
            "d1",
            machine="dgx1",
            sockets=2,
            cores_per_socket=20,
            memory_mib=512000,
            gpus=(whole_gpus("p100", range(4), cores="0-19"), whole_gpus("p100", range(4, 8), cores="20-39")),
            features=("p100", "nvlink"),
        ),
        SimulatedNode(
            "m1",
            machine="a100-mig",
            sockets=2,
            cores_per_socket=16,
            memory_mib=512000,
            gpus=(
                whole_gpus("a100", range(2), cores="0-15"),
                mig_devices("1g.10gb", 2, (21, 30, 39, 48), cores="16-31"),
            ),
            features=("a100", "mig"),
        ),
        SimulatedNode("c1", machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000, features=("cpu",)),
        SimulatedNode("c2", machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000, features=("cpu",)),
    ),
    partitions=(
        SimulatedPartition("gpu", ("g1", "d1", "m1")),
        SimulatedPartition("batch", ("c1", "c2"), default=True),
    ),
)
"""A workshop's K80 node, a DGX-1, an A100 node with one GPU partitioned by MIG, and two nodes without GPUs."""


@dataclass(frozen=True)
class Layout:
    """Folders, ports and account of a private Slurm on this host."""

    folder: Path
    """The daemons' folder; its path must be short, since slurmd creates Unix sockets in it."""
    hostname: str
    user: str
    """The account that the daemons run as."""
    controller_port: int
    node_ports: Mapping[str, int]

    @property
    def munge_socket(self) -> Path:
        """The socket of the private munged."""
        return self.folder / "munge.socket"

    @property
    def logs(self) -> Path:
        """The folder of the daemons' logs."""
        return self.folder / "log"

    @property
    def temporary(self) -> Path:
        """A folder for what jobs would leave in /tmp when they are killed: a value for their TMPDIR."""
        return self.folder / "tmp"

    @property
    def devices(self) -> Path:
        """The folder with one subfolder of device files for each node."""
        return self.folder / "dev"


CONF = Path(__file__).with_name("slurm.conf")
"""slurm.conf without its nodes and partitions."""
_LIMITS_MEMORY = """jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill,UsePss
JobAcctGatherFrequency=task=5"""


def slurm_conf(cluster: ClusterDescription, layout: Layout) -> str:
    """slurm.conf: all nodes on this host, distinguished by their ports.

    GPUs and cores are allocated as on a real site; what would affect the host (cgroups, accounting) is off.
    Intervals are short, but a job can still be queried for five minutes after its end.
    """
    gathering = _LIMITS_MEMORY if cluster.limits_memory else "jobacct_gather/none"
    lines = [CONF.read_text().format(name=cluster.name, layout=layout, gathering=gathering).rstrip()]
    lines += [_node(node, layout) for node in cluster.nodes]
    for partition in cluster.partitions:
        default = "YES" if partition.default else "NO"
        lines.append(
            f"PartitionName={partition.name} Nodes={','.join(partition.nodes)} Default={default} "
            f"DefaultTime=01:00:00 MaxTime={partition.max_time} State=UP"
        )
    return "\n".join(lines) + "\n"


def _node(node: SimulatedNode, layout: Layout) -> str:
    types = Counter(group.type for group in node.gpus for _ in group.devices)
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in types.items())
    words = [
        f"NodeName={node.name} NodeAddr=127.0.0.1 NodeHostname={layout.hostname} Port={layout.node_ports[node.name]}",
        f"Sockets={node.sockets} CoresPerSocket={node.cores_per_socket} ThreadsPerCore={node.threads}",
        f"RealMemory={node.memory_mib}",
        f"Gres={gres}" if gres else "",
        f"Feature={','.join(node.features)}" if node.features else "",
        "State=UNKNOWN",
    ]
    return " ".join(filter(None, words))


def gres_conf(cluster: ClusterDescription, layout: Layout) -> str:
    """gres.conf: a line for each GPU, in the order in which Slurm counts them."""
    lines = ["AutoDetect=off"]
    for node in cluster.nodes:
        devices = layout.devices / node.name
        own = [line.replace("/dev/", f"{devices}/") for line in node.gres_lines]
        implied = [line for group in node.gpus for line in _gres_lines(group, devices)]
        lines += [f"NodeName={node.name} {line}" for line in own or implied]
    return "\n".join(lines) + "\n"


def _gres_lines(group: SimulatedGPUs, devices: Path) -> Iterator[str]:
    cores = f" Cores={group.cores}" if group.cores else ""
    for files in group.devices:
        key = "File" if len(files) == 1 else "MultipleFiles"
        yield f"Name=gpu Type={group.type} {key}={','.join(str(devices / name) for name in files)}{cores}"


_MODE = 0o755 if os.geteuid() == 0 else 0o700
"""Of the folder: other users' jobs have to enter that of root."""
MACHINES = Path(__file__).parent / "machines"
COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "slurmctld", "slurmd", "squeue", "munged")
SEARCH_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""PATH, and the folders of the daemons, which an ordinary user's PATH often lacks."""
SOCKET_PATH_MAX = 107
"""Bytes in the path of a Unix socket (unix(7)), without the terminating NUL."""
BELOW_SPOOL = len("/spool/") + 2 * 16 + len("_4294967294.4294967294")
"""Characters that slurmd appends to the folder for the socket of a step, with node names of at most 16 characters."""


class SlurmFailed(GPUSpawnerError):
    """The private Slurm did not start, or one of its commands failed; the message ends with the output."""


def missing() -> str | None:
    """Why a private Slurm cannot run on this host; None if it can."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    absent = [name for name in COMMANDS if shutil.which(name, path=SEARCH_PATH) is None]
    if absent:
        return f"{', '.join(absent)} not found; on Debian and Ubuntu install the packages slurm-wlm and munge"
    return None


class PrivateSlurm:
    """A running Slurm: ``with PrivateSlurm(DEMO_CLUSTER, folder) as slurm:``.

    ``folder`` must not exist; it is removed at the end. Jobs of other users can use it only if they may enter its
    parent folders. Raises SlurmFailed with the last lines of the logs.
    """

    def __init__(self, cluster: ClusterDescription, folder: Path) -> None:
        reason = missing()
        if reason is not None:
            raise SlurmFailed(f"A private Slurm cannot be started: {reason}.")
        self.cluster = cluster
        self.folder = folder
        self.bin_dir = str(_program("sbatch").parent)
        self.topology_pattern = str(folder / "topology" / "{node}.json")
        """The topology files, with ``{node}`` for the node's name: a value for the launcher's ``topology_file``."""
        self.pids: dict[str, int] = {}
        """Process ids of ``munged``, ``slurmctld`` and ``slurmd-NODE``."""
        self._guard: Guard | None = None

    def start(self, *, timeout: float = 60.0) -> None:
        """Start the daemons, and wait until every node is idle. Raises SlurmFailed."""
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            raise SlurmFailed(f"{self.folder} exists already.", hint="Choose a folder that does not.") from None
        self.folder.chmod(_MODE)
        short = self.folder.resolve()
        if len(os.fsencode(short)) + BELOW_SPOOL > SOCKET_PATH_MAX:
            short = Path(tempfile.mkdtemp(prefix="gpuspawner-", dir="/tmp"))
            short.chmod(_MODE)
        ports = free_ports(1 + len(self.cluster.nodes))
        names = [node.name for node in self.cluster.nodes]
        self.layout = Layout(
            folder=short,
            hostname=socket.gethostname().partition(".")[0],
            user=_account(),
            controller_port=ports[0],
            node_ports=dict(zip(names, ports[1:], strict=True)),
        )
        self.conf = short / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.conf)}
        """Variables that commands and hubs need in their environment."""
        self.logs = self.layout.logs
        self._guard = Guard([short, self.folder])
        try:
            self._write_files()
            self._start_daemons(time.monotonic() + timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every daemon and every process of a job, and remove the folder."""
        if self._guard is not None:
            self._guard.stop()
            self._guard = None
        self.pids.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, command: str, *arguments: str, timeout: float = 30.0) -> str:
        """Run a Slurm command and return its output, stripped. Raises SlurmFailed with its standard error."""
        done = subprocess.run(
            [f"{self.bin_dir}/{command}", *arguments],
            env={**_without_slurms(os.environ), **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise SlurmFailed(f"{command} exited with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    # --- faults -----------------------------------------------------------------------------------

    def stop_controller(self) -> None:
        """End slurmctld; its saved state keeps the jobs for the next one."""
        pid = self.pids.pop("slurmctld")
        for number in (signal.SIGCONT, signal.SIGTERM):
            os.kill(pid, number)
        self._wait(lambda: "slurmctld" in self._held.ended(), time.monotonic() + 30.0, "slurmctld did not exit")

    def start_controller(self, *, timeout: float = 60.0, nodes: bool = True) -> None:
        """Start slurmctld from its saved state, and wait until it answers and, with ``nodes``, they have registered."""
        deadline = time.monotonic() + timeout
        self._start("slurmctld", [str(_program("slurmctld")), "-D", "-f", str(self.conf)])
        self._wait(self._controller_answers, deadline, "slurmctld did not respond")
        if nodes:
            self._wait(self._nodes_registered, deadline, "not every node registered again")

    def restart_controller(self) -> None:
        """End slurmctld and start it again."""
        self.stop_controller()
        self.start_controller()

    # --- internals ----------------------------------------------------------------------------------

    @property
    def _held(self) -> Guard:
        if self._guard is None:
            raise SlurmFailed("This private Slurm is not running.")
        return self._guard

    def _write_files(self) -> None:
        layout = self.layout
        for folder in (layout.logs, layout.temporary, layout.folder / "state", layout.folder / "spool"):
            folder.mkdir()
        (self.folder / "topology").mkdir()
        self.conf.write_text(slurm_conf(self.cluster, layout))
        (layout.folder / "gres.conf").write_text(gres_conf(self.cluster, layout))
        # no cgroups: without this line a newer slurmd creates some; 22.05 does not know the value
        is_newer = tuple(map(int, slurm_version().split(".")[:2])) >= (23, 2)
        (layout.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if is_newer else "")
        for node in self.cluster.nodes:
            machine = MACHINES / f"{node.machine}.json"
            if machine.exists():
                shutil.copyfile(machine, self.folder / "topology" / f"{node.name}.json")
            devices = layout.devices / node.name
            devices.mkdir(parents=True)
            for name in sorted({name for group in node.gpus for files in group.devices for name in files}):
                # Slurm sets CUDA_VISIBLE_DEVICES only for character devices; this one exists everywhere, without root.
                (devices / name).symlink_to(os.devnull)
        for path in filter(lambda path: not path.is_symlink(), [*layout.folder.rglob("*"), *self.folder.rglob("*")]):
            path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask is
        layout.temporary.chmod(0o1777)
        # Anyone who can read munged's key can act as any user.
        key = layout.folder / "munge.key"
        key.touch(mode=0o600, exist_ok=False)
        key.write_bytes(os.urandom(1024))

    def _start_daemons(self, deadline: float) -> None:
        layout = self.layout
        munged = [
            *(str(_program("munged")), "--foreground", "--force", f"--key-file={layout.folder}/munge.key"),
            *(f"--socket={layout.munge_socket}", f"--pid-file={layout.folder}/munged.pid"),
            *(f"--seed-file={layout.folder}/munge.seed", f"--log-file={layout.logs}/munged.log", "--num-threads=2"),
        ]
        self._start("munged", munged)
        self._wait(layout.munge_socket.exists, deadline, "munged did not create its socket")
        self.start_controller(timeout=deadline - time.monotonic(), nodes=False)
        for name in self._nodes_with_power():
            self._start_node(name)
        self._wait(self._all_idle, deadline, "not every node became idle")

    def _start_node(self, name: str) -> None:
        self._start(f"slurmd-{name}", [str(_program("slurmd")), "-D", "-N", name, "-f", str(self.conf)])

    def _start(self, name: str, argv: list[str]) -> None:
        environment = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **self.environment}
        output = self.logs / f"{name}.out"
        self.pids[name] = self._held.start(name, argv, environment=environment, output=output)

    def _controller_answers(self) -> bool:
        with socket.socket() as probe:  # a command would block, and would not notice that the daemon has ended
            if probe.connect_ex(("127.0.0.1", self.layout.controller_port)) != 0:
                return False
        return self._output_of("scontrol", "ping") is not None

    def _nodes_with_power(self) -> list[str]:
        """The nodes whose slurmd starts with the cluster: all of them here."""
        return [node.name for node in self.cluster.nodes]

    def _all_idle(self) -> bool:
        states = self._node_states()
        return all(states.get(name) == "idle" for name in self._nodes_with_power())

    def _nodes_registered(self) -> bool:
        """Whether slurmctld knows the state of each node; ``*`` marks one that does not respond yet."""
        states = self._node_states()
        return bool(states) and not any(state == "unknown" or state.endswith("*") for state in states.values())

    def _node_states(self) -> dict[str, str]:
        lines = self._output_of("sinfo", "-h", "-N", "-o", "%N %T")
        return dict(line.split() for line in (lines or "").splitlines())

    def _output_of(self, command: str, *arguments: str) -> str | None:
        """The output of a command; None if it fails, as it may while daemons start."""
        try:
            return self.run(command, *arguments)
        except (SlurmFailed, subprocess.TimeoutExpired):
            return None

    def _wait(self, ready: Callable[[], bool], deadline: float, fault: str) -> None:
        while not ready():
            ended = {name: status for name, status in self._held.ended().items() if name in self.pids}
            if ended or time.monotonic() > deadline:
                faults = "; ".join([fault, *(f"{name} ended with status {status}" for name, status in ended.items())])
                raise SlurmFailed(f"The private Slurm failed: {faults}.\n{self.log_ends(list(ended))}")
            time.sleep(0.05)

    def log_ends(self, names: list[str] | None = None, *, lines: int = 8) -> str:
        """The last lines of the daemons' logs and output; of all daemons if no names are given."""
        text = []
        for name in names or list(self.pids):
            for file in (self.logs / f"{name}.log", self.logs / f"{name}.out"):
                last = file.read_text(errors="replace").splitlines()[-lines:] if file.exists() else []
                if last:
                    text += [f"--- {file}", *last]
        return "\n".join(text)


def _without_slurms(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of Slurm's commands, by which a site may lead them to its own cluster."""
    return {name: value for name, value in variables.items() if not name.startswith(_OF_SLURM)}


_OF_SLURM = ("SLURM_", "SBATCH_", "SALLOC_", "SACCT_", "SCANCEL_", "SINFO_", "SQUEUE_")


def free_ports(count: int) -> list[int]:
    """Unused ports, below the range that the kernel uses for outgoing connections. Raises GPUSpawnerError."""
    with ExitStack() as stack:
        ports: list[int] = []
        own, order = _own_ports(), random.SystemRandom()  # not by the seed that tests set, which all processes have
        for port in [*order.sample(own, len(own)), *order.sample(range(20000, 32000), 2000)]:
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise GPUSpawnerError(f"There are no {count} free ports from 20000 to 31999.")


@cache
def _own_ports() -> range:
    """The ports among which this process chooses first, and no other process does.

    A port is not in use as soon as it is chosen, nor while a program is started anew. A socket without a file says that
    the ports are taken, for as long as the process runs (unix(7), abstract).
    """
    parts = range(20000, 32000, 120)
    for first in random.SystemRandom().sample(parts, len(parts)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0jupyterhub-gpuspawner-ports-{first}")
        except OSError:
            claim.close()
            continue
        atexit.register(claim.close)
        return range(first, first + 120)
    return range(20000, 32000)


def _program(name: str) -> Path:
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        raise SlurmFailed(f"{name} not found.")
    return Path(path)


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def slurm_version() -> str:
    """The version of this machine's Slurm, such as ``22.05.8``. Raises SlurmFailed."""
    output = subprocess.run([str(_program("slurmctld")), "-V"], capture_output=True, text=True, timeout=30, check=False)
    version = re.search(r"\d+\.\d+\S*", output.stdout)
    if version is None:
        raise SlurmFailed(f"slurmctld -V said {output.stdout or output.stderr!r}, which contains no version.")
    return version[0]
