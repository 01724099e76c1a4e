"""Durations and amounts of memory in words."""

from __future__ import annotations

import json
import shutil
import subprocess
from math import floor
from pathlib import Path
from urllib.parse import quote

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.words import cpus, duration, gpu_memory, in_unit, memory


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (45, "45 s"),
        (59.7, "59 s"),
        (59.9999, "1 min"),
        (60, "1 min"),
        (150, "2 min"),
        (210, "3 min"),
        (720, "12 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (24 * 3600, "24 h"),
        (36.5 * 3600, "36 h 30 min"),
        (48 * 3600 - 1, "47 h 59 min"),
        (48.5 * 3600, "2 days"),
        (51.5 * 3600, "2 days 3 h"),
        (60 * 3600, "2 days 12 h"),
        (71.5 * 3600, "2 days 23 h"),
        (72 * 3600, "3 days"),
        (72.5 * 3600, "3 days"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    """At most two units, the smaller one rounded down: no more is promised than there is."""
    assert duration(seconds) == words


PACKAGE = Path(jupyterhub_gpuspawner.__file__).parent
WORDS = PACKAGE / "hub" / "web" / "static" / "words.js"
TIMES = (
    *range(24 * 3600),
    *range(24 * 3600, 10 * 24 * 3600, 60),
    *(second + part for second in range(0, 4 * 3600, 7) for part in (0.25, 0.5, 0.75, 0.999, 0.9999)),
    *(hour * 3600 - 1 for hour in range(1, 240)),
    *(-90, -0.4),
)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_scripts_say_durations_as_the_hub_does() -> None:
    """A page does not change its words when its script arrives: each second of a day, each minute of ten."""
    program = """
import { readFileSync } from "node:fs";
const [module, times] = JSON.parse(readFileSync(0));
console.log(JSON.stringify(times.map((await import(module)).duration)));
"""
    answer = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        input=json.dumps([f"data:text/javascript,{quote(WORDS.read_text())}", TIMES]),
        capture_output=True,
        text=True,
        check=True,
    )

    said = dict(zip(TIMES, json.loads(answer.stdout), strict=True))
    assert {time: words for time, words in said.items() if duration(time) != words} == {}


UNITS = {"s": 1, "min": 60, "h": 3600, "days": 86400}


def test_a_duration_is_never_more_than_there_is_nor_as_much_less_as_the_unit_shown() -> None:
    """Of two durations the words of the longer one are never less."""
    pairs = {time: duration(time).split(" ") for time in TIMES if time >= 0}
    promised = {
        time: sum(int(n) * UNITS[unit] for n, unit in zip(w[::2], w[1::2], strict=True)) for time, w in pairs.items()
    }
    shown = {time: 1 if time < 59.999 else 60 if time < 48 * 3600 - 0.001 else 3600 for time in promised}

    assert [time for time, length in promised.items() if not 0 <= time + 0.001 - length < shown[time]] == []


@pytest.mark.parametrize(
    ("mib", "words"),
    [
        (None, ""),
        (0, "0 MiB"),
        (512, "512 MiB"),
        (1024, "1 GiB"),
        (9728, "9.5 GiB"),
        (10239, "9.9 GiB"),
        (10752, "10.5 GiB"),
        (11441, "11 GiB"),
        (12800, "12.5 GiB"),
        (15872, "15.5 GiB"),
        (16383, "15.5 GiB"),
        (30208, "29.5 GiB"),
        (65536, "64 GiB"),
    ],
)
def test_memory(mib: int | None, words: str) -> None:
    """MiB below one GiB, tenths below ten, then halves: never more than there is."""
    assert memory(mib) == words


def test_memory_is_never_more_than_there_is() -> None:
    """And each half of a GiB, as an option may be graded, has words of its own."""
    amounts = list(range(1024, 200 * 1024, 13))
    promised = [float(memory(mib).removesuffix(" GiB")) * 1024 for mib in amounts]
    halves = [memory(512 * n) for n in range(2, 2000)]

    assert [mib for mib, gib in zip(amounts, promised, strict=True) if not 0 <= floor(mib - gib) < 512] == []
    assert len(set(halves)) == len(halves)


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
