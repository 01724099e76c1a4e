"""CPU affinity and memory policy of this process: set, and read back. Both survive ``exec``.

sched_setaffinity(2), set_mempolicy(2), get_mempolicy(2). The C library has no wrappers for the last two (libnuma does),
so they are called by number.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist, parse_cpulist

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSCALLS = {"x86_64": (238, 239), "aarch64": (237, 236), "ppc64le": (261, 260)}
"""Numbers of set_mempolicy and get_mempolicy, by machine."""
_MODES = {"default": 0, "preferred": 1, "bind": 2, "interleave": 3, "local": 4, "preferred-many": 5}
_MEMS_ALLOWED = 1 << 2
_BITS = 4096
"""Bits in a mask of NUMA nodes: more than any kernel's MAX_NUMNODES; get_mempolicy refuses fewer."""
_LONG = 8 * ctypes.sizeof(ctypes.c_ulong)
_FLAGS = 0xE000
"""Mode flags (MPOL_F_STATIC_NODES and the like), which get_mempolicy returns together with the mode."""


def allowed_cpus() -> tuple[int, ...]:
    """The CPUs that this process may use, by kernel number, sorted."""
    return tuple(sorted(os.sched_getaffinity(0)))


def bind_cpus(cpus: Iterable[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Bind this process to those of ``cpus`` that it may already use.

    Returns the CPUs that the kernel allows afterwards, and problems. (Given a set that contains other CPUs too, the
    kernel would silently use the rest; so only the rest is passed to it.)
    """
    allowed = allowed_cpus()
    wanted = tuple(sorted(set(cpus)))
    possible = tuple(cpu for cpu in wanted if cpu in allowed)
    if not wanted:
        return allowed, ()
    if not possible:
        problem = (
            f"This process is not allowed to use CPUs {format_cpulist(wanted)}; it remains on CPUs "
            f"{format_cpulist(allowed)}."
        )
        return allowed, (problem,)
    try:
        os.sched_setaffinity(0, possible)
    except OSError as error:
        return allowed_cpus(), (f"The kernel refused to bind to CPUs {format_cpulist(possible)}: {error.strerror}.",)
    return allowed_cpus(), ()


def bind_memory(policy: str, nodes: Iterable[int], local: Iterable[int] = ()) -> tuple[str, tuple[str, ...]]:
    """Set the memory policy ``preferred`` or ``bind`` on ``nodes`` (kernel numbers); ``none`` changes nothing.

    ``local``: the NUMA nodes of this process's CPUs. Without a policy the kernel prefers these, for each thread its
    own, so none is set if no other node is preferred. A kernel before 5.15 has no ``preferred-many``; there none is set
    for several nodes: to prefer one of them would take the memory of all threads from there.
    Returns the policy as read back from the kernel (``default``, ``preferred:0``, ``preferred-many:0-1``, ``bind:0``;
    ``none`` if it cannot be read), and problems.
    """
    wanted = tuple(dict.fromkeys(nodes))
    problems: tuple[str, ...] = ()
    try:
        if policy != "none" and wanted:
            problems = _set(policy, wanted, frozenset(local))
    except OSError as error:
        problems = (f"The kernel refused the memory policy {policy}: {_words(error)}.",)
    try:
        return read_memory(), problems
    except OSError as error:
        return "none", (*problems, f"The memory policy cannot be read from the kernel: {_words(error)}.")


def _set(policy: str, wanted: tuple[int, ...], local: frozenset[int]) -> tuple[str, ...]:
    allowed = get_mempolicy(_MEMS_ALLOWED)[1]
    nodes = tuple(node for node in wanted if node in allowed)
    if not nodes:
        problem = (
            f"This job is not allowed to use memory of NUMA nodes {format_cpulist(wanted)}, only of "
            f"{format_cpulist(allowed)}; no policy was set."
        )
        return (problem,)
    if policy == "preferred" and local.issuperset(nodes):
        return ()
    if policy == "bind" or len(nodes) == 1:
        set_mempolicy(_MODES[policy], nodes)
        return ()
    try:
        set_mempolicy(_MODES["preferred-many"], nodes)
    except OSError as error:
        import errno

        if error.errno != errno.EINVAL:
            raise
    return ()


def read_memory() -> str:
    """This process's memory policy, read from the kernel; raises OSError."""
    mode, nodes = get_mempolicy(0)
    name = next((name for name, number in _MODES.items() if number == mode & ~_FLAGS), f"mode {mode}")
    return f"{name}:{format_cpulist(nodes)}" if nodes else name


def memory_is_on(policy: str, nodes: Iterable[int]) -> bool:
    """Whether a policy, as returned by :func:`read_memory`, takes memory from exactly these NUMA nodes; raises OSError.

    Without a policy, memory comes from the node of the CPU that first touches it, if this job may use that node.
    """
    wanted, allowed = set(nodes), set(get_mempolicy(_MEMS_ALLOWED)[1])
    named = policy.partition(":")[2]
    return set(parse_cpulist(named)) & allowed == wanted if named else wanted <= allowed


def set_mempolicy(mode: int, nodes: tuple[int, ...]) -> None:
    """Set the mode and the NUMA nodes of the memory policy, as the kernel numbers them; raises OSError."""
    mask = (ctypes.c_ulong * (_BITS // _LONG))()
    for node in nodes:
        mask[node // _LONG] |= 1 << node % _LONG
    _call(0, ctypes.c_long(mode), mask, ctypes.c_ulong(_BITS + 1))


def get_mempolicy(flags: int) -> tuple[int, tuple[int, ...]]:
    """The mode of the memory policy and its NUMA nodes, as the kernel numbers them; raises OSError."""
    mode = ctypes.c_int()
    mask = (ctypes.c_ulong * (_BITS // _LONG))()
    _call(1, ctypes.byref(mode), mask, ctypes.c_ulong(_BITS), None, ctypes.c_ulong(flags))
    return mode.value, tuple(n for n in range(_BITS) if mask[n // _LONG] >> n % _LONG & 1)


def _call(which: int, *arguments: object | None) -> None:
    machine = os.uname().machine
    if machine not in SYSCALLS:
        import errno

        raise OSError(errno.ENOSYS, f"the number of the system call is unknown for {machine}")
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(SYSCALLS[machine][which]), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _words(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{error.strerror} (seccomp without CAP_SYS_NICE, as in many containers)"
    return str(error.strerror)
