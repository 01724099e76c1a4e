"""gpuspawner-run on a real Slurm of four nodes with four GPUs each, from the environment of a server."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.extensions.several_nodes.four_nodes import NAMES, WITHIN, Server, serving
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slurm
ALL_REDUCE = Path(__file__).parents[2] / "standins" / "all_reduce.py"
VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "SLURMD_NODENAME"),
    *("CUDA_VISIBLE_DEVICES", "GPUSPAWNER_CPUS", "OMP_NUM_THREADS", "MASTER_ADDR", "GLOO_SOCKET_IFNAME"),
    *("NCCL_SOCKET_IFNAME", "SLURM_CPUS_PER_TASK", "JUPYTERHUB_API_TOKEN"),
)


@pytest.fixture(scope="module")
def server(four_nodes: PrivateSlurm, site_folder: Path) -> Iterator[Server]:
    with serving(four_nodes, site_folder) as server:
        yield server


def ranks_of(mark: str) -> dict[int, str]:
    """The processes of a run by id, with their nodes: those that have ``mark`` in their environment."""
    ranks = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                environ = (entry / "environ").read_bytes().split(b"\0")
                if f"RUN_MARK={mark}".encode() in environ and (entry / "comm").read_text().strip() == "sleep":
                    names = [
                        variable.partition(b"=")[2].decode()
                        for variable in environ
                        if variable.startswith(b"SLURMD_NODENAME=")
                    ]
                    ranks[int(entry.name)] = names[0]
    return ranks


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ancestor(pid: int, name: str) -> int:
    """The nearest process above this one that has the name."""
    while name not in Path(f"/proc/{pid}/comm").read_text():
        pid = parent(pid)
    return pid


def test_sixteen_ranks_each_know_their_place_and_have_their_part(server: Server) -> None:
    """GPUs, CPUs and variables of every rank; Slurm's variables of the batch step and the token are not passed on."""
    show = "import json, os, sys; print(json.dumps([os.environ.get(name) for name in sys.argv[1:]]))"
    done = server.run("--no-label", "--", sys.executable, "-c", show, *VARIABLES)
    rows = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda row: int(row[0]))
    parts = ("0-5", "6-11", "12-17", "18-23")
    same = ["6", "127.0.0.1", "lo", None, None, None]
    assert (done.returncode, rows) == (
        0,
        [
            [str(4 * node + gpu), "16", str(gpu), "4", str(node), NAMES[node], str(gpu), parts[gpu], *same]
            for node in range(4)
            for gpu in range(4)
        ],
    )


def test_a_rank_that_fails_is_named_and_ends_the_others(server: Server, tmp_path: Path) -> None:
    """With its node, its exit code, which is that of the command, and its log; ranks may be spread unevenly."""
    all_there = f"while [ $(ls {tmp_path} | wc -l) -lt 5 ]; do sleep 0.1; done"
    fails = f'{all_there}; if [ $RANK = 3 ]; then echo "no such file" >&2; exit 7; fi; sleep 600'
    done = server.run("-n", "5", "--logs", str(tmp_path), "--", "sh", "-c", fails)
    log = tmp_path / "rank-3.r3.log"
    assert done.returncode == 7
    assert f"gpuspawner-run: rank 3 on r3 failed with exit code 7; its log is {log}" in done.stderr.splitlines()
    assert log.read_text() == "no such file\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rank-0.r1.log",
        "rank-1.r1.log",
        "rank-2.r2.log",
        "rank-3.r3.log",
        "rank-4.r4.log",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_rank_outlives_its_run(server: Server, number: int, code: int) -> None:
    """Neither after Ctrl-C nor after the command itself is killed."""
    mark = f"{os.getpid()}-{number}"
    with Server(server.job, {**server.environ, "RUN_MARK": mark}).start("--per-node", "--", "sleep", "600") as run:
        wait_until(lambda: len(ranks_of(mark)) == 4, lambda: ranks_of(mark), seconds=WITHIN)
        run.send_signal(number)
        assert run.wait(WITHIN) == code
    wait_until(lambda: not ranks_of(mark), lambda: ranks_of(mark), seconds=WITHIN)


def test_a_rank_that_says_nothing_is_named_with_its_node(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """If a rank's own processes are killed, it cannot tell how it ended; Slurm still ends the others."""
    mark = f"{os.getpid()}-silent"
    with Server(server.job, {**server.environ, "RUN_MARK": mark}).start("--per-node", "--", "sleep", "600") as run:
        wait_until(lambda: len(ranks_of(mark)) == 4, lambda: ranks_of(mark), seconds=WITHIN)
        rank = next(pid for pid, node in ranks_of(mark).items() if node == "r2")
        os.kill(parent(rank), signal.SIGKILL)
        assert run.wait(WITHIN) in (137, 143)  # srun's: the highest of the rank's and of those that it has ended
    assert "gpuspawner-run: rank 1 on r2 ended without a word" in capfd.readouterr().err.splitlines()
    wait_until(lambda: not ranks_of(mark), lambda: ranks_of(mark), seconds=WITHIN)


def test_a_run_does_not_wait_for_a_node_that_is_gone(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """Without its slurmstepd a node says nothing, and srun waits for good; the processes there end as well."""
    mark = f"{os.getpid()}-gone"
    server = Server(server.job, {**server.environ, "RUN_MARK": mark})
    with server.start("--per-node", "--node-timeout", "8", "--", "sh", "-c", "sleep 600; true") as run:
        wait_until(lambda: len(ranks_of(mark)) == 4, lambda: ranks_of(mark), seconds=WITHIN)
        rank = next(pid for pid, node in ranks_of(mark).items() if node == "r3")
        os.kill(ancestor(rank, "slurmstepd"), signal.SIGKILL)
        assert run.wait(WITHIN) == 137  # srun's: the ranks on the other nodes were killed
    line = "gpuspawner-run: rank 2 on r3 gave no sign of life for 8 seconds; all ranks are being ended"
    assert line in capfd.readouterr().err.splitlines()
    wait_until(lambda: not ranks_of(mark), lambda: ranks_of(mark), seconds=WITHIN)


def test_all_reduce_from_a_notebook(server: Server) -> None:
    """A cell runs a sum over four nodes; the program finds the others by the variables of torch.distributed."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**server.environ, "IPYTHONDIR": os.environ.get("IPYTHONDIR", "/tmp")})
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=WITHIN)
        client.execute(f"!gpuspawner-run --per-node -- {sys.executable} {ALL_REDUCE}")
        output = ""
        with suppress(Empty):
            while True:
                message = client.get_iopub_msg(timeout=WITHIN)
                output += message["content"].get("text", "") if message["msg_type"] == "stream" else ""
                if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle" and output:
                    break
        sums = sorted(line.strip() for line in output.splitlines() if "sum" in line)
        assert sums == [f"{rank}: rank {rank} of 4: the sum of all ranks is 6" for rank in range(4)], output
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
