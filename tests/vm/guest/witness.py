"""The command that a job's launcher executes: touches memory and prints its binding, as one JSON object.

Sources: proc(5) on ``status`` and ``numa_maps``; get_mempolicy(2) through numactl(8).
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import threading
from pathlib import Path

THREADS = 2
MIB = 10
"""Touched by each thread."""
PAGE = 4096


def status(path: str) -> dict[str, str]:
    lines = Path(path).read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if line.startswith(("Cpus_allowed_list", "Mems_allowed_list")))


def touch(held: list[mmap.mmap]) -> None:
    """Write to every page of some new private memory."""
    memory = mmap.mmap(-1, MIB << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, len(memory), PAGE):
        memory[start] = 1
    held.append(memory)


def touched() -> tuple[dict[str, int], list[str]]:
    """Pages by NUMA node, and the policies, of the mappings that :func:`touch` made."""
    pages: dict[str, int] = {}
    policies = set()
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        match = re.match(r"[0-9a-f]+ (.+?) anon=(\d+) ", line)
        if match and int(match[2]) >= (MIB << 20) // PAGE:
            policies.add(match[1])
            for node, count in re.findall(r" N(\d+)=(\d+)", line):
                pages[node] = pages.get(node, 0) + int(count)
    return pages, sorted(policies)


def main() -> None:
    held: list[mmap.mmap] = []
    end = threading.Event()
    done = threading.Semaphore(0)

    def work() -> None:
        touch(held)
        done.release()
        end.wait()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        done.acquire()
    own = status("/proc/self/status")
    tasks = sorted(Path("/proc/self/task").iterdir())
    pages, policies = touched()
    shown = subprocess.run(["numactl", "--show"], check=True, capture_output=True, text=True).stdout
    print(
        json.dumps(
            {
                "cpus": own["Cpus_allowed_list"],
                "mems": own["Mems_allowed_list"],
                "threads": [status(f"{task}/status")["Cpus_allowed_list"] for task in tasks],
                "pages": pages,
                "policies": policies,
                "numactl": shown,
                "environ": dict(os.environ),
            }
        )
    )
    end.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
