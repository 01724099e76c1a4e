"""``nvidia-smi`` of the demo's simulated nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.nvidia_smi import main
from jupyterhub_gpuspawner.demo.run import simulated_commands
from jupyterhub_gpuspawner.demo.slurm_cluster import MACHINES
from jupyterhub_gpuspawner.node import usage

PATTERN = str(MACHINES / "{node}.json")
K80 = {"SLURMD_NODENAME": "k80-2socket", "CUDA_VISIBLE_DEVICES": "2,0", "SLURM_JOB_GPUS": "0,2"}
SLICES = ("MIG-2329e4b1-efb2-4e92-aa9c-25ec3750514b", "MIG-b7f8ffae-3d92-4524-8ee7-aec9a0a38053")
MIG = {"SLURMD_NODENAME": "a100-mig", "CUDA_VISIBLE_DEVICES": ",".join(SLICES)}
NOW = 1200.0 * 1000
UUIDS = ("GPU-d2427f9e-0035-4f65-ae36-b7ebf38d8e3b", "GPU-7abb6c73-11cc-44ed-aec3-529cf4b410b9")
ANSWERS: dict[str, tuple[dict[str, str], str, int, str]] = {
    "the listing": (
        K80,
        "-L",
        0,
        f"GPU 0: Tesla K80 (simulated) (UUID: {UUIDS[0]})\nGPU 2: Tesla K80 (simulated) (UUID: {UUIDS[1]})\n",
    ),
    "MIG devices of a GPU": (
        MIG,
        "-L",
        0,
        "GPU 2: NVIDIA A100-SXM4-80GB (simulated)\n"
        f"  MIG 1g.10gb     Device  1: (UUID: {SLICES[1]})\n"
        f"  MIG 1g.10gb     Device  2: (UUID: {SLICES[0]})\n",
    ),
    "a query": (
        K80,
        "--query-gpu=index,name,utilization.gpu,memory.total,temperature.gpu --format=csv",
        0,
        "index, name, utilization.gpu [%], memory.total [MiB], temperature.gpu\n"
        "0, Tesla K80 (simulated), {use[0]} %, 11441 MiB, [N/A]\n"
        "2, Tesla K80 (simulated), {use[2]} %, 11441 MiB, [N/A]\n",
    ),
    "one GPU, for programs": (
        K80,
        "-i 2 --query-gpu index,utilization.gpu,pci.bus_id --format csv,noheader,nounits",
        0,
        "2, {use[2]}, 00000000:84:00.0\n",
    ),
    "a job without GPUs": ({"SLURMD_NODENAME": "cpu"}, "-L", 6, "No devices were found\n"),
    "outside of a job": ({"CUDA_VISIBLE_DEVICES": "0"}, "-L", 6, "No devices were found\n"),
    "a GPU of another job": (K80, "-L -i 1", 6, "No devices were found\n"),
}


@pytest.mark.parametrize(("environ", "words", "code", "said"), ANSWERS.values(), ids=ANSWERS.keys())
def test_it_answers_like_nvidia_smi_for_the_jobs_own_gpus(
    environ: dict[str, str], words: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the use that the pages show; names and sentences say that it is simulated."""
    use = {index: f"{usage.reading(index, 11441, NOW).utilization:g}" for index in (0, 2)}

    assert main(words.split(), environ, PATTERN, now=NOW) == code
    assert capsys.readouterr().out == (said.format(use=use) if "{use" in said else said)


def test_each_mig_device_has_the_use_that_the_pages_show(capsys: pytest.CaptureFixture[str]) -> None:
    """As the launcher samples it for the same UUID, for a whole turn of the curves."""
    for now in (NOW + 30 * each for each in range(40)):
        assert main(["--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits"], MIG, PATTERN, now=now) == 0
        use = {uuid: usage.reading(2, 9728, now, mig=True, uuid=uuid).utilization for uuid in reversed(SLICES)}
        assert capsys.readouterr().out == "".join(f"{uuid}, {value:g}\n" for uuid, value in use.items())


@pytest.mark.parametrize("words", ["dmon", "--query-gpu=fan.speed --format=csv", "--query-gpu=index --format=xml"])
def test_it_refuses_what_it_does_not_know(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With nvidia-smi's exit code, so that no program takes silence for an answer."""
    with pytest.raises(SystemExit) as raised:
        main(words.split(), K80, PATTERN, now=NOW)

    assert (raised.value.code, capsys.readouterr().out) == (2, "")


def test_the_table_says_that_nothing_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is as wide as the others; use and memory are those of the curve."""
    assert main([], K80, PATTERN, now=NOW) == 0

    _, *lines = capsys.readouterr().out.splitlines()
    reading = usage.reading(2, 11441, NOW)
    assert len({len(line) for line in lines}) == 1
    assert "NVIDIA-SMI of simulated GPUs" in lines[1]
    assert "nothing was measured" in lines[-2]
    assert f"{reading.memory_used_mib}MiB / 11441MiB | {reading.utilization:g}%" in lines[-4]


def test_the_command_of_a_session_is_read_like_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever parses nvidia-smi's output."""
    commands = simulated_commands(tmp_path, PATTERN)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    for name, value in K80.items():
        monkeypatch.setenv(name, value)

    query = subprocess.run(
        ["nvidia-smi", "--query-gpu=index,uuid,memory.total,driver_version", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert query.stdout == f"0, {UUIDS[0]}, 11441, 470.256.02\n2, {UUIDS[1]}, 11441, 470.256.02\n"
    assert sys.executable in (commands / "nvidia-smi").read_text()
