"""The job's CPU time and memory, of cgroups as Slurm makes them and of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.node import usage
from jupyterhub_gpuspawner.node.usage import HostReading

V2 = {
    "proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_42/step_batch/user/task_0\n",
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/cpu.stat": "usage_usec 12500000\nuser_usec 1\n",
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/memory.current": "1073741824\n",
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/memory.stat": "anon 1\ninactive_file 536870912\n",
}
V1 = {
    "proc/self/cgroup": (
        "4:memory:/slurm/uid_1000/job_42/step_batch/task_0\n"
        "3:cpu,cpuacct:/slurm/uid_1000/job_42/step_batch/task_0\n"
        "1:name=systemd:/system.slice/slurmd.service\n"
    ),
    "sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/job_42/cpuacct.usage": "12500000000\n",
    "sys/fs/cgroup/memory/slurm/uid_1000/job_42/memory.usage_in_bytes": "1073741824\n",
    "sys/fs/cgroup/memory/slurm/uid_1000/job_42/memory.stat": "total_inactive_file 536870912\n",
}
PROCESSES = {
    "proc/self/cgroup": "0::/user.slice\n",
    "proc/10/stat": "10 (jupyter) S 1 10 10 0 -1 0 0 0 0 0 {0} 0 {0} 0 20",
    "proc/10/statm": "5000 3072 512 0 0 0 0",
    "proc/11/stat": "11 (a b) c) R 10 11 11 0 -1 0 0 0 0 0 {0} {0} 0 0 20",
    "proc/11/statm": "5000 3072 512 0 0 0 0",
    "proc/12/stat": "12 (other) R 1 12 12 0 -1 0 0 0 0 0 {0} {0} 0 0 20",
    "proc/12/statm": "5000 3072 512 0 0 0 0",
}


def tree(folder: Path, files: dict[str, str]) -> str:
    """A root folder with these files; {0} is a second of CPU time."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("{0}", str(os.sysconf("SC_CLK_TCK"))))
    return f"{folder}/"


@pytest.mark.parametrize("files", [V2, V1], ids=["cgroup 2", "cgroup 1"])
def test_a_jobs_cgroup_tells_cpu_time_and_memory(tmp_path: Path, files: dict[str, str]) -> None:
    """Of the whole job, all its steps; without the page cache that the kernel can take back."""
    assert usage.read_host(10, tree(tmp_path, files)) == HostReading(12.5, 512)


def test_without_a_cgroup_of_the_job_the_servers_processes_are_added_up(tmp_path: Path) -> None:
    """The server and what it has started, whatever their names; memory without what is shared."""
    page = os.sysconf("SC_PAGE_SIZE")

    assert usage.read_host(10, tree(tmp_path, PROCESSES)) == HostReading(4.0, 2 * 2560 * page >> 20)


def test_a_detached_process_of_the_job_counts_with_what_it_has_started(tmp_path: Path) -> None:
    """It is nobody's child, and has the job's number in its environment; another job's process does not count."""
    files = {
        **PROCESSES,
        "proc/20/stat": "20 (train) R 1 20 20 0 -1 0 0 0 0 0 {0} 0 0 0 20",
        "proc/20/environ": "A=1\0SLURM_JOB_ID=42\0",
        "proc/21/stat": "21 (env) R 20 20 20 0 -1 0 0 0 0 0 {0} {0} 0 0 20",
        "proc/22/stat": "22 (other) R 1 22 22 0 -1 0 0 0 0 0 {0} 0 0 0 20",
        "proc/22/environ": "SLURM_JOB_ID=421\0",
    }

    assert usage.read_host(10, tree(tmp_path, files), job="42").cpu_seconds == 7.0


def test_what_a_cgroup_does_not_tell_is_taken_from_the_processes(tmp_path: Path) -> None:
    """A site whose Slurm does not limit memory has no memory in the job's cgroup."""
    files = {name: text for name, text in V2.items() if "memory" not in name}

    found = usage.read_host(10, tree(tmp_path, PROCESSES | files))

    assert found == HostReading(12.5, 2 * 2560 * os.sysconf("SC_PAGE_SIZE") >> 20)


def test_of_a_server_that_has_ended_nothing_is_known(tmp_path: Path) -> None:
    """Unknown, not zero."""
    assert usage.read_host(99, tree(tmp_path, PROCESSES)) == HostReading(None, None)


def test_the_real_kernel_tells_the_cpu_time_of_a_detached_process() -> None:
    """``setsid ... &`` in a terminal, as people start a training for the night."""
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    server = [sys.executable, "-c", "print(flush=True); input()"]
    with (
        subprocess.Popen(server, stdin=subprocess.PIPE) as alone,
        subprocess.Popen(
            ["setsid", sys.executable, "-c", work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "SLURM_JOB_ID": "424242"},
        ) as detached,
    ):
        assert detached.stdout is not None
        detached.stdout.readline()
        found = [usage.read_host(alone.pid, job=job).cpu_seconds or 0.0 for job in ("", "424242")]
        alone.kill()
        detached.kill()

    assert found[1] - found[0] >= 0.4


def test_the_real_kernel_tells_the_cpu_time_of_a_child() -> None:
    """A process that has worked for half a second."""
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = usage.read_host(child.pid)
        child.kill()

    assert found.cpu_seconds is not None
    assert found.cpu_seconds >= 0.4
    assert found.memory_mib is not None
