"""The sampler: when it samples and sends, over a fake clock; and beside a real server, with drivers that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.simulated_use import simulated_use
from jupyterhub_gpuspawner.extensions.usage.carried import MODULE
from jupyterhub_gpuspawner.extensions.usage.node import readings, sampler
from jupyterhub_gpuspawner.extensions.usage.node.readings import GpuReading, HostReading
from jupyterhub_gpuspawner.extensions.usage.node.sampler import JobSampler, Sample, UnwantedError
from jupyterhub_gpuspawner.extensions.usage.node.summary import GpuUse, UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import parse_usage
from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument, Step
from tests.node.conftest import LaunchedServer, StandinNvml
from tests.standins.report_hub import ReportHub
from tests.waiting import wait_until

ABOUT = UsageSummary(job_id="7", interval=30, gpus=(GpuUse(0, "GPU-a", memory_mib=40960),))
EACH_SECOND = Step(f"{MODULE}:accompany", {"interval": 1.0})


class World:
    """A server, its clock and its hub: each sample costs no time, and the server ends at ``ends_at``."""

    def __init__(self, *, ends_at: float, answers: list[bool] | None = None, busy: float | None = 50.0) -> None:
        self.now, self.ends_at, self.busy = 0.0, ends_at, busy
        self.answers = answers or []
        self.sent: list[tuple[float, UsageSummary]] = []

    def read_sample(self) -> Sample:
        reading = GpuReading(self.busy, 40960, 1000 + round(self.now), 1, 100, 100 * self.now)
        return Sample(self.now, (reading,), HostReading(2 * self.now, 512))

    def send(self, summary: UsageSummary) -> bool:
        self.sent.append((self.now, summary))
        return self.answers.pop(0) if self.answers else True

    def over(self, seconds: float) -> bool:
        self.now = min(self.now + seconds, self.ends_at)
        return self.now >= self.ends_at

    def run(self) -> list[tuple[float, UsageSummary]]:
        sampler.sample(ABOUT, read_sample=self.read_sample, send=self.send, over=self.over)
        return self.sent


def test_a_summary_comes_after_a_minute_of_samples_then_every_five_minutes_and_at_the_end() -> None:
    """Each is about the time since the one before."""
    sent = World(ends_at=700).run()

    assert [(now, summary.seconds, summary.samples, summary.final) for now, summary in sent] == [
        (90, 60, 2, False),
        (390, 300, 10, False),
        (690, 300, 10, False),
        (700, 0, 0, True),
    ]


def test_a_summary_has_the_last_value_the_mean_and_the_maximum() -> None:
    """Energy and cores are differences of counters."""
    [(_, first), *_] = World(ends_at=700).run()

    use = GpuUse(
        *(0, "GPU-a", None),
        utilization=50,
        utilization_mean=50,
        utilization_max=50,
        utilization_samples=2,
        memory_mib=40960,
        memory_used_mib=1090,
        memory_used_max_mib=1090,
        processes=1,
        power_watts=100,
        energy_joules=6000,
    )
    assert first == replace(
        ABOUT,
        seconds=60,
        samples=2,
        gpus=(use,),
        cores=2,
        cores_mean=2,
        cores_max=2,
        memory_mib=512,
        memory_max_mib=512,
    )


def test_a_summary_that_the_hub_did_not_take_is_part_of_the_next() -> None:
    """A hub that is away for ten minutes misses nothing; the next try is not sooner than usual."""
    sent = World(ends_at=1000, answers=[True, False, False]).run()

    assert [(now, summary.seconds, summary.samples) for now, summary in sent] == [
        (90, 60, 2),
        (390, 300, 10),
        (690, 600, 20),
        (990, 900, 30),
        (1000, 0, 0),
    ]


def test_what_a_hub_has_not_taken_for_an_hour_is_dropped() -> None:
    """A summary is never about much more than an hour."""
    sent = World(ends_at=20000, answers=[False] * 100).run()

    assert max(summary.seconds for _, summary in sent) == 3900


def test_a_use_that_is_unknown_is_not_zero() -> None:
    """Neither the last value, nor the mean, nor the maximum."""
    [(_, summary), *_] = World(ends_at=100, busy=None).run()

    [gpu] = summary.gpus
    assert (gpu.utilization, gpu.utilization_mean, gpu.utilization_max, gpu.utilization_samples) == (None,) * 3 + (0,)
    assert gpu.memory_used_mib == 1090


def test_a_hub_that_wants_none_is_left_alone() -> None:
    """One try."""
    world = World(ends_at=10000)
    tries = []

    def send(summary: UsageSummary) -> bool:
        tries.append(summary)
        raise UnwantedError

    sampler.sample(ABOUT, read_sample=world.read_sample, send=send, over=world.over)

    assert len(tries) == 1


def test_a_driver_that_hangs_leaves_its_part_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked again while it hangs; the job's part goes on."""
    calls = []
    release = threading.Event()

    def hang(*_: object, **__: object) -> None:
        calls.append(1)
        release.wait(60)
        raise OSError

    monkeypatch.setattr(sampler, "DRIVER_PATIENCE", 0.05)
    monkeypatch.setattr(readings.Gpus, "__init__", hang)
    looking = JobSampler(PlacementDocument(gpus=(PlacedGpu(0, "GPU-a"),)), {}, os.getpid())

    first, second = looking.read_sample(), looking.read_sample()
    release.set()

    assert len(calls) == 1
    assert first.gpus == second.gpus == (GpuReading(),)
    assert first.problems == ("The use of the GPUs is unknown: the driver did not respond within 0.05 s.",)
    assert first.host.cpu_seconds is not None


def test_a_node_without_the_drivers_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPUs' use is unknown, the job's is known."""
    monkeypatch.setattr("jupyterhub_gpuspawner.node.nvml.LIBRARY", "libno-such-library.so.1")
    looking = JobSampler(PlacementDocument(gpus=(PlacedGpu(0, "GPU-a"),)), {}, os.getpid())

    sample = looking.read_sample()

    assert sample.gpus == (GpuReading(),)
    assert sample.problems[0].startswith("The use of the GPUs is unknown: libno-such-library.so.1: ")
    assert sample.host.memory_mib is not None


def test_simulated_gpus_have_a_simulated_curve() -> None:
    """The same for everybody who looks at the same time, without a driver."""
    placement = PlacementDocument(simulated=True, gpus=(PlacedGpu(1, memory_mib=12288), PlacedGpu(2, mig="1g.5gb")))

    sample = JobSampler(placement, {}, os.getpid()).read_sample()

    assert [gpu.utilization is not None for gpu in sample.gpus] == [True, True]
    assert [gpu.memory_mib for gpu in sample.gpus] == [12288, 12288]
    assert sample.gpus[1].power_watts is None


def test_two_simulated_mig_devices_of_one_gpu_have_curves_of_their_own() -> None:
    """Told apart by their UUIDs; each curve is the same at each look."""
    gpus = [PlacedGpu(2, uuid=f"MIG-{name}", memory_mib=9728, mig="1g.10gb") for name in ("b7f8ffae", "2329e4b1")]

    def curve(gpu: PlacedGpu) -> list[float | None]:
        times = [60.0 * minute for minute in range(20)]
        return [simulated_use(gpu.index, 9728, now, mig=True, uuid=gpu.uuid).utilization for now in times]

    first, second = map(curve, gpus)
    assert first != second
    assert [first, second] == list(map(curve, gpus))
    assert [sum(use != 0 for use in uses) for uses in (first, second)] == [10, 10]


@pytest.mark.parametrize(
    ("environ", "used", "memory", "percent"),
    [
        ({"SLURM_MEM_PER_NODE": "8192"}, 2150, "2.1 of 8 GiB", 26),
        ({"SLURM_MEM_PER_CPU": "128"}, 470, "470 of 512 MiB", 92),
        ({"SLURM_MEM_PER_CPU": "128", "SLURM_CPUS_ON_NODE": "2"}, 235, "235 of 256 MiB", 92),  # cores of two threads
        ({}, 20480, "20 GiB", 0),
        ({"SLURM_MEM_PER_NODE": "8192"}, None, "", 0),
    ],
)
def test_memory_and_cpus_are_parts_of_what_the_job_has(
    environ: dict[str, str], used: int | None, memory: str, percent: int
) -> None:
    """As far as Slurm's variables say it."""
    before, now = (Sample(at, host=HostReading(seconds, used)) for at, seconds in ((0.0, 10.0), (30.0, 55.0)))
    placement = PlacementDocument(cpus="0-3")
    whole = sampler.memory_of_job(placement, environ)

    of_memory = [("memory", memory, percent)] if memory else []

    assert sampler.host_of(now, [before], 4, whole) == {
        "memory": memory,
        "bars": (("CPUs", "1.5 of 4", 38), *of_memory),
    }
    assert sampler.host_of(now, [], 4, whole) == {"memory": memory, "bars": (*of_memory,)}


OCCASIONS: dict[str, tuple[list[int | None], int, list[float | None]]] = {
    "up and down around the limit": ([800, 899, 900, 880, 905, 801], 1000, [None, None, 2.0, 2.0, 2.0, 2.0]),
    "freed, and filled again": ([950, 799, 890, 950], 1000, [0.0, None, None, 3.0]),
    "not known for a while": ([None, 950, None, 700, None], 1000, [None, 1.0, 1.0, None, None]),
    "a job without a limit": ([950, 100_000], 0, [None, None]),
}


@pytest.mark.parametrize(("used", "whole", "since"), OCCASIONS.values(), ids=OCCASIONS.keys())
def test_memory_is_low_from_nine_tenths_on_until_a_fifth_is_free(
    used: list[int | None], whole: int, since: list[float | None]
) -> None:
    """Each occasion has the time at which it began, so that it is told once."""
    answers: list[float | None] = []
    for at, mib in enumerate(used):
        before = answers[-1] if answers else None
        answers.append(sampler.memory_low_since(before, mib, whole, now=float(at)))

    assert answers == since


def test_the_last_sample_is_written_for_the_companion(tmp_path: Path) -> None:
    """In place of the one before; in a folder that is not there nothing is, and nothing fails."""
    readings = (GpuReading(83, 40960, 21504, 2, 250, 100.0), GpuReading())
    about = replace(ABOUT, gpus=(GpuUse(0, "GPU-a", memory_mib=40960), GpuUse(3, "MIG-b", "1g.5gb", mig_device=0)))
    for problems in ((), ("The use of GPU 3 is unknown.",)):
        host = {"memory": "2.1 of 8 GiB", "bars": [["memory", "2.1 of 8 GiB", 26]], "low_since": None}
        sampler.show(Sample(5.0, readings, problems=problems), about, str(tmp_path / "usage.json"), host=host)
    sampler.show(Sample(5.0, readings), about, str(tmp_path / "no-such-folder" / "usage.json"), host={})
    sampler.show(Sample(5.0, readings), about, "", host={})

    assert [file.name for file in tmp_path.iterdir()] == ["usage.json"]
    document = json.loads((tmp_path / "usage.json").read_text())
    assert {**document, "at": 0} == {
        "version": 1,
        "at": 0,
        "interval": 30,
        "simulated": False,
        "short": "GPU 83\N{NO-BREAK SPACE}% / unknown",
        "gpus": [
            ["GPU 0", "83\N{NO-BREAK SPACE}%, 21 of 40 GB, 2 processes", 83],
            ["slice 0 of GPU 3", "use unknown", 0],
        ],
        "host": host,
        "problems": ["The use of GPU 3 is unknown."],
    }


@pytest.mark.parametrize("pidfd", [True, False], ids=["pidfd", "an old kernel"])
def test_the_wait_ends_with_the_server(monkeypatch: pytest.MonkeyPatch, pidfd: bool) -> None:
    """At once where the kernel tells it, within seconds where it does not."""
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.setattr(child, "_POLL", 0.05)
    before = signal.getsignal(signal.SIGTERM)
    try:
        server = subprocess.Popen(["sleep", "60"])
        over = child.wait_for_end(server.pid)
        assert not over(0.01)
        server.kill()
        server.wait()
        assert over(60)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, before)


# --- beside a server ---------------------------------------------------------------------------------

MACHINE = """\
driver 550.54
gpu GPU-a 00000000:07:00.0 40960 0 1 1 -1 4 NVIDIA_A100
curve 0 -1 0 83 21504 2 250
"""


def summaries(hub: ReportHub) -> list[UsageSummary]:
    return [parse_usage(request.body) for request in hub.requests if request.path.endswith("/usage")]


@pytest.fixture
def driver(standin: StandinNvml) -> dict[str, str]:
    """The environment of a job on a node with one GPU."""
    standin.machine.write_text(MACHINE)
    return {**standin.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}


def test_one_process_beside_the_server_tells_the_hub_until_the_server_ends(
    launched: Callable[..., LaunchedServer], driver: Mapping[str, str]
) -> None:
    """The process that told the port; its last summary says that it is the last."""
    with ReportHub() as hub:
        server = launched({**hub.environ, **driver}, beside=(EACH_SECOND,))
        wait_until(lambda: len(summaries(hub)) > 0)
        assert len(server.beside()) == 1
        server.process.kill()
        wait_until(lambda: summaries(hub)[-1].final)
        wait_until(lambda: not server.beside())
        request = next(request for request in hub.requests if request.path.endswith("/usage"))

    first = summaries(hub)[0]
    [gpu] = first.gpus
    assert (request.path, request.headers["Authorization"]) == ("/hub/api/gpuspawner/usage", "token the-token")
    assert (gpu.uuid, gpu.utilization, gpu.memory_used_mib, gpu.processes) == ("GPU-a", 83, 21504, 2)
    assert (first.simulated, first.final, first.problems) == (False, False, ())
    assert first.cores is not None
    assert first.memory_mib is not None


def test_a_sampler_that_hangs_or_is_killed_harms_no_server(
    launched: Callable[..., LaunchedServer], driver: Mapping[str, str]
) -> None:
    """The server goes on. A sampler that hung continues when it can; after one that was killed there is none."""
    with ReportHub() as hub:
        server = launched({**hub.environ, **driver}, beside=(EACH_SECOND,))
        wait_until(lambda: len(summaries(hub)) > 0)
        [process] = server.beside()
        process.suspend()
        before = len(summaries(hub))
        assert server.process.poll() is None
        process.resume()
        wait_until(lambda: len(summaries(hub)) > before, seconds=60)
        process.kill()

        wait_until(lambda: not server.beside())
        assert server.process.poll() is None


def test_a_driver_that_hangs_keeps_no_process_after_the_server(
    launched: Callable[..., LaunchedServer], driver: dict[str, str]
) -> None:
    """The sampler is in a call that never returns, and ends with the server all the same."""
    Path(driver["STANDIN_NVML"]).write_text(f"{MACHINE}fail nvmlDeviceGetMemoryInfo_v2 hang -1\n")
    with ReportHub() as hub:
        server = launched({**hub.environ, **driver}, beside=(EACH_SECOND,))
        wait_until(
            lambda: any(b'"port":' in request.body and b'"port":null' not in request.body for request in hub.requests)
        )
        server.process.kill()

        wait_until(lambda: not server.beside())


def test_a_job_that_is_cancelled_tells_its_last_use(
    launched: Callable[..., LaunchedServer], driver: Mapping[str, str]
) -> None:
    """Slurm sends SIGTERM to every process of the job."""
    with ReportHub() as hub:
        server = launched({**hub.environ, **driver}, beside=(EACH_SECOND,))
        wait_until(lambda: len(summaries(hub)) > 0)
        [process] = server.beside()
        process.terminate()

        wait_until(lambda: summaries(hub)[-1].final)
        wait_until(lambda: not server.beside())
