"""The metrics that Prometheus scrapes: stages, commands, GPUs, servers taken up, jobs without a server."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import REGISTRY

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.hub.job.cause import Stage
from jupyterhub_gpuspawner.hub.job.session import Life
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.connection import UnreadRecords, count_command
from jupyterhub_gpuspawner.hub.site.metrics import TYPES_AT_MOST, gpus_in_use
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start import submission
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.text import UnparsedField
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument
from tests.fixtures.hubs import COMMAND, StartHub, scrape
from tests.hub.start.test_submission import Slurm, settle, submission_task

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.demo.hub import HubProcess

PROFILES = f"""
- display_name: Two K80
  slug: two-k80
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 1G, time: "0:10:00"}}
  command: {COMMAND}
- display_name: Too many
  slug: too-many
  slurm: {{partition: gpu, gpus: 500, cpus: 1, memory: 1G, time: "0:10:00"}}
  command: {COMMAND}
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub for this module, whose counters begin at zero."""
    return start_light_hub(profiles=PROFILES)


# the tests of this hub follow each other in one, since each scrape counts from the one before it


@pytest.mark.slurm
@pytest.mark.hub
def test_a_servers_life_in_numbers(hub: HubProcess) -> None:
    """Before any start, after a start, after a refusal, after a restart of the hub, and after the server's end."""
    at_first = scrape(hub)
    assert {name for (name, _), value in at_first.items() if value} <= {
        "slurm_command_seconds_count",
        "slurm_command_seconds_sum",
    }
    assert {
        ("servers_adopted_total", ("running",)),
        ("servers_adopted_total", ("starting",)),
        ("jobs_without_server_total", ("start given up",)),
        ("jobs_without_server_total", ("sbatch unanswered",)),
        ("jobs_without_server_total", ("orphan",)),
    } <= at_first.keys()

    began = time.time()
    hub.api("POST", "/users/rae")
    hub.api("GET", "/gpuspawner/profiles/rae")  # as the form does: what it says is kept
    hub.spawn("rae", {"profile": "two-k80"})
    took = time.time() - began
    started = scrape(hub)
    stages = ("queue", "start", "ready")
    assert [started["spawn_stage_seconds_count", ("two-k80", stage)] for stage in stages] == [1.0] * 3
    assert 0 < sum(started["spawn_stage_seconds_sum", ("two-k80", stage)] for stage in stages) < took
    assert started["slurm_command_seconds_count", ("sbatch",)] == 1.0
    assert started["slurm_command_seconds_count", ("squeue",)] >= 1.0
    assert started["gpus_in_use", ("gpu", "Tesla K80")] == 2.0
    assert started["promised_starts_total", ("within", "click", "two-k80")] == 1.0
    assert not any(name == "slurm_failures_total" for name, _ in started)

    hub.api("POST", "/users/sam")
    assert hub.api("POST", "/users/sam/server", {"profile": "too-many"}).status_code >= 400
    refused = scrape(hub)
    assert refused["slurm_failures_total", ("sbatch", "refused")] == 1.0
    assert ("spawn_stage_seconds_count", ("too-many", "queue")) not in refused

    hub.restart()
    hub.wait("rae", ready=True)
    after_restart = scrape(hub)
    assert {
        name: value for name, value in after_restart.items() if name[0] in ("servers_adopted_total", "gpus_in_use")
    } == {
        ("servers_adopted_total", ("running",)): 1.0,
        ("servers_adopted_total", ("starting",)): 0.0,
        ("gpus_in_use", ("gpu", "Tesla K80")): 2.0,
    }

    hub.end("rae")
    assert ("gpus_in_use", ("gpu", "Tesla K80")) not in scrape(hub)


# --- without a hub --------------------------------------------------------------------------------


class Server:
    """What is counted of a server."""

    def __init__(
        self, placement: PlacementDocument | None, job: Job | None, address: str = "", cluster: str = ""
    ) -> None:
        self.report = SimpleNamespace(placement=placement, address=address)
        self.watch = SimpleNamespace(status=job)
        self.cluster = cluster

    @classmethod
    def of(cls, *names: str, phase: Phase = Phase.RUNNING, partition: str = "gpu") -> Server:
        gpus = tuple(PlacedGpu(number, name=name) for number, name in enumerate(names))
        return cls(PlacementDocument(partition="elsewhere", gpus=gpus), Job("1", phase, partition=partition))


MIG = PlacementDocument(gpus=(PlacedGpu(0, name="NVIDIA A100", mig="1g.10gb"),))
SEVERAL_NODES = PlacementDocument(
    gpus=(PlacedGpu(0, name="Tesla K80"),), other_nodes=(NodeGrant("g2", (0, 1), "k80"), NodeGrant("g3", (0,)))
)
RUNNING = Job("1", Phase.RUNNING, partition="gpu")
COUNTED = {
    "none": ([], {}),
    "two servers": (
        [Server.of("K80", "K80"), Server.of("K80", "P100")],
        {("", "gpu", "K80"): 3, ("", "gpu", "P100"): 1},
    ),
    "the partition is Slurm's word": ([Server.of("K80", partition="course")], {("", "course", "K80"): 1}),
    "a job that waits or has ended has none": (
        [Server.of("K80", phase=Phase.QUEUED), Server.of("K80", phase=Phase.ENDED), Server(MIG, None)],
        {},
    ),
    "a start that knows more than the watcher": (
        [Server(PlacementDocument(partition="gpu", gpus=(PlacedGpu(0, name="K80"),)), None, address="10.0.0.1")],
        {("", "gpu", "K80"): 1},
    ),
    "a server without a report has none": ([Server(None, RUNNING)], {}),
    "one without GPUs": ([Server.of()], {}),
    "a MIG device is named by its profile": ([Server(MIG, RUNNING)], {("", "gpu", "1g.10gb"): 1}),
    "several nodes": (
        [Server(SEVERAL_NODES, RUNNING)],
        {("", "gpu", "Tesla K80"): 1, ("", "gpu", "k80"): 2, ("", "gpu", "GPU"): 1},
    ),
    "partitions of one name on two clusters": (
        [Server(MIG, RUNNING, cluster="juniper"), Server(MIG, RUNNING, cluster="cedar")],
        {("juniper", "gpu", "1g.10gb"): 1, ("cedar", "gpu", "1g.10gb"): 1},
    ),
    "a long name is cut": ([Server.of("x" * 500)], {("", "gpu", "x" * 60): 1}),
}


@pytest.mark.parametrize(("servers", "counts"), COUNTED.values(), ids=COUNTED.keys())
def test_gpus_in_use(servers: list[Server], counts: dict[tuple[str, str, str], int]) -> None:
    """By cluster, partition and type, for running jobs."""
    assert gpus_in_use(servers) == counts


def test_a_report_that_names_many_kinds_does_not_fill_the_page() -> None:
    """The most frequent types have a line each, all others share one."""
    honest = [Server.of("K80", "K80") for _ in range(3)]
    counts = gpus_in_use([*honest, Server.of(*(f"kind {number}" for number in range(60)))])

    assert len(counts) == TYPES_AT_MOST + 1
    assert counts["", "gpu", "K80"] == 6
    assert counts["", "gpu", "other"] == 61 - TYPES_AT_MOST


@pytest.mark.parametrize(
    ("answer", "how"),
    [("14", "start given up"), (SlurmUnavailable("sbatch got no answer."), "sbatch unanswered")],
    ids=["sbatch answers", "sbatch does not answer"],
)
async def test_a_job_that_lost_its_server_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, answer: str | Exception, how: str
) -> None:
    """A start is given up while sbatch runs; its job is found, cancelled, and counted with the reason."""
    monkeypatch.setattr(submission, "PAUSES", (0.0,))
    name = "gpuspawner_jobs_without_server_total"
    before = REGISTRY.get_sample_value(name, {"cluster": "", "how": how}) or 0.0
    slurm = Slurm(answer, tagged="14", silent=2)
    start = submission_task(slurm)
    await settle()
    start.cancel()
    slurm.may_answer.set()
    await settle()

    assert slurm.cancelled == ["14"]
    assert REGISTRY.get_sample_value(name, {"cluster": "", "how": how}) == before + 1


async def test_a_start_that_gets_ready_is_observed_by_its_stages() -> None:
    """Of a start of which a time is not known, as after a restart, no stage is counted."""
    name, times = (
        "gpuspawner_spawn_stage_seconds_sum",
        {Stage.QUEUED: 100.0, Stage.ALLOCATED: 103.0, Stage.STARTING: 107.0},
    )
    for profile, reached in (("known", times), ("half known", {Stage.QUEUED: 100.0})):
        life = Life(clock=lambda: 109.0)
        life.begin(profile, username="ada", servername="", begun_at=99.0)
        assert life.session is not None
        life.session = replace(life.session, profile=profile)
        life.ready(reached)

    stages = ("queue", "start", "ready")
    seconds = [REGISTRY.get_sample_value(name, {"cluster": "", "profile": "known", "stage": stage}) for stage in stages]
    assert seconds == [3.0, 4.0, 2.0]
    assert REGISTRY.get_sample_value(name, {"cluster": "", "profile": "half known", "stage": "ready"}) is None


@pytest.mark.parametrize(
    ("state", "counted"),
    [({}, 0.0), ({"ending": {"cause": {"kind": "finished"}, "job_id": "6"}}, 0.0), ({"job_id": "7"}, 1.0)],
    ids=["a new server", "a server that ended before", "a server that runs since before the hub's restart"],
)
def test_only_a_server_with_a_job_from_before_the_restart_is_adopted(state: dict[str, Any], counted: float) -> None:
    """JupyterHub loads the state of every spawner, also of one that is new."""
    spawner, labels = GPUSlurmSpawner(), {"cluster": "", "state": "running"}
    spawner.user = SimpleNamespace(name="ada")
    before = REGISTRY.get_sample_value("gpuspawner_servers_adopted_total", labels) or 0.0
    spawner.load_state(state)
    spawner.count_adopted("running")

    assert (REGISTRY.get_sample_value("gpuspawner_servers_adopted_total", labels) or 0.0) - before == counted


def test_what_happens_on_a_cluster_is_counted_there() -> None:
    """The counters of each cluster are there before anything has happened; without a name they are the hub's own."""

    def counts(cluster: str) -> list[float | None]:
        labels: list[tuple[str, dict[str, str]]] = [
            ("slurm_failures_total", {"command": "squeue", "how": "silent"}),
            ("slurm_unread_records_total", {"kind": "job"}),
            ("jobs_without_server_total", {"how": "orphan"}),
            ("jobs_of_another_copy_total", {}),
            ("ports_lost_total", {"when": "taken"}),
        ]
        return [REGISTRY.get_sample_value(f"gpuspawner_{name}", {**of, "cluster": cluster}) for name, of in labels]

    before = counts("")
    metrics.export_zeros("cedar")
    at_first = counts("cedar")
    count_command("cedar", "squeue", 10.0, None)
    UnreadRecords(cluster="cedar").report([UnparsedField("job", "7", "state")])
    metrics.LOST.labels("cedar", "orphan").inc()
    metrics.FOREIGN.labels("cedar").inc()
    metrics.PORTS.labels("cedar", "taken").inc()

    assert (at_first, counts("cedar"), counts("")) == ([None, *[0.0] * 4], [1.0] * 5, before)
