"""Durations and amounts of memory in words."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.words import cpus, duration, gpu_memory, gpu_memory_used, in_unit, memory


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (45, "45 s"),
        (59.7, "1 min"),
        (60, "1 min"),
        (720, "12 min"),
        (3599, "1 h"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (24 * 3600, "24 h"),
        (36.5 * 3600, "36 h 30 min"),
        (48 * 3600 - 1, "2 days"),
        (60 * 3600, "2 days 12 h"),
        (72 * 3600, "3 days"),
        (72 * 3600 - 1, "3 days"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    """At most two units, the smaller one rounded."""
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("mib", "words"),
    [
        (None, ""),
        (0, "0 MiB"),
        (512, "512 MiB"),
        (1024, "1 GiB"),
        (9728, "9.5 GiB"),
        (11441, "11 GiB"),
        (65536, "64 GiB"),
    ],
)
def test_memory(mib: int | None, words: str) -> None:
    """MiB below one GiB, one decimal below ten."""
    assert memory(mib) == words


@pytest.mark.parametrize(
    ("seconds", "unit", "words"),
    [
        (252000, "hours", "70 h"),
        (86400, "days", "1 day"),
        (172800, "days", "2 days"),
        (5400, "hours", "1 h 30 min"),
        (5400, "minutes", "90 min"),
        (5400, "", "1 h 30 min"),
    ],
)
def test_a_duration_in_somebodys_unit(seconds: int, unit: str, words: str) -> None:
    """As it was entered, where that is a whole number."""
    assert in_unit(seconds, unit) == words


@pytest.mark.parametrize(
    ("mib", "words"),
    [
        (None, ""),
        (81559, "80 GB"),  # H100
        (81920, "80 GB"),  # A100
        (40960, "40 GB"),  # A100
        (11441, "12 GB"),  # half a K80
        (16280, "16 GB"),  # P100
        (15109, "16 GB"),  # T4
        (23028, "24 GB"),  # A10
        (46068, "48 GB"),  # L40S
        (143771, "141 GB"),  # H200
        (9728, "10 GB"),  # MIG 1g.10gb
        (19968, "20 GB"),  # MIG 3g.20gb
        (512 * 1024, "512 GB"),
    ],
)
def test_a_gpus_memory_is_the_one_in_its_name(mib: int | None, words: str) -> None:
    """What nvidia-smi reports in MiB, and what the form says for the same GPU."""
    assert gpu_memory(mib) == words


USED: dict[tuple[tuple[int | None, int | None], ...], str] = {
    (): "",
    ((None, 11441),): "",
    ((0, 11441),): "0 of 12 GB",
    ((5632, 11441),): "5.9 of 12 GB",
    ((11441, 11441),): "12 of 12 GB",
    ((9728, 9728),): "10 of 10 GB",
    ((5632, 11441), (5632, 11441)): "12 of 24 GB",
    ((5632, 11441), (None, 11441)): "",
    ((1024, None),): "1.0 GB",
    ((1024, None), (5632, 11441)): "6.9 GB",
}


def test_memory_in_use_is_a_part_of_the_size_in_the_name() -> None:
    """So a full GPU is full; of one whose size is not known, or among several, what the driver counts is said."""
    assert {gpus: gpu_memory_used(*gpus) for gpus in USED} == USED


@pytest.mark.parametrize(
    ("low", "high", "per_core", "words"),
    [
        (1, 1, 1, "1 core"),
        (4, 4, 1, "4 cores"),
        (8, 8, 2, "8 CPUs (4 cores)"),
        (3, 3, 2, "3 CPUs (2 cores)"),
        (1, 1, 2, "1 CPU (1 core)"),
        (4, 1200, 4, "4 to 1,200 CPUs (1 to 300 cores)"),
        (8, 8, 0, "8 CPUs"),
    ],
)
def test_cpus_and_the_cores_of_which_they_are_threads(low: int, high: int, per_core: int, words: str) -> None:
    """Slurm gives out whole cores."""
    assert cpus(low, high, per_core=per_core) == words
