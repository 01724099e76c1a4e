"""What happens to a server, as events: each thing once, also after a restart of the hub."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, Stage
from jupyterhub_gpuspawner.hub.job.session import Ended, Event, Life, Ready, Stream, Usage
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Environment, PlacementRules
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacedGpu, PlacementDocument
from tests.standins.resources import resolved
from tests.standins.session_events import ENDED, NOON, PLACED, READY, SUBMITTED, USAGE

REQUEST = JobRequest(
    profile=Profile(display_name="Two K80", slug="two-k80"),
    username="ada",
    server_name="second",
    resources=resolved("gpu", gpus=2, gpu_type="k80", cpus=4, memory=8192, time=3600),
    environment=Environment(),
    placement=PlacementRules(),
    offer=Offered(Profile(display_name="Two K80", slug="two-k80"), Occasion("dl", "Deep learning", "course-dl")),
)
PLACEMENT = PlacementDocument(
    node="g3",
    partition="gpu",
    gpus=(PlacedGpu(0, name="Tesla K80"), PlacedGpu(1, name="Tesla K80")),
    cpus="0-3",
    memory_mib=8192,
    aligned=True,
    weakest_link="PIX",
)
FIGURES = {
    "seconds": 300.0,
    "gpu_seconds_measured": 600.0,
    "gpu_seconds_busy": 150.0,
    "gpu_memory_max_mib": 2000,
    "memory_max_mib": 1500,
    "joules": 9000.0,
}
REACHED = {Stage.SUBMITTED: NOON, Stage.QUEUED: NOON + 1, Stage.ALLOCATED: NOON + 31, Stage.STARTING: NOON + 41}
TIMED_OUT = Job("42", Phase.ENDED, state="TIMEOUT", end=End.TIME_LIMIT, ends_at=NOON + 645)

REASONS = ("Priority", "Resources")
PROMISES = ("half an hour",)


class Server:
    """A server with a clock, whose events are kept."""

    def __init__(self) -> None:
        self.now = NOON
        self.events: list[Event] = []
        self.stream = Stream()
        self.stream.subscribe(self.events.append)
        self.life = self.new_life()

    def new_life(self) -> Life:
        return Life(self.stream, clock=lambda: self.now)

    def restarted(self) -> None:
        state = json.loads(json.dumps(self.life.to_state()))
        self.life = self.new_life()
        self.life.load(state)

    def begin(self, session: str = "0a1b-7") -> None:
        self.life.begin(session, username="ada", servername="second", begun_at=self.now, request=REQUEST)

    def steps(self) -> list[tuple[float, Any]]:
        return [
            (0, self.begin),
            (1, lambda: self.life.submitted("42", REQUEST)),
            (41, lambda: self.life.placed(PLACEMENT, NOON + 31, REASONS, PROMISES)),
            (45, lambda: self.life.ready(REACHED)),
            (345, lambda: self.life.tell(Usage, **FIGURES)),
            (650, lambda: self.life.ended(Cause(Kind.TIME_LIMIT), TIMED_OUT, reasons=REASONS, promises=PROMISES)),
        ]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_life_is_told_once(restarted: bool) -> None:
    """Whoever tells a thing twice, and however often the hub is restarted in between."""
    server = Server()
    for at, step in server.steps():
        server.now = NOON + at
        step()
        if restarted and at:
            server.restarted()
        if at in (41, 45, 650):
            step()

    told = (replace(PLACED, promises=PROMISES), replace(ENDED, promises=PROMISES))
    assert server.events == [SUBMITTED, told[0], READY, USAGE, told[1]]


def test_a_later_life_is_another_session() -> None:
    """One that nobody has ended is over when the next one begins."""
    server = Server()
    server.begin("first")
    server.begin("second")
    server.life.ended()

    assert [(event.session, event.cause.kind) for event in server.events if isinstance(event, Ended)] == [
        ("first", Kind.UNKNOWN),
        ("second", Kind.UNKNOWN),
    ]


def test_a_start_that_fails_is_told_with_its_class() -> None:
    """With its profile, though there was no report, and with the first node of its job."""
    server = Server()
    server.begin()
    server.life.ended(Cause(Kind.START_FAILED, "module"), Job("42", Phase.RUNNING, nodes="g[3-4]"), "CUDA/99")

    (event,) = server.events
    assert event == replace(
        ENDED,
        job_id="",
        at=NOON,
        served=False,
        reasons=(),
        node="g3",
        promises=(),
        cause=Cause(Kind.START_FAILED, "module"),
        subject="CUDA/99",
    )


CAUSES = {
    "what the hub knows": (Cause(Kind.MEMORY), Kind.MEMORY),
    "what Slurm says of the job": (None, Kind.CANCELLED_OUTSIDE),
}


@pytest.mark.parametrize(("cause", "kind"), CAUSES.values(), ids=CAUSES.keys())
def test_what_is_known_best_counts(cause: Cause | None, kind: Kind) -> None:
    """Slurm reports a stopped server's job as cancelled."""
    server = Server()
    server.begin()
    server.life.ended(cause, replace(TIMED_OUT, end=End.CANCELLED, ends_at=None))

    assert [event.cause for event in server.events if isinstance(event, Ended)] == [Cause(kind)]


def test_the_gpus_of_all_nodes_count() -> None:
    """Of the other nodes Slurm's types are known."""
    server = Server()
    server.begin()
    others = (NodeGrant("g4", (0, 1), "k80"),)
    server.life.placed(PlacementDocument(node="g3", cpus="no list", other_nodes=others), None)

    (event,) = server.events
    assert event == replace(
        PLACED,
        job_id="",
        at=NOON,
        allocated_at=None,
        partition=None,
        nodes=2,
        gpu_model="k80",
        cpus=None,
        memory_mib=None,
        aligned=None,
        weakest_link=None,
        reasons=(),
        promises=(),
    )


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"])
def test_a_slice_is_told_with_the_gpu_that_is_divided(name: str) -> None:
    """As the driver names the device; the name of the GPU and the profile may come in one."""
    server = Server()
    server.begin()
    server.life.placed(PlacementDocument(node="g3", gpus=(PlacedGpu(0, name=name, mig="1g.10gb"),)), None)

    assert [getattr(event, "gpu_model", "") for event in server.events] == ["NVIDIA A100-SXM4-80GB MIG 1g.10gb"]


def test_stages_are_told_only_where_they_are_known() -> None:
    """Slurm does not show the job to the hub."""
    server = Server()
    server.begin()
    server.life.ready({Stage.QUEUED: NOON})

    assert server.events == [Ready(session="0a1b-7", username="ada", servername="second", at=NOON, profile="two-k80")]


@pytest.mark.parametrize("restarted", [False, True])
def test_each_event_names_the_cluster_of_its_server(restarted: bool) -> None:
    """Also after a restart of the hub."""
    server = Server()
    server.life.begin("0a1b-7", username="ada", servername="", begun_at=NOON, request=REQUEST, cluster="cedar")
    for _, step in server.steps()[1:]:
        step()
        if restarted:
            server.restarted()

    assert {(type(event).__name__, event.cluster) for event in server.events} == {
        (name, "cedar") for name in ("Submitted", "Placed", "Ready", "Usage", "Ended")
    }


def test_a_subscriber_that_fails_concerns_nobody_else() -> None:
    """Nor does it fail the server; whoever has left hears nothing."""
    stream, heard = Stream(), list[Event]()

    def fail(_event: Event) -> None:
        raise RuntimeError("no disk")

    stream.subscribe(fail)
    stream.subscribe(heard.append)
    leave = stream.subscribe(heard.append)
    leave()
    stream.publish(SUBMITTED)

    assert heard == [SUBMITTED]
