"""CPU affinity and memory policy of this process, set and read back. Both survive ``exec``.

sched_setaffinity(2), set_mempolicy(2), get_mempolicy(2). The C library wraps the last two in libnuma only, so they
are called by number.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Iterable, List, NamedTuple, Optional, Tuple

from jupyterhub_gpuspawner.units import format_cpulist

_NUMBERS = {"x86_64": (238, 239), "aarch64": (237, 236), "ppc64le": (261, 260), "ppc64": (261, 260)}
"""set_mempolicy and get_mempolicy of each machine."""
_MODES = {"default": 0, "preferred": 1, "bind": 2, "interleave": 3, "local": 4, "preferred-many": 5}
_MEMS_ALLOWED = 1 << 2
_BITS = 4096
"""More than any kernel's MAX_NUMNODES; get_mempolicy refuses fewer."""
_WORDS = _BITS // 64
_FLAGS = 0xE000
"""Mode flags (MPOL_F_STATIC_NODES and the like), which get_mempolicy hands back with the mode."""


class CpuBinding(NamedTuple):
    """The CPUs that this process may use now, by kernel number, as the kernel tells."""

    cpus: Tuple[int, ...]
    problems: Tuple[str, ...] = ()


class MemoryBinding(NamedTuple):
    """The memory policy of this process now, as the kernel tells."""

    policy: str
    """``default``, ``preferred:0``, ``preferred-many:0-1``, ``bind:0``; ``none`` where it can't be known."""
    problems: Tuple[str, ...] = ()


def allowed_cpus() -> Tuple[int, ...]:
    """CPUs that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def bind_cpus(cpus: Iterable[int]) -> CpuBinding:
    """Stay on ``cpus``, of those that are allowed already; never raises for what the kernel refuses."""
    allowed = allowed_cpus()
    wanted = tuple(sorted(set(cpus)))
    possible = tuple(cpu for cpu in wanted if cpu in allowed)
    if not possible:
        if not wanted:
            return CpuBinding(allowed)
        return CpuBinding(
            allowed,
            (f"Not bound: of CPUs {format_cpulist(wanted)} this process may use none, but {format_cpulist(allowed)}.",),
        )
    problems: Tuple[str, ...] = ()
    try:
        os.sched_setaffinity(0, possible)
    except OSError as error:
        problems = (f"The kernel refused to bind to CPUs {format_cpulist(possible)}: {error.strerror}.",)
    return CpuBinding(allowed_cpus(), problems)


def bind_memory(policy: str, nodes: Iterable[int]) -> MemoryBinding:
    """Set the memory policy to ``preferred`` or ``bind`` on ``nodes`` (kernel numbers); ``none`` leaves it as it is.

    Several preferred nodes are ``preferred-many`` (Linux 5.15), and the first of them on an older kernel.
    """
    wanted = tuple(sorted(set(nodes)))
    try:
        problems = _set(policy, wanted) if policy != "none" and wanted else ()
    except OSError as error:
        problems = (f"The kernel refused the memory policy {policy}: {_words(error)}.",)
    try:
        return MemoryBinding(read_memory(), problems)
    except OSError as error:
        return MemoryBinding("none", (*problems, f"The kernel does not tell its memory policy: {_words(error)}."))


def _set(policy: str, wanted: Tuple[int, ...]) -> Tuple[str, ...]:
    allowed = _get(_MEMS_ALLOWED)[1]
    nodes = tuple(node for node in wanted if node in allowed)
    if not nodes:
        return (
            f"No memory policy: of NUMA nodes {format_cpulist(wanted)} this job may use none, "
            f"but {format_cpulist(allowed)}.",
        )
    if policy == "bind" or len(nodes) == 1:
        _set_mode(_MODES[policy], nodes)
        return ()
    try:
        _set_mode(_MODES["preferred-many"], nodes)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _set_mode(_MODES["preferred"], nodes[:1])
    return ()


def read_memory() -> str:
    """This process's memory policy in words; raises OSError."""
    mode, nodes = _get(0)
    names = {number: name for name, number in _MODES.items()}
    name = names.get(mode & ~_FLAGS, f"mode {mode}")
    return f"{name}:{format_cpulist(nodes)}" if nodes else name


def _set_mode(mode: int, nodes: Tuple[int, ...]) -> None:
    mask = (ctypes.c_ulong * _WORDS)()
    for node in nodes:
        mask[node // 64] |= 1 << node % 64
    _call(0, ctypes.c_long(mode), mask, ctypes.c_ulong(_BITS + 1))


def _get(flags: int) -> Tuple[int, Tuple[int, ...]]:
    mode = ctypes.c_int()
    mask = (ctypes.c_ulong * _WORDS)()
    address = None if flags & _MEMS_ALLOWED else ctypes.byref(mode)
    _call(1, address, mask, ctypes.c_ulong(_BITS), None, ctypes.c_ulong(flags))
    nodes: List[int] = [n for n in range(_BITS) if mask[n // 64] >> n % 64 & 1]
    return mode.value, tuple(nodes)


def _call(which: int, *arguments: Optional[object]) -> None:
    machine = os.uname().machine
    if machine not in _NUMBERS:
        raise OSError(errno.ENOSYS, f"its number on {machine} is not known here")
    library = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    if library.syscall(ctypes.c_long(_NUMBERS[machine][which]), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _words(error: OSError) -> str:
    if error.errno == errno.EPERM:
        return f"{error.strerror} (seccomp without CAP_SYS_NICE, as in many containers)"
    return str(error.strerror)
