"""CPU time and memory of the job: from Slurm's cgroup of it, or else of its processes.

Sources: Slurm's cgroup documentation (``job_ID`` is a folder in the hierarchy, version 1 and 2), cgroups(7), proc(5).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.usage.window import HostReading

if TYPE_CHECKING:
    from collections.abc import Iterable

_JOB = re.compile(r"job_\d+", re.ASCII)


def read(server: int, root: str = "/", *, job: str = "") -> HostReading:
    """What the job of this process has used; unknown where neither its cgroup nor its processes tell it.

    Its processes are ``server``, what that has started, and what has ``job`` in its environment: a process that was
    detached is nobody's child.
    """
    cpu, memory = _of_cgroup(root)
    if cpu is None or memory is None:
        of_processes = _of_processes(server, root, job)
        cpu = of_processes.cpu_seconds if cpu is None else cpu
        memory = of_processes.memory_mib if memory is None else memory
    return HostReading(cpu, memory)


def _of_cgroup(root: str) -> tuple[float | None, int | None]:
    """CPU seconds and MiB of the job's cgroup; the page cache that the kernel can take back is not counted."""
    folders = _job_folders(_text(f"{root}proc/self/cgroup"), root)
    cpu: float | None = None
    memory: int | None = None
    for controllers, folder in folders:
        if cpu is None and not controllers:
            spent = _field(_text(f"{folder}/cpu.stat"), "usage_usec")
            cpu = None if spent is None else spent / 1e6
        if cpu is None and "cpuacct" in controllers:
            nanoseconds = _text(f"{folder}/cpuacct.usage").strip()
            cpu = int(nanoseconds) / 1e9 if nanoseconds.isdigit() else None
        if memory is None and (not controllers or "memory" in controllers):
            v2 = not controllers
            used = _text(f"{folder}/{'memory.current' if v2 else 'memory.usage_in_bytes'}").strip()
            cache = _field(_text(f"{folder}/memory.stat"), "inactive_file" if v2 else "total_inactive_file")
            memory = max(0, int(used) - (cache or 0)) >> 20 if used.isdigit() else None
    return cpu, memory


def _job_folders(text: str, root: str) -> list[tuple[tuple[str, ...], str]]:
    """Controllers (none: version 2) and folder of the job's cgroup in each hierarchy of /proc/self/cgroup."""
    folders: list[tuple[tuple[str, ...], str]] = []
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        parts = path.split("/")
        depth = next((n for n, part in enumerate(parts) if _JOB.fullmatch(part)), None)
        if depth is None:
            continue
        controllers = tuple(name for name in names.split(",") if name)
        for mount in (names, *controllers, "unified") if controllers else ("", "unified"):
            folder = os.path.join(root, "sys/fs/cgroup", mount) + "/".join(parts[: depth + 1])
            if os.path.isdir(folder):
                folders.append((controllers, folder))
                break
    return folders


def _of_processes(server: int, root: str, job: str) -> HostReading:
    """CPU seconds and memory of the server and the job's other processes, without memory that they share."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    try:
        second = os.sysconf("SC_CLK_TCK")
        names = os.listdir(f"{root}proc")
    except OSError:
        return HostReading()
    me = os.geteuid()
    for name in names:
        try:
            if not name.isdigit() or os.stat(f"{root}proc/{name}").st_uid != me:
                continue
            # the command's name, in parentheses, may hold anything
            fields = _text(f"{root}proc/{name}/stat").rpartition(")")[2].split()
            parents[int(name)] = int(fields[1])
            spent[int(name)] = sum(map(int, fields[11:15])) / second
        except (OSError, ValueError, IndexError):
            continue
    if server not in parents:
        return HostReading()
    detached = {pid for pid in parents if job and _has(f"{root}proc/{pid}/environ", f"SLURM_JOB_ID={job}")}
    own = {pid for first in (server, *detached) for pid in _descendants(first, parents)}
    return HostReading(sum(spent[pid] for pid in own), sum(_private(pid, root) for pid in own) >> 20)


def _descendants(server: int, parents: dict[int, int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    own, waiting = set[int](), [server] if server in parents else []
    while waiting:
        pid = waiting.pop()
        own.add(pid)
        waiting += [child for child in children.get(pid, ()) if child not in own]
    return own


def _has(path: str, variable: str) -> bool:
    try:
        with open(path, "rb") as file:
            return variable.encode() in file.read().split(b"\0")
    except OSError:
        return False


def _private(pid: int, root: str) -> int:
    """Bytes of a process in memory that are not of files and not shared; 0 if it has ended."""
    try:
        fields = _text(f"{root}proc/{pid}/statm").split()
        return max(0, int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, IndexError):
        return 0


def _field(text: str, name: str) -> int | None:
    words: Iterable[list[str]] = (line.split() for line in text.splitlines())
    return next((int(word[1]) for word in words if len(word) == 2 and word[0] == name and word[1].isdigit()), None)


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
