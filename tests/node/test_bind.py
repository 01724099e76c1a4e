"""CPU affinity and memory policy of a real process on this machine's real kernel."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.node import placing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="affinity and memory policy are Linux's")

NODES = Path("/sys/devices/system/node")
CPUS = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
numa = pytest.mark.skipif(
    not (NODES / "node0").exists() or platform.machine() not in placing.SYSCALLS,
    reason="this kernel has no NUMA nodes, or its system call numbers are not known here",
)


def output_of(code: str) -> str:
    """What ``code`` prints, in a process that may be bound without harm."""
    return subprocess.run(
        [sys.executable, "-c", f"import json, os\nfrom jupyterhub_gpuspawner.node import placing\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    ).stdout


def in_a_process(code: str) -> object:
    """What ``code`` leaves in ``result`` there."""
    return json.loads(output_of(f"{code}\nprint(json.dumps(result))"))


def test_a_process_stays_on_the_cpus_it_is_bound_to_and_so_does_what_it_becomes() -> None:
    """The kernel's own word (``Cpus_allowed_list``), after exec."""
    become = "os.execvp('grep', ['grep', 'Cpus_allowed_list', '/proc/self/status'])"

    assert output_of(f"placing.bind_cpus([{CPUS[-1]}])\n{become}").split() == ["Cpus_allowed_list:", str(CPUS[-1])]


def test_a_foreign_cpu_is_not_taken() -> None:
    """CPUs that are not allowed are left out, and the kernel's answer is returned."""
    assert in_a_process(f"result = placing.bind_cpus([{CPUS[0]}, 4000])") == [[CPUS[0]], []]


def test_only_foreign_cpus_leave_the_process_where_it_is() -> None:
    """An empty intersection is a problem, not an error."""
    allowed, problems = placing.bind_cpus([4000, 4001])

    assert list(allowed) == CPUS
    assert [problem.partition(";")[0] for problem in problems] == ["This process is not allowed to use CPUs 4000-4001"]


def test_no_wish_is_no_binding() -> None:
    """Without a CPU to bind to, the kernel is not called."""
    assert placing.bind_cpus([]) == (tuple(CPUS), ())


@numa
@pytest.mark.parametrize(
    ("policy", "nodes", "answer"),
    [
        ("preferred", [0], ["preferred:0", []]),
        ("bind", [0], ["bind:0", []]),
        ("none", [0], ["default", []]),
        ("preferred", [], ["default", []]),
        ("preferred", [0, 63], ["preferred:0", []]),
    ],
)
def test_the_memory_policy_is_what_the_kernel_says_it_is(policy: str, nodes: list[int], answer: list[object]) -> None:
    """Set by one system call, read back by another; a node that is not the job's is not asked for."""
    assert in_a_process(f"result = placing.bind_memory({policy!r}, {nodes})") == answer


@numa
def test_the_memory_policy_survives_exec() -> None:
    """As /proc/self/numa_maps of the program that follows shows."""
    if not Path("/proc/self/numa_maps").exists():
        pytest.skip("this kernel has no /proc/self/numa_maps")
    become = "os.execvp('head', ['head', '-n1', '/proc/self/numa_maps'])"

    assert output_of(f"placing.bind_memory('preferred', [0])\n{become}").split()[1] == "prefer:0"


@numa
def test_memory_of_several_nodes_is_preferred_where_the_kernel_can() -> None:
    """A kernel before 5.15 rejects MPOL_PREFERRED_MANY; one node of several would be worse than no policy."""
    code = """
import errno
calls = []
def kernel(mode, nodes):
    calls.append((mode, nodes))
    if mode == 5 and OLD:
        raise OSError(errno.EINVAL, "Invalid argument")
placing.set_mempolicy = kernel
placing.get_mempolicy = lambda flags: (0, (0, 1, 2))
placing.bind_memory("preferred", [1, 0])
result = calls
"""
    assert in_a_process(f"OLD = False\n{code}") == [[5, [1, 0]]]
    assert in_a_process(f"OLD = True\n{code}") == [[5, [1, 0]]]


@numa
@pytest.mark.parametrize(
    ("nodes", "local", "calls"),
    [([0, 1], [1, 0], []), ([1], [1], []), ([0], [0, 1], []), ([1, 0], [1], [[5, [1, 0]]]), ([0], [1], [[1, [0]]])],
)
def test_no_policy_is_set_for_the_nodes_of_the_processes_cpus(
    nodes: list[int], local: list[int], calls: list[object]
) -> None:
    """The kernel prefers those by itself; only memory of another node needs a policy."""
    code = f"""
result = []
placing.set_mempolicy = lambda mode, nodes: result.append((mode, nodes))
placing.get_mempolicy = lambda flags: (0, (0, 1))
placing.bind_memory("preferred", {nodes}, {local})
"""
    assert in_a_process(code) == calls


@numa
def test_memory_that_is_not_the_jobs_is_not_asked_for() -> None:
    """The policy stays, and the problem says what the job may use."""
    policy, problems = placing.bind_memory("bind", [63])

    assert policy == "default"
    has = (NODES / "has_memory").read_text().strip()
    assert problems == (f"This job is not allowed to use memory of NUMA nodes 63, only of {has}; no policy was set.",)


@numa
def test_a_container_that_forbids_the_call_is_told() -> None:
    """Seccomp answers EPERM: a problem is reported, and the policy counts as unknown."""
    filtered = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
numbers = placing.SYSCALLS[os.uname().machine]
code = [(0x20, 0, 0, 0)]  # load the number of the system call
for n, number in enumerate(numbers):
    code.append((0x15, 1 - n + 0, 0, number) if n == 0 else (0x15, 0, 1, number))
code += [(0x06, 0, 0, 0x00050000 | 1), (0x06, 0, 0, 0x7FFF0000)]  # EPERM, or allow
program = b"".join(struct.pack("HBBI", *line) for line in code)
buffer = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(code), ctypes.addressof(buffer)))) == 0
result = placing.bind_memory("preferred", [0])
"""
    because = "Operation not permitted (seccomp without CAP_SYS_NICE, as in many containers)"
    assert in_a_process(filtered) == [
        "none",
        [
            f"The kernel refused the memory policy preferred: {because}.",
            f"The memory policy cannot be read from the kernel: {because}.",
        ],
    ]


def test_an_unknown_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system call's number is not known, no call is made."""
    monkeypatch.setattr(placing, "SYSCALLS", {})

    policy, problems = placing.bind_memory("preferred", [0])

    assert policy == "none"
    assert len(problems) == 2
    assert "the number of the system call is unknown for" in problems[0]


ONE_NODE = (("bind:0", (0,)), ("default", (0,)), ("bind:0", (0, 1)), ("default", (63,)))
"""Node 0 is on every machine, node 63 hardly on any."""


def test_memory_is_where_a_policy_holds_it() -> None:
    """A bound policy uses only its nodes; without a policy, memory follows the CPU if the job may use that node."""
    assert [placing.memory_is_on(policy, nodes) for policy, nodes in ONE_NODE] == [True, True, False, False]
