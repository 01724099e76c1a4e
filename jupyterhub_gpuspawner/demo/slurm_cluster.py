"""A private Slurm of simulated nodes on this host: real daemons, real jobs, device files for GPUs.

One slurmctld, one slurmd for each node, and a munged of their own; no root needed. With root, jobs of any user run as
that user. Nothing of a Slurm that is installed here is touched, and nothing is left behind.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.demo.guard import Guard
from jupyterhub_gpuspawner.demo.ports import free_ports
from jupyterhub_gpuspawner.demo.simulated import DEMO_CLUSTER, ClusterDescription
from jupyterhub_gpuspawner.demo.slurm_files import Place, cgroup_conf, gres_conf, slurm_conf
from jupyterhub_gpuspawner.errors import GPUSpawnerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["DEMO_CLUSTER", "ClusterDescription", "PrivateSlurm", "SlurmFailed", "missing"]

MACHINES = Path(__file__).parent / "machines"
COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "slurmctld", "slurmd", "squeue", "munged")
SEARCH_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""Ordinary users' PATH often lacks the daemons' folders."""
SOCKET_PATH_MAX = 107
"""Bytes in the name of a Unix socket (unix(7)), less its end."""
BELOW_SPOOL = len("/spool/") + 2 * 16 + len("_4294967294.4294967294")
"""Characters that slurmd adds to the folder for a step's socket, with node names of at most 16."""


class SlurmFailed(GPUSpawnerError):
    """The private Slurm did not start, or a command to it failed; the message ends with what was said."""


def missing() -> str | None:
    """Why a private Slurm cannot be had on this host; None where it can."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    absent = [name for name in COMMANDS if shutil.which(name, path=SEARCH_PATH) is None]
    if absent:
        return f"{', '.join(absent)} not found; on Debian and Ubuntu install the packages slurm-wlm and munge"
    return None


class PrivateSlurm:
    """A running Slurm: ``with PrivateSlurm(DEMO_CLUSTER, folder) as slurm:``.

    ``folder`` must not exist; it is removed at the end. Jobs of other users reach it only if they can enter its
    parents. Raises SlurmFailed with the logs' last lines.
    """

    def __init__(self, cluster: ClusterDescription, folder: Path) -> None:
        reason = missing()
        if reason is not None:
            raise SlurmFailed(f"No private Slurm: {reason}.")
        self.cluster = cluster
        self.folder = folder
        self.bin_dir = str(_program("sbatch").parent)
        self.topology_pattern = str(folder / "topology" / "{node}.json")
        """Where the topology of a node is, for the launcher's ``topology_file``."""
        self.pids: dict[str, int] = {}
        """Of ``munged``, ``slurmctld`` and ``slurmd-NODE``."""
        self._guard: Guard | None = None

    def start(self, *, timeout: float = 60.0) -> None:
        """Start it, and wait until every node is idle."""
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            raise SlurmFailed(f"{self.folder} exists already.", hint="Choose a folder that does not.") from None
        self.folder.chmod(0o755)
        short = self.folder.resolve()
        if len(os.fsencode(short)) + BELOW_SPOOL > SOCKET_PATH_MAX:
            short = Path(tempfile.mkdtemp(prefix="gpuspawner-", dir="/tmp"))
            short.chmod(0o755)
        ports = free_ports(1 + len(self.cluster.nodes))
        names = [node.name for node in self.cluster.nodes]
        self.place = Place(
            folder=short,
            hostname=socket.gethostname().partition(".")[0],
            user=_account(),
            controller_port=ports[0],
            node_ports=dict(zip(names, ports[1:], strict=True)),
        )
        self.conf = short / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self.conf)}
        """What commands and hubs need in their environment."""
        self.logs = self.place.logs
        self._guard = Guard([short, self.folder])
        try:
            self._write_files()
            self._start_daemons(time.monotonic() + timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every daemon and every job's process, and remove the folder."""
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
        """What a Slurm command prints, less the blanks around it. Raises SlurmFailed with what it said instead."""
        done = subprocess.run(
            [f"{self.bin_dir}/{command}", *arguments],
            env={**os.environ, **self.environment},
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
        """End slurmctld; it keeps its jobs for the next one."""
        pid = self.pids.pop("slurmctld")
        for number in (signal.SIGCONT, signal.SIGTERM):
            os.kill(pid, number)
        self._wait(lambda: "slurmctld" in self._held.ended(), time.monotonic() + 30.0, "slurmctld did not end")

    def start_controller(self, *, timeout: float = 30.0) -> None:
        """Start slurmctld with the state it saved, and wait until it answers."""
        self._start("slurmctld", [str(_program("slurmctld")), "-D", "-f", str(self.conf)])
        self._wait(self._controller_answers, time.monotonic() + timeout, "slurmctld did not answer")

    def restart_controller(self) -> None:
        """End slurmctld and start it anew."""
        self.stop_controller()
        self.start_controller()

    # --- how ----------------------------------------------------------------------------------------

    @property
    def _held(self) -> Guard:
        if self._guard is None:
            raise SlurmFailed("This private Slurm is not running.")
        return self._guard

    def _write_files(self) -> None:
        place = self.place
        for folder in (place.logs, place.folder / "state", place.folder / "spool", self.folder / "topology"):
            folder.mkdir()
        self.conf.write_text(slurm_conf(self.cluster, place))
        (place.folder / "gres.conf").write_text(gres_conf(self.cluster, place))
        (place.folder / "cgroup.conf").write_text(cgroup_conf(_version()))
        for node in self.cluster.nodes:
            machine = MACHINES / f"{node.machine}.json"
            if machine.exists():
                shutil.copyfile(machine, self.folder / "topology" / f"{node.name}.json")
            devices = place.devices / node.name
            devices.mkdir(parents=True)
            for name in sorted({name for group in node.gpus for files in group.devices for name in files}):
                # Slurm sets CUDA_VISIBLE_DEVICES only for character devices. This one is everywhere, without root.
                (devices / name).symlink_to(os.devnull)
        for path in filter(lambda path: not path.is_symlink(), [*place.folder.rglob("*"), *self.folder.rglob("*")]):
            path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask is
        # Whoever reads munged's key can act as anybody.
        key = place.folder / "munge.key"
        key.touch(mode=0o600, exist_ok=False)
        key.write_bytes(os.urandom(1024))

    def _start_daemons(self, deadline: float) -> None:
        place = self.place
        munged = [
            *(str(_program("munged")), "--foreground", "--force", f"--key-file={place.folder}/munge.key"),
            *(f"--socket={place.munge_socket}", f"--pid-file={place.folder}/munged.pid"),
            *(f"--seed-file={place.folder}/munge.seed", f"--log-file={place.logs}/munged.log", "--num-threads=2"),
        ]
        self._start("munged", munged)
        self._wait(place.munge_socket.exists, deadline, "munged made no socket")
        self.start_controller(timeout=deadline - time.monotonic())
        for node in self.cluster.nodes:
            argv = [str(_program("slurmd")), "-D", "-N", node.name, "-f", str(self.conf)]
            self._start(f"slurmd-{node.name}", argv)
        self._wait(self._all_idle, deadline, "not every node became idle")

    def _start(self, name: str, argv: list[str]) -> None:
        environment = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **self.environment}
        output = self.logs / f"{name}.out"
        self.pids[name] = self._held.start(name, argv, environment=environment, output=output)

    def _controller_answers(self) -> bool:
        with socket.socket() as probe:  # a command would wait for it, and no one would look whether it has ended
            if probe.connect_ex(("127.0.0.1", self.place.controller_port)) != 0:
                return False
        return self._said("scontrol", "ping") is not None

    def _all_idle(self) -> bool:
        said = self._said("sinfo", "-h", "-N", "-o", "%N %T")
        states = dict(line.split() for line in (said or "").splitlines())
        return set(states.values()) == {"idle"} and len(states) == len(self.cluster.nodes)

    def _said(self, command: str, *arguments: str) -> str | None:
        """What a command prints; None where it fails, as it may while daemons start."""
        try:
            return self.run(command, *arguments)
        except (SlurmFailed, subprocess.TimeoutExpired):
            return None

    def _wait(self, ready: Callable[[], bool], deadline: float, fault: str) -> None:
        while not ready():
            ended = {name: status for name, status in self._held.ended().items() if name in self.pids}
            if ended or time.monotonic() > deadline:
                said = "; ".join([fault, *(f"{name} ended with status {status}" for name, status in ended.items())])
                raise SlurmFailed(f"The private Slurm failed: {said}.\n{self.log_ends(list(ended))}")
            time.sleep(0.05)

    def log_ends(self, names: list[str] | None = None, *, lines: int = 8) -> str:
        """The last lines of the daemons' logs and outputs; of all of them where no names are given."""
        text = []
        for name in names or list(self.pids):
            for file in (self.logs / f"{name}.log", self.logs / f"{name}.out"):
                last = file.read_text(errors="replace").splitlines()[-lines:] if file.exists() else []
                if last:
                    text += [f"--- {file}", *last]
        return "\n".join(text)


def _program(name: str) -> Path:
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        raise SlurmFailed(f"{name} not found.")
    return Path(found)


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _version() -> tuple[int, int]:
    """Slurm's version, such as (22, 5)."""
    said = subprocess.run([str(_program("slurmctld")), "-V"], capture_output=True, text=True, timeout=30, check=False)
    found = re.search(r"(\d+)\.(\d+)", said.stdout)
    if found is None:
        raise SlurmFailed(f"slurmctld -V said {said.stdout or said.stderr!r}, which names no version.")
    return int(found[1]), int(found[2])
