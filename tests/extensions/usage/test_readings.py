"""What a server uses: its GPUs over the stand-in NVML with a scripted curve, and CPU time and memory of its job."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.usage.node import readings
from jupyterhub_gpuspawner.extensions.usage.node.readings import UNKNOWN, GpuReading, HostReading
from jupyterhub_gpuspawner.wire.documents import PlacedGpu
from tests.node.conftest import StandinNvml

WHOLE = PlacedGpu(0, "GPU-a", "0000:07:00.0", "NVIDIA A100", 40960)
OTHER = PlacedGpu(1, "GPU-b", "0000:0f:00.0", "NVIDIA A100", 40960)
PART = PlacedGpu(2, "MIG-c", "0000:47:00.0", "NVIDIA H100", 20480, mig="2g.20gb")
MACHINE = """\
driver 550.54
gpu GPU-a 00000000:07:00.0 40960 0 - - -1 4 NVIDIA_A100
gpu GPU-b 00000000:0f:00.0 40960 1 - - -1 4 NVIDIA_A100
gpu GPU-parent 00000000:47:00.0 81920 2 - - -1 5 NVIDIA_H100
mig 2 4
part 2 1 MIG-c 20480 NVIDIA_H100_MIG_2g.20gb
curve 0 -1 0 0 512 0 50
curve 0 -1 30 83 21504 2 250
curve 1 -1 0 100 40000 1 400
curve 2 1 0 40 10240 1 0
curve 2 1 60 70 12288 3 0
"""
WITH_GPM = f"{MACHINE}gpm 2\n"

_READ = """
import json, os, sys
from dataclasses import asdict
from jupyterhub_gpuspawner.extensions.usage.node.readings import Gpus, NvmlError
from jupyterhub_gpuspawner.wire.documents import PlacedGpu
asked = json.load(sys.stdin)
try:
    gpus = Gpus([PlacedGpu(**gpu) for gpu in asked["gpus"]], shared=asked["shared"])
except (OSError, NvmlError) as error:
    sys.exit(print(json.dumps(str(error))))
for number, second in enumerate(asked["times"]):
    if number and asked["then"]:
        with open(os.environ["STANDIN_NVML"], "w") as file:
            file.write(asked["then"])
    with open(os.environ["STANDIN_NVML_CLOCK"], "w") as file:
        file.write(str(second))
    readings, problems = gpus.read()
    print(json.dumps([[asdict(reading) for reading in readings], problems]))
"""

_PYNVML = """
import json, os, pynvml
with open(os.environ["STANDIN_NVML_CLOCK"], "w") as file:
    file.write("45")
pynvml.nvmlInit()
for uuid in ("GPU-a", "MIG-c"):
    def ask(function, *arguments):
        try:
            return getattr(pynvml, function)(device, *arguments)
        except pynvml.NVMLError as error:
            assert error.value == pynvml.NVML_ERROR_NOT_SUPPORTED, error
    device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    memory = ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
    rates = ask("nvmlDeviceGetUtilizationRates")
    print(json.dumps([
        None if rates is None else float(rates.gpu),
        memory.total >> 20,
        memory.used >> 20,
        len(ask("nvmlDeviceGetComputeRunningProcesses")),
    ]))
"""


class Node(StandinNvml):
    """A node with the stand-in's driver; each reading is made by a process of its own."""

    def read(
        self,
        *gpus: PlacedGpu,
        at: tuple[float, ...] = (0.0,),
        machine: str = MACHINE,
        then: str = "",
        shared: bool = False,
    ) -> list[tuple[tuple[GpuReading, ...], tuple[str, ...]]]:
        """The readings at these times of the stand-in's clock, with their problems; ``then``: from the second on."""
        request = {"gpus": [asdict(gpu) for gpu in gpus], "times": at, "shared": shared, "then": then}
        answers = self.run(_READ, machine, request)
        return [
            (tuple(GpuReading(**reading) for reading in readings), tuple(problems)) for readings, problems in answers
        ]


@pytest.fixture
def node(nvml_folder: Path, tmp_path: Path) -> Node:
    """A node with the stand-in's driver."""
    return Node(nvml_folder, tmp_path)


def test_the_servers_own_gpus_are_read_along_the_curve(node: Node) -> None:
    """Each by its UUID, in the order of the placement; energy is the driver's counter."""
    first, second = node.read(OTHER, WHOLE, at=(0, 90))

    assert first == (
        (GpuReading(100, 40960, 40000, 1, 400, 1), GpuReading(0, 40960, 512, 0, 50, 1)),
        (),
    )
    assert second == (
        (
            GpuReading(100, 40960, 40000, 1, 400, 1 + 90 * 400),
            GpuReading(83, 40960, 21504, 2, 250, 1 + 30 * 50 + 60 * 250),
        ),
        (),
    )


@pytest.mark.skipif(find_spec("pynvml") is None, reason="pynvml (nvidia-ml-py) is not installed")
def test_the_readings_are_those_of_pynvml(node: Node) -> None:
    """The real pynvml, over the same library at the same time; it has no use of a MIG device either."""
    [(ours, _)] = node.read(WHOLE, PART, at=(45,))

    assert node.run(_PYNVML, MACHINE) == [
        [gpu.utilization, gpu.memory_mib, gpu.memory_used_mib, gpu.processes] for gpu in ours
    ]


def test_a_gpu_without_a_uuid_is_found_by_its_pci_address(node: Node) -> None:
    """As the kernel writes it."""
    [((reading,), problems)] = node.read(PlacedGpu(0, "", "0000:07:00.0"), at=(45,))

    assert (reading.utilization, problems) == (83, ())


def test_the_use_of_a_mig_device_is_unknown_without_gpm(node: Node) -> None:
    """NVML has no utilisation of it; memory and processes are known, power is that of the whole GPU."""
    readings = node.read(PART, at=(0, 60))

    assert readings == [((GpuReading(None, 20480, 10240, 1),), ()), ((GpuReading(None, 20480, 12288, 3),), ())]


def test_the_use_of_a_mig_device_is_read_by_gpm(node: Node) -> None:
    """It compares two samples, so the first reading is unknown; a clock that stands still gives none."""
    readings = node.read(PART, at=(0, 30, 60, 60), machine=WITH_GPM)

    assert [reading.utilization for (reading,), _ in readings] == [None, 40, 70, None]


def test_on_a_shared_gpu_the_use_of_others_is_not_told(node: Node) -> None:
    """Processes and memory of this user alone (the stand-in's processes are nobody's)."""
    [((reading,), _)] = node.read(WHOLE, at=(45,), shared=True)

    assert reading == GpuReading(None, 40960, 0, 0)


def test_what_a_driver_cannot_mean_is_unknown(node: Node) -> None:
    """More than 100 %, more memory than there is, four megawatts: values of drivers in trouble.

    The hub would refuse a summary with them, and with it all the rest.
    """
    lying = f"{MACHINE}curve 0 -1 60 4294967295 50000 2 4294967\n"

    [((reading,), problems)] = node.read(WHOLE, at=(60,), machine=lying)

    assert (replace(reading, energy_joules=None), problems) == (GpuReading(None, 40960, None, 2), ())


IN_PART = GpuReading(40, 20480, 10240, 1)
ON_WHOLE = GpuReading(83, 40960, 21504, 2, 250, 5251)
NOT_SUPPORTED = (
    (WHOLE, "nvmlDeviceGetUtilizationRates", replace(ON_WHOLE, utilization=None)),
    (WHOLE, "nvmlDeviceGetMemoryInfo_v2", ON_WHOLE),
    (WHOLE, "nvmlDeviceGetComputeRunningProcesses_v3", replace(ON_WHOLE, processes=None)),
    (WHOLE, "nvmlDeviceGetPowerUsage", replace(ON_WHOLE, power_watts=None)),
    (WHOLE, "nvmlDeviceGetTotalEnergyConsumption", replace(ON_WHOLE, energy_joules=None)),
    (PART, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", replace(IN_PART, utilization=None)),
    (PART, "nvmlDeviceGetGpuInstanceId", replace(IN_PART, utilization=None)),
    (PART, "nvmlGpmQueryDeviceSupport", replace(IN_PART, utilization=None)),
    (PART, "nvmlGpmMigSampleGet", replace(IN_PART, utilization=None)),
    (PART, "nvmlGpmMetricsGet", replace(IN_PART, utilization=None)),
    (PART, "nvmlDeviceGetMemoryInfo_v2", IN_PART),
    (PART, "nvmlDeviceGetComputeRunningProcesses_v3", replace(IN_PART, processes=None)),
)


@pytest.mark.parametrize(("gpu", "function", "expected"), NOT_SUPPORTED)
def test_what_the_driver_does_not_support_is_unknown(
    node: Node, gpu: PlacedGpu, function: str, expected: GpuReading
) -> None:
    """Unknown is None, never 0; the rest is read all the same."""
    at = (45.0,) if gpu is WHOLE else (0.0, 30.0)

    *_, ((reading,), problems) = node.read(gpu, at=at, machine=f"{WITH_GPM}fail {function} 3 -1\n")

    assert (reading, problems) == (expected, ())


def test_a_gpu_that_is_lost_is_unknown_and_named(node: Node) -> None:
    """The other one is read."""
    [(readings, problems)] = node.read(WHOLE, OTHER, at=(0,), machine=f"{MACHINE}fail nvmlDeviceGetHandleByUUID 15 0\n")

    assert readings == (UNKNOWN, GpuReading(100, 40960, 40000, 1, 400, 1))
    assert problems == ("The use of GPU 0 is unknown: nvmlDeviceGetHandleByUUID failed: GPU is lost.",)


LOST_CALLS = ("MemoryInfo", "MemoryInfo_v2", "ComputeRunningProcesses_v3", "PowerUsage", "TotalEnergyConsumption")
LATER = {
    "a MIG device that is replaced": (
        PART,
        MACHINE.replace("part 2 1 MIG-c", "part 2 3 MIG-d").replace("curve 2 1", "curve 2 3"),
        "The use of GPU 2 is unknown: nvmlDeviceGetHandleByUUID failed: Not Found.",
    ),
    "a GPU that falls off the bus": (
        WHOLE,
        MACHINE
        + "".join(f"fail nvmlDeviceGet{call} 15 0\n" for call in (*LOST_CALLS, "UtilizationRates", "HandleByUUID")),
        "The use of GPU 0 is unknown: nvmlDeviceGetHandleByUUID failed: GPU is lost.",
    ),
}


@pytest.mark.parametrize(("gpu", "then", "problem"), LATER.values(), ids=LATER.keys())
def test_what_happens_to_a_gpu_while_its_server_runs_is_named(
    node: Node, gpu: PlacedGpu, then: str, problem: str
) -> None:
    """Once the device answers nothing any more, it is looked for again, as also after a reset of the GPU."""
    (_, before), *later = node.read(gpu, at=(0, 30, 60), then=then)

    assert (before, later) == ((), [((UNKNOWN,), ()), ((UNKNOWN,), (problem,))])


def test_a_driver_that_is_not_loaded_says_so(node: Node) -> None:
    """nvmlInit fails."""
    request = {"gpus": [asdict(WHOLE)], "times": [0], "shared": False}

    assert node.run(_READ, f"{MACHINE}fail nvmlInitWithFlags 9 -1\n", request) == [
        "nvmlInit_v2 failed: Driver Not Loaded"
    ]


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
    assert readings.read_host(10, tree(tmp_path, files)) == HostReading(12.5, 512)


def test_without_a_cgroup_of_the_job_the_servers_processes_are_added_up(tmp_path: Path) -> None:
    """The server and what it has started, whatever their names; memory without what is shared."""
    page = os.sysconf("SC_PAGE_SIZE")

    assert readings.read_host(10, tree(tmp_path, PROCESSES)) == HostReading(4.0, 2 * 2560 * page >> 20)


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

    assert readings.read_host(10, tree(tmp_path, files), job="42").cpu_seconds == 7.0


def test_what_a_cgroup_does_not_tell_is_taken_from_the_processes(tmp_path: Path) -> None:
    """A site whose Slurm does not limit memory has no memory in the job's cgroup."""
    files = {name: text for name, text in V2.items() if "memory" not in name}

    reading = readings.read_host(10, tree(tmp_path, PROCESSES | files))

    assert reading == HostReading(12.5, 2 * 2560 * os.sysconf("SC_PAGE_SIZE") >> 20)


def test_of_a_server_that_has_ended_nothing_is_known(tmp_path: Path) -> None:
    """Unknown, not zero."""
    assert readings.read_host(99, tree(tmp_path, PROCESSES)) == HostReading(None, None)


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
        cpu_seconds = [readings.read_host(alone.pid, job=job).cpu_seconds or 0.0 for job in ("", "424242")]
        worker = readings.read_host(detached.pid)
        alone.kill()
        detached.kill()

    assert cpu_seconds[1] - cpu_seconds[0] >= 0.4
    assert (worker.cpu_seconds or 0.0) >= 0.4
    assert worker.memory_mib is not None
