"""gpuspawner place: the launcher's choice, on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import MACHINES, TEXTS

if TYPE_CHECKING:
    from tests.fixtures.commands import Call

DGX1V = TEXTS / "024_dgx1v_microway.txt"


@pytest.mark.parametrize(
    ("arguments", "document"),
    [
        (
            ["--text", DGX1V, "--gpus", 2, "--free", "3,4,5,7"],
            {
                "gpus": [4, 7],
                "weakest_link": "NV2",
                "ring_gbps": None,
                "mean_gbps": None,
                "numa_nodes": [],
                "aligned": None,
                "why": "GPUs 4 and 7: the best 2 of 4 granted; the slowest link of their ring is NV2.",
            },
        ),
        (
            ["--file", MACHINES / "k80-2socket.json", "--gpus", 1, "--cpus", "12-15"],
            {
                "gpus": [2],
                "weakest_link": None,
                "ring_gbps": None,
                "mean_gbps": None,
                "numa_nodes": [1],
                "aligned": True,
                "why": "GPU 2: the nearest to the CPUs, of 4 granted.",
            },
        ),
        (
            ["--file", MACHINES / "k80-2socket.json", "--gpus", 2, "--free", "1-3", "--policy", "none"],
            {
                "gpus": [1, 2],
                "weakest_link": "SYS",
                "ring_gbps": 7.0,
                "mean_gbps": 7.0,
                "numa_nodes": [0, 1],
                "aligned": None,
                "why": "GPUs 1 and 2, the first of 3 granted; the slowest link of their ring is SYS (about 7 GB/s).",
            },
        ),
        (
            ["--file", MACHINES / "a100-mig.json", "--gpus", 1, "--free", "4,5"],
            {
                "gpus": [4],
                "weakest_link": None,
                "ring_gbps": None,
                "mean_gbps": None,
                "numa_nodes": [1],
                "aligned": None,
                "why": "slice 2 of GPU 2: of 2 granted, it leaves the best links to other jobs.",
            },
        ),
    ],
)
def test_json(gpuspawner: Call, arguments: list[object], document: dict[str, object]) -> None:
    """GPUs in the order of their ring, with links and nodes; MIG devices are counted as Slurm counts them."""
    result = gpuspawner("place", *arguments, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"version": 1, **document})


def test_words(gpuspawner: Call) -> None:
    """The same as text."""
    result = gpuspawner("place", "--file", MACHINES / "k80-2socket.json", "-k", 2, "--cpus", "12-23")
    assert result.stdout == (
        "GPUs:          2,3  (in the order of their ring)\n"
        "slowest link:  PIX, about 12 GB/s one way\n"
        "mean of pairs: about 12 GB/s one way\n"
        "NUMA nodes:    1\n"
        "CPUs:          near these GPUs\n"
        "\n"
        "GPUs 2 and 3: the best 2 of 4 granted; the slowest link of their ring is PIX (about 12 GB/s).\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpus", 9], "--gpus: 9 is more than the 8 that the node has"),
        (["--gpus", 3, "--free", "0,1"], "--gpus: 3 is more than the 2 that are free"),
        (["--gpus", 1, "--free", "0,9"], "--free: there is no GPU 9; the node has 0-7"),
        (
            ["--gpus", 1, "--free", "all"],
            "--free: 'all' in 'all' is not a number or a range: write a list such as 0-3,8",
        ),
        (
            ["--gpus", 1, "--cpus", "3-1"],
            "--cpus: '3-1' in '3-1' is not a number or a range: write a list such as 0-3,8",
        ),
    ],
)
def test_what_cannot_be_is_refused(gpuspawner: Call, arguments: list[object], sentence: str) -> None:
    """Exit code 2 and one line that names the option, the fault and what would be right."""
    result = gpuspawner("place", "--text", DGX1V, *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"gpuspawner: {sentence}\n")
