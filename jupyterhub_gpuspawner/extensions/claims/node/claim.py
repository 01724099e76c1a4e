"""Placing a server that must claim its GPUs: the best of the unused ones, among those that Slurm leaves to it.

For sites whose Slurm does not manage GPUs, and for nodes that several servers share. GPUs are indices into
``topology.gpus``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.grant import UNMANAGED, GpuGrant
from jupyterhub_gpuspawner.node.placing import Launch
from jupyterhub_gpuspawner.placement import choice
from jupyterhub_gpuspawner.units import format_cpulist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jupyterhub_gpuspawner.node.hardware import Reader
    from jupyterhub_gpuspawner.node.nvml import GpuReader
    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument


# Claims on GPUs by file locks, on nodes where Slurm does not allocate them.
#
# In a folder that all jobs of a node share, each user has one file per GPU. A GPU is claimed while one of its files is
# locked (flock(2)). The lock belongs to an open file that the server inherits, so it ends with the server, however
# that ends. To claim a GPU is to lock one's own file and then to find no other user's file locked: of two servers that
# try at the same time, at most one succeeds. Nobody can remove or replace another user's file, since the folder
# belongs to root and is sticky; the most that a hostile user can do is to claim GPUs without using them. A file is its
# owner's, whatever its name says: where others have made one with a user's uid in its name, that user's gets a random
# ending.

PREFIX = "gpuspawner-claim"
TURN = 2.0
"""Seconds to wait while other servers choose; after that the choice may be worse, but is still safe."""
_STEP = 0.005
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9+-]+", re.ASCII)


class ClaimError(Exception):
    """The folder cannot be used for claims; the text says why, and what would be right."""


@dataclass(frozen=True)
class Claim:
    """The GPUs claimed by this process, and by the server it becomes, until that ends."""

    gpus: tuple[int, ...] = ()
    """In the order in which they were chosen."""
    claimed_elsewhere: tuple[int, ...] = ()
    """GPUs claimed by other servers."""
    problems: tuple[str, ...] = ()


def claim(
    folder: str,
    names: Mapping[int, str],
    choose: Callable[[Sequence[int]], Sequence[int]],
    *,
    turn: float = TURN,
) -> Claim:
    """Claim the GPUs that ``choose`` picks from the unclaimed ones; raises :class:`ClaimError`.

    ``names`` gives each GPU a name on which all jobs that use the folder agree. ``a+b`` is a part of ``a`` (a MIG
    device): a claim on either excludes a claim on the other. ``choose`` gets the free GPUs, and is called again if
    another server was faster.
    """
    problems: list[str] = []
    directory = _open_folder(folder)
    try:
        with _turn(directory, turn) as mine:
            if not mine:
                problems.append(f"Other servers took more than {turn:g} s to choose GPUs; this one did not wait.")
            return _claim(directory, names, choose, problems)
    finally:
        os.close(directory)


def _claim(
    directory: int,
    names: Mapping[int, str],
    choose: Callable[[Sequence[int]], Sequence[int]],
    problems: list[str],
) -> Claim:
    files = {gpu: f"{PREFIX}.{_NOT_IN_A_NAME.sub('_', name)}" for gpu, name in names.items()}
    claimed = [gpu for gpu, file in files.items() if _is_claimed(directory, file, "")]
    while True:
        free = [gpu for gpu in files if gpu not in claimed]
        held: dict[int, int] = {}
        for gpu in choose(free) if free else ():
            try:
                descriptor = _lock(directory, files[gpu])
            except OSError as error:
                problems.append(f"The lock of {names[gpu]} cannot be used: {error.strerror}.")
                descriptor = None
            if descriptor is None:
                claimed.append(gpu)
                break
            held[gpu] = descriptor
        else:
            for descriptor in held.values():
                child.keep_open(descriptor)
            return Claim(tuple(held), tuple(claimed), tuple(problems))
        for descriptor in held.values():
            os.close(descriptor)


def _lock(directory: int, file: str) -> int | None:
    """Lock this user's file of a GPU; None if the GPU is claimed. Raises OSError if no file can be had."""
    try:
        return _lock_own(directory, file, _own_file(directory, file))
    except OSError:  # another user's, or no file at all
        return _lock_own(directory, file, f"{file}.{os.geteuid()}-{os.urandom(8).hex()}")


def _lock_own(directory: int, file: str, own: str) -> int | None:
    descriptor = _make(own, os.O_CREAT, directory)
    try:
        if _is_ours(descriptor, own, directory) and not _is_claimed(directory, file, own):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _own_file(directory: int, file: str) -> str:
    """The name of this user's file of a GPU: anybody can make one of that name, but not with this owner."""
    uid = os.geteuid()
    for name in sorted(os.listdir(directory)):
        base, _, owner = name.rpartition(".")
        if base == file and owner.partition("-")[0] == str(uid):
            with suppress(OSError):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if status.st_uid == uid and stat.S_ISREG(status.st_mode):
                    return name
    return f"{file}.{uid}"


def _make(name: str, flags: int, directory: int) -> int:
    """Open the file, or create it, readable for all whatever the umask is: others must be able to see its lock."""
    umask = os.umask(0o022)
    try:
        return os.open(name, os.O_RDWR | flags | _SAFE, 0o644, dir_fd=directory)
    finally:
        os.umask(umask)


def _is_ours(descriptor: int, own: str, directory: int) -> bool:
    """Lock our own file; False if another process of this user has it, or the folder now holds another file."""
    opened = os.fstat(descriptor)
    if not stat.S_ISREG(opened.st_mode) or opened.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"{own} is not a file of this user's")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.utime(descriptor)  # programs that clean up old files go by the time
    there = os.stat(own, dir_fd=directory, follow_symlinks=False)
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def _is_claimed(directory: int, file: str, own: str) -> bool:
    """Whether a file of this GPU, other than ``own``, is locked. A file counts only if its name has its owner's uid."""
    for name in os.listdir(directory):
        base, _, uid = name.rpartition(".")
        if name != own and _overlap(base, file) and _is_locked(directory, name, uid):
            return True
    return False


def _overlap(one: str, other: str) -> bool:
    """Whether the files belong to the same GPU, or to a GPU and a part of it."""
    return one == other or one.startswith(f"{other}+") or other.startswith(f"{one}+")


def _is_locked(directory: int, name: str, uid: str) -> bool:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or uid.partition("-")[0] != str(status.st_uid):
            return False
        descriptor = os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    except PermissionError:  # its owner's doing: _make creates it readable
        return _some_process_locks(status.st_ino)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _some_process_locks(inode: int) -> bool:
    """Whether the kernel lists a lock on a file with this number, on any device (proc_locks(5)); True if unknown."""
    try:
        with open("/proc/locks", encoding="ascii") as file:
            return any(f":{inode} " in line for line in file)
    except OSError:
        return True


def _open_folder(folder: str) -> int:
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        hint = f"create it with: install -d -o root -m 1777 {folder}" if error.errno == errno.ENOENT else ""
        raise ClaimError(f"the claims folder {folder}: {error.strerror}{hint and '; '}{hint}") from None
    status = os.fstat(directory)
    fault = ""
    if status.st_uid not in (0, os.geteuid()):
        fault = f"belongs to uid {status.st_uid}, who could remove claims; root must own it"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        fault = "lets others remove claims; it must have mode 1777"
    elif source := job_mount(folder, _mounts(), os.environ.get("SLURM_JOB_ID", "")):
        fault = f"is this job's alone, so that it shows no claims of others (Slurm's plugin mounts {source} there)"
    if fault:
        os.close(directory)
        raise ClaimError(f"the claims folder {folder} {fault}")
    return directory


def _mounts() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def job_mount(folder: str, mounts: str, job_id: str) -> str:
    """The folder that is mounted at ``folder`` for this job alone, as job_container/tmpfs does; empty if none is.

    It has the job's id in its path. ``mounts`` is ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)); the last of several
    mounts at the same place counts.
    """
    source = ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) > 4 and (fields[4] == folder or folder.startswith(f"{fields[4]}/")):
            source = fields[3]
    return source if job_id and re.search(rf"(?<![0-9A-Za-z]){re.escape(job_id)}(?![0-9A-Za-z])", source) else ""


@contextmanager
def _turn(directory: int, seconds: float) -> Iterator[bool]:
    """Wait for this server's turn to choose, since all see the same free GPUs; yields False if it took too long."""
    try:
        descriptor = _open_turn(directory)
    except OSError:
        yield False
        return
    try:
        yield _wait(descriptor, seconds)
    finally:
        os.close(descriptor)


def _open_turn(directory: int) -> int:
    """Open the file that every server locks while it chooses; the first one creates it."""
    name = f"{PREFIX}.turn"
    try:
        return os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    except FileNotFoundError:
        pass
    try:
        return _make(name, os.O_CREAT | os.O_EXCL, directory)
    except FileExistsError:
        return os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)


def _wait(descriptor: int, seconds: float) -> bool:
    ends_at = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends_at:
                return False
            time.sleep(_STEP)
        else:
            return True


class Claimant(Launch):
    """The launch of a server that may use only the GPUs it has claimed."""

    without_choice = GpuGrant().because("No GPU could be claimed; the node's GPUs are hidden from this server.")

    _visible = ""

    def _place(self) -> tuple[PlacementDocument, NodeTopology]:
        """Whichever step fails, the server sees no GPUs other than those it has claimed."""
        try:
            return super()._place()
        finally:
            self.environ["CUDA_VISIBLE_DEVICES"] = self._visible

    def _gpus(self, topology: NodeTopology, cpus: tuple[int, ...]) -> GpuGrant:
        gpus = super()._gpus(topology, cpus)
        self._visible = gpus.visible or ""
        return gpus

    def _grant(self, topology: NodeTopology, cpus: tuple[int, ...]) -> GpuGrant:
        # the machine's own name: a server outside of Slurm has no other
        node = self.node if topology.simulated else os.uname().nodename
        granted = super()._grant(topology, cpus)
        return claimed(granted, topology, self.plan, node=node, cpus=cpus, readers=self.readers)

    def _no_gpus(self, topology: NodeTopology, granted: GpuGrant) -> GpuGrant:  # noqa: ARG002 - the same in every case
        return self.without_choice


def claimed(
    granted: GpuGrant,
    topology: NodeTopology,
    plan: LaunchPlan,
    *,
    node: str,
    cpus: Iterable[int] = (),
    readers: Sequence[Reader] = (),
) -> GpuGrant:
    """Claim as many of the granted GPUs as the plan promises (or all, if it promises none); returns the claimed part.

    If nothing can be claimed, the server gets no GPU, never one that another server may be using.
    """
    if plan.choose is None or not len(granted):
        return granted
    problems = [problem for problem in granted.problems if problem != UNMANAGED]
    if granted.positions is None or granted.names is None:
        problems.append("No GPU was claimed: it is not known which GPUs this node has, or what programs call them.")
        return GpuGrant(problems=tuple(problems))
    used, why_unknown = ({}, "") if topology.simulated else in_use(plan.deadline, topology, readers)
    if why_unknown:
        problems.append(f"GPUs in use were recognised only by their claims: {why_unknown}")
    names_of = ((gpu, topology.gpus[gpu]) for gpu in granted.positions)
    busy = {gpu: used[name] for gpu, it in names_of if (name := it.uuid if it.uuid in used else it.pci) in used}
    problems += [f"GPU {topology.gpus[gpu].index} is skipped: it is in use by {by}." for gpu, by in busy.items()]
    names = {gpu: name_of(topology, gpu, node) for gpu in granted.positions if gpu not in busy}
    wanted = plan.gpus or len(granted.positions)

    def choose(free: Sequence[int]) -> Sequence[int]:
        count = min(wanted, len(free))
        return choice.choose(
            topology, granted=free, count=count, cpus=cpus, policy=plan.policy, gpu_type=plan.gpu_type
        ).gpus

    try:
        got = claim(plan.choose.settings["folder"], names, choose)
    except ClaimError as error:
        problems.append(f"No GPU was claimed: {error}.")
        return GpuGrant(problems=tuple(problems))
    problems += got.problems
    if got.claimed_elsewhere and len(got.gpus) < wanted:
        others = format_cpulist(topology.gpus[gpu].index for gpu in got.claimed_elsewhere)
        problems.append(f"GPU {others} is claimed by other servers.")
    indices = [n for n, gpu in enumerate(granted.positions) if gpu in got.gpus]
    return replace(granted.take(indices), problems=tuple(problems))


def name_of(topology: NodeTopology, gpu: int, node: str) -> str:
    """A GPU's name that is the same in every job: node and PCI bus id, and the UUID of a MIG device."""
    device = topology.gpus[gpu]
    name = f"{node}-{device.pci or device.uuid or device.index}"
    return name if device.mig is None else f"{name}+{device.uuid or gpu}"


def in_use(seconds: float, topology: NodeTopology, readers: Sequence[Reader] = ()) -> tuple[Mapping[str, str], str]:
    """What uses each busy GPU or MIG device, by UUID or bus id; and the reason, if that cannot be found out."""
    try:
        documents, finished = child.ask_documents(lambda say: ask_drivers(say, topology, readers), seconds)
    except OSError as error:
        return {}, f"no process could be started to ask the driver: {error.strerror}."
    for document in documents:
        return document["used"], document["failed"]
    return {}, "the driver did not respond in time." if not finished else "asking the driver failed."


def ask_drivers(say: child.Say, topology: NodeTopology, readers: Sequence[Reader], root: str = "/") -> None:
    """The child's part of :func:`in_use`."""
    for reader in readers:
        if (known := reader.in_use(topology, root)) is not None:
            return say(used=_busy(known), failed="")
    from jupyterhub_gpuspawner.node import nvml

    try:
        return say(used=_busy(_used(nvml.GpuReader(nvml.Nvml()))), failed="")
    except (OSError, nvml.NvmlError) as error:
        return say(used={}, failed=f"NVML is not available: {error}.")


IDLE_MIB = 1024
"""An idle GPU uses less memory than this, or less than a fiftieth of its memory if that is more."""


def _busy(devices: Iterable[tuple[str, int, int, int]]) -> dict[str, str]:
    """The busy devices with the processes, which drivers list for all users, or else memory that is in use."""
    busy = {}
    for name, processes, used, total in devices:
        if processes:
            busy[name] = f"{processes} process{'es' if processes > 1 else ''}"
        elif used > max(IDLE_MIB, total // 50):
            busy[name] = f"{used} MiB of memory"
    return busy


def _used(driver: GpuReader) -> Iterator[tuple[str, int, int, int]]:
    """NVML's answers, as :meth:`.Reader.in_use` has others'."""
    for index, whole in driver.handles().items():
        for device in () if whole is None else driver.mig_handles(index, whole) or [whole]:
            processes, memory = len(driver.nvml.processes(device) or ()), driver.nvml.memory(device)
            used, total = (0, 0) if memory is None else (memory.used >> 20, memory.total >> 20)
            yield driver.nvml.ask("nvmlDeviceGetUUID", device) or "", processes, used, total
