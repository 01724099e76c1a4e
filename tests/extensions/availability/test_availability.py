"""When a job could start, before it is submitted: now, later or never, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.extensions.availability.forecast import hardware_of
from jupyterhub_gpuspawner.extensions.availability.model.availability import STALE, availability, within
from jupyterhub_gpuspawner.hub.choose.gets import what_a_job_gets
from jupyterhub_gpuspawner.profiles.resources import SBATCH_OPTIONS, Resources
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Availability, Chance, Kind, expected, not_before
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import (
    ClusterJob,
    ClusterSnapshot,
    NodeState,
    Partition,
    Reservation,
    SlurmConfig,
)
from jupyterhub_gpuspawner.slurm.text import UnparsedField
from jupyterhub_gpuspawner.units import Gres
from tests.slurm.recorded import VERSIONS
from tests.snapshots import NOW, cluster, node, recorded_snapshot, running, waiting
from tests.standins.resources import resolved

HOUR = 3600


def card(
    snapshot: ClusterSnapshot, *, user: str = "", now: float | None = None, **resources: Any
) -> tuple[str, str, str]:
    """Chance, sentence and field."""
    answer = availability(resolved(**resources), snapshot, now=snapshot.taken_at if now is None else now, user=user)
    assert answer.taken_at == snapshot.taken_at
    return answer.chance.value, answer.sentence, answer.field


def opens_in(snapshot: ClusterSnapshot, **resources: Any) -> float | None:
    """Seconds until a start at a set time; None for one that is now, or not known."""
    estimate = availability(resolved(**resources), snapshot, now=NOW).estimate
    return None if estimate.likely is None else estimate.likely - NOW


FULL = ("later", "full", "")


# --- a real cluster -------------------------------------------------------------------------------

RECORDED: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
    ({"partition": "gpu", "gpus": 1, "gpu_type": "v100"}, ("now", "starts now, 1 of 8 V100 free", "")),
    ({"partition": "gpu", "gpus": 1, "gpu_type": "t4"}, ("now", "starts now, 1 of 2 T4 free", "")),
    (
        {"partition": "gpu", "gpus": 1, "gpu_type": "1g.10gb"},
        ("now", "starts now, 3 of 4 A100 slices free", ""),
    ),
    (
        {"partition": "gpu", "gpus": 8, "gpu_type": "v100"},
        FULL,
    ),
    ({"partition": "batch"}, ("now", "starts now, 47 of 96 CPUs free", "")),
    ({}, ("now", "starts now, 47 of 96 CPUs free", "")),
    ({"partition": "batch", "exclusive": True}, ("now", "starts now, 2 of 5 nodes free", "")),
    ({"partition": "batch", "cpus": 24, "nodes": 3}, ("later", "full", "")),
    ({"partition": "gpu,batch", "cpus": 30}, ("now", "starts now, 106 of 120 cores free", "")),
    ({"partition": "gpu", "gpus": 1, "reservation": "ml-hpc-0"}, ("now", "starts now, 3 of 4 K80 free", "")),
    (
        {"partition": "gpu", "gpus": 1, "reservation": "ml-hpc-0", "time": 3 * HOUR},
        ("now", "starts now, 3 of 4 K80 free; ends after 1 h 59 min, with reservation ml-hpc-0", ""),
    ),
    (
        {"partition": "gpu", "gpus": 1, "reservation": "ml-hpc-2"},
        ("never", "there is no reservation ml-hpc-2", "slurm.reservation"),
    ),
    (
        {"partition": "debug", "time": 2 * HOUR},
        ("never", "2 h is more than the limit of 30 min", "slurm.time"),
    ),
    (
        {"partition": "gpu", "time": "UNLIMITED"},
        ("never", "a time limit is needed: at most 24 h", "slurm.time"),
    ),
    (
        {"partition": "gpu", "gpus": 9},
        ("never", "9 GPUs are more than the 8 of a node", "slurm.gpus"),
    ),
    (
        {"partition": "gpu", "gpus": 1, "gpu_type": "h100"},
        (
            "never",
            "partition gpu has no GPUs of type h100 (available: 1g.10gb, a100, k80, t4, v100)",
            "slurm.gpu_type",
        ),
    ),
    (
        {"partition": "gpu", "memory": 1000000},
        (
            "never",
            "976.5 GiB of memory is more than the 500 GiB of a node",
            "slurm.memory",
        ),
    ),
    (
        {"partition": "gpu", "gpus": 4, "gpu_type": "k80", "cpus": 40},
        ("never", "no node of partition gpu has all the requested resources together", "slurm.cpus"),
    ),
    (
        {"partition": "gpu", "gpus": 1, "gpu_type": "v100", "constraint": "k80"},
        ("never", "partition gpu has no GPUs of type v100 (available: k80)", "slurm.gpu_type"),
    ),
    (
        {"partition": "gpu", "gpus": 1, "constraint": "k80&dgx"},
        ("never", "no node of partition gpu has the feature k80&dgx", "slurm.constraint"),
    ),
    ({"partition": "batch", "gpus": 1}, ("never", "partition batch has no GPUs", "slurm.gpus")),
    (
        {"partition": "gpu", "shards": 9},
        (
            "never",
            "9 GPU shards are more than the 8 of a node",
            "slurm.shards",
        ),
    ),
    (
        {"partition": "gpu", "gpus": 8, "nodes": 2},
        ("never", "2 nodes are more than the 1 of partition gpu with these resources", "slurm.nodes"),
    ),
    ({"partition": "downp"}, ("never", "partition downp is closed at the moment", "slurm.partition")),
    (
        {"partition": "drainp"},
        ("never", "partition drainp does not accept new jobs at the moment", "slurm.partition"),
    ),
    (
        {"partition": "inactive"},
        ("never", "partition inactive is inactive at the moment", "slurm.partition"),
    ),
    (
        {"partition": "noroot", "memory": 40000},
        (
            "never",
            "39 GiB of memory is more than the limit of 31 GiB",
            "slurm.memory",
        ),
    ),
    (
        {"partition": "gpu,nosuch"},
        (
            "never",
            "there is no partition nosuch (available: bad, batch, cloud, debug, downp, drainp, gpu, hi, "
            "inactive, long, lowcan, lowreq, noroot, slow)",
            "slurm.partition",
        ),
    ),
    (
        {"partition": "gpu", "gpus": 1, "extra": ("--gres-flags=enforce-binding", "--nodelist=g1")},
        ("unknown", "availability unknown: part of what this profile asks for is checked at submission", ""),
    ),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("resources", "answer"), RECORDED, ids=[str(resources) for resources, _ in RECORDED])
def test_jobs_on_a_real_cluster(version: str, resources: dict[str, Any], answer: tuple[str, str, str]) -> None:
    """Free and full, every kind of GPU, and impossible requests: the same for three versions of Slurm."""
    assert card(recorded_snapshot(version), **resources) == answer


@pytest.mark.parametrize("version", VERSIONS)
def test_shares_of_gpus_on_a_real_cluster(version: str) -> None:
    """Three of eight are in use, also where 22.05 reports one, the number of their GPUs."""
    assert card(recorded_snapshot(version), partition="gpu", shards=1) == (
        "now",
        "starts now, 5 of 8 GPU shards free",
        "",
    )


EXCESS = "GPU shards are more than the 4 of a GPU, and a job gets those of one"


@pytest.mark.parametrize(
    ("used", "held", "shards", "answer"),
    [
        ("", [], 4, ("now", "starts now, 8 of 8 GPU shards free")),
        ("", [], 5, ("never", f"5 {EXCESS}")),
        ("shard:t4:4(3/4,1/4)", [3, 1], 3, ("now", "starts now, 4 of 8 GPU shards free")),
        ("shard:t4:4(2/4,2/4)", [2, 2], 3, ("later", "full")),
        ("gpu:t4:1(IDX:1),shard:t4:2(2/4,0/4)", [2], 3, ("later", "full")),
        ("gpu:t4:1(IDX:1),shard:2(2/4,-/4)", [2], 2, ("now", "starts now, 2 of 8 GPU shards free")),
        ("shard:(null):1(IDX:0)", [2], 4, ("now", "starts now, 6 of 8 GPU shards free")),
        ("shard:t4:2(IDX:0-1)", [3, 3], 1, ("now", "starts now, 2 of 8 GPU shards free")),
        ("shard:t4:2(IDX:0-1)", [3, 3], 2, ("later", "full")),
        ("shard:t4:2(IDX:0-1)", [4, 4], 1, ("later", "full")),
    ],
)
def test_a_job_gets_shards_of_one_gpu(used: str, held: list[int], shards: int, answer: tuple[str, str]) -> None:
    """Two GPUs of four shards, as 24.11, 26.05 and 22.05 report what is in use; the last reports no shares of a GPU."""
    jobs = tuple(running(str(at), "g1", f"shard:{count}") for at, count in enumerate(held))
    snapshot = cluster(node("g1", "gpu:t4:2,shard:t4:8", used), jobs=jobs)
    chance, sentence, _ = card(snapshot, shards=shards)
    assert (chance, sentence[: len(answer[1])]) == answer


@pytest.mark.parametrize(
    ("gres", "answer"),
    [
        (
            "gpu:t4:2,shard:t4:8",
            (
                "never",
                "a job of partition gpu with GPU shards cannot have a whole node of several GPUs",
                "slurm.shards",
            ),
        ),
        ("gpu:t4:1,shard:t4:4", ("now", "starts now, 1 of 1 nodes free", "")),
    ],
)
def test_a_whole_node_and_shards_of_it(gres: str, answer: tuple[str, str, str]) -> None:
    """Slurm gives all shards of the node to such a job, and they have to be of one GPU."""
    assert card(cluster(node("g1", gres)), shards=1, exclusive=True) == answer


def test_shards_of_several_gpus_where_slurm_gives_them() -> None:
    """MULTIPLE_SHARING_GRES_PJ: five shards are of two GPUs."""
    snapshot = replace(cluster(node("g1", "gpu:t4:2,shard:t4:8")), config=SlurmConfig(shards_of_several_gpus=True))
    assert card(snapshot, shards=5)[:2] == ("now", "starts now, 8 of 8 GPU shards free")


@pytest.mark.parametrize("version", VERSIONS)
def test_reservation_of_a_later_hour_on_a_real_cluster(version: str) -> None:
    """The sentence names the reservation; its start is the predicted start."""
    snapshot = recorded_snapshot(version)
    start = snapshot.reservation_by_name["ml-hpc-1"].start or 0
    answer = availability(resolved("gpu", gpus=1, reservation="ml-hpc-1"), snapshot, now=snapshot.taken_at)
    assert (answer.chance, answer.estimate, answer.field) == (Chance.LATER, not_before(start), "slurm.reservation")
    assert answer.sentence == "not yet: reservation ml-hpc-1 starts {time}"


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        (
            "22.05",
            (
                "unknown",
                "availability unknown: Slurm does not show all nodes that could run this job; some may be powered down",
                "",
            ),
        ),
        ("24.11", ("now", "starts now, 8 of 8 cores free; a node has to be powered on first", "")),
        ("26.05", ("now", "starts now, 8 of 8 cores free; a node has to be powered on first", "")),
    ],
)
def test_cloud_nodes_that_are_switched_off(version: str, answer: tuple[str, str, str]) -> None:
    """22.05 hides them, so availability is unknown; later versions show their hardware."""
    assert card(recorded_snapshot(version), partition="cloud") == answer


@pytest.mark.parametrize("version", VERSIONS)
def test_full_type_with_jobs_in_line_says_who_is_before(version: str) -> None:
    """All unreserved K80 are in use and two users' jobs are pending for them; GPUs of other types are free."""
    snapshot = recorded_snapshot(version)
    chance, sentence, _ = card(snapshot, partition="gpu", gpus=1, gpu_type="k80")
    assert (chance, sentence.partition(".")[0]) == ("later", "full, 2 people ahead of you")
    assert card(snapshot, partition="gpu", gpus=1)[0] == "now"


# --- made ones --------------------------------------------------------------------------------------

G4 = "gpu:k80:4(S:0-1)"


def test_gpus_count_for_each_node() -> None:
    """Three free on each of two nodes are six GPUs, but no node has four."""
    snapshot = cluster(
        node("g1", G4, "gpu:k80:1(IDX:0)"),
        node("g2", G4, "gpu:k80:1(IDX:0)"),
        jobs=(running("1", "g1", "gpu:k80:1"), running("2", "g2", "gpu:k80:1", ends_in=300)),
    )
    assert card(snapshot, gpus=3, nodes=2) == ("now", "starts now, 6 of 8 K80 free", "")
    assert card(snapshot, gpus=4) == FULL


@pytest.mark.parametrize(
    ("gres", "used", "resources", "answer"),
    [
        ("gpu:4", "gpu:1(IDX:0)", {"gpus": 2}, "3 of 4 GPUs free"),
        ("gpu:4", "gpu:1", {"gpus": 2}, "3 of 4 GPUs free"),
        ("gpu:h100_pcie:2", "", {"gpus": 1, "gpu_type": "h100_pcie"}, "2 of 2 H100 free"),
        ("gpu:rtx4090:2(S:0)", "gpu:rtx4090:1(IDX:1)", {"gpus": 1, "gpu_type": "rtx4090"}, "1 of 2 RTX4090 free"),
        (
            "gpu:a100:1,gpu:1g.10gb:7",
            "gpu:a100:1(IDX:0),gpu:1g.10gb:3(IDX:1-3)",
            {"gpus": 2, "gpu_type": "1g.10gb"},
            "4 of 7 A100 slices free",
        ),
        ("gpu:t4:2,shard:t4:8", "gpu:t4:0(IDX:N/A),shard:t4:3(3/4,0/4)", {"gpus": 1}, "1 of 2 T4 free"),
        ("gpu:t4:2,shard:8", "gpu:t4:1(IDX:0),shard:2(0/4,2/4)", {"shards": 2}, "2 of 8 GPU shards free"),
        ("gpu:t4:2,mps:200", "gpu:t4:0(IDX:N/A),mps:50(50/100,0/100)", {"gpus": 1}, "1 of 2 T4 free"),
        ("gpu:a100:1,gpu:2", "", {"gpus": 2}, "3 of 3 GPUs free"),
        ("gpu:no_consume:2", "", {"gpus": 2}, "2 of 2 GPUs free"),
    ],
)
def test_every_gres_grammar(gres: str, used: str, resources: dict[str, Any], answer: str) -> None:
    """Untyped, typed, MIG, shards and MPS, as Slurm prints them: a shared GPU is not free."""
    assert card(cluster(node("g1", gres, used)), **resources) == ("now", f"starts now, {answer}", "")


@pytest.mark.parametrize(
    ("pending", "resources", "chance", "sentence"),
    [
        ([waiting("9", "gpu:k80:4")], {"gpus": 1}, "later", "2 of 4 K80 are free, but 1 person is ahead of you"),
        (
            [waiting("9", "gpu:k80:4", starts_in=3720)],
            {"gpus": 1, "time": HOUR},
            "later",
            "2 of 4 K80 are free, but 1 person is ahead of you",
        ),
        (
            [waiting("9", "gpu:k80:4", starts_in=7200)],
            {"gpus": 1, "time": 3 * HOUR},
            "later",
            "2 of 4 K80 are free, but 1 person is ahead of you",
        ),
        (
            [
                waiting("9", "gpu:k80:4", starts_in=7200),
                *[waiting(job, "gpu:1", starts_in=7800, time_limit=HOUR, user=job) for job in ("10", "11")],
            ],
            {"gpus": 1, "time": HOUR},
            "later",
            "2 of 4 K80 are free, but 3 people are ahead of you",
        ),
        ([waiting("9", "gpu:v100:4")], {"gpus": 1, "gpu_type": "k80"}, "now", "starts now, 2 of 4 K80 free"),
        ([waiting("9")], {"gpus": 1}, "later", "2 of 4 K80 are free, but 1 person is ahead of you"),
        (
            [waiting("9", reason="NewInThisVersion")],
            {"gpus": 1},
            "later",
            "2 of 4 K80 are free, but 1 person is ahead of you",
        ),
        (
            [waiting("9", "gpu:k80:1", reason="QOSMaxJobsPerUserLimit")],
            {"gpus": 1},
            "now",
            "starts now, 2 of 4 K80 free",
        ),
        (
            [waiting("9", "gpu:k80:4", reason="JobHeldUser", priority=0)],
            {"gpus": 1},
            "now",
            "starts now, 2 of 4 K80 free",
        ),
        ([waiting("9", "gpu:k80:4", reservation="other")], {"gpus": 1}, "now", "starts now, 2 of 4 K80 free"),
        ([waiting("9", "gpu:k80:4")], {"gpus": 3}, "later", "full, 1 person ahead of you"),
        (
            [waiting("8", "gpu:2", starts_in=600), waiting("9", "gpu:k80:4", starts_in=1800)],
            {"gpus": 3},
            "later",
            "full, 2 people ahead of you",
        ),
        (
            [waiting("9", "gpu:k80:1", reason="", time_limit=HOUR)],
            {"gpus": 3},
            "later",
            "full, 1 person ahead of you",
        ),
        (
            [waiting("9", "gpu:k80:2", reason="")],
            {"gpus": 1},
            "later",
            "2 of 4 K80 are free, but 1 person is ahead of you",
        ),
        (
            [waiting("9", "gpu:k80:1", reason="", array_tasks=100)],
            {"gpus": 1},
            "later",
            "2 of 4 K80 are free, but 1 person is ahead of you",
        ),
        (
            [waiting("9", "gpu:k80:1", starts_in=600, array_tasks=100)],
            {"gpus": 3},
            "later",
            "full, 1 person ahead of you",
        ),
        (
            [
                waiting("9", "gpu:k80:4", starts_in=7200),
                waiting("10", "gpu:1", starts_in=7800, time_limit=HOUR, array_tasks=2),
            ],
            {"gpus": 1, "time": HOUR},
            "later",
            "2 of 4 K80 are free, but 2 people are ahead of you",
        ),
        ([waiting("9")], {}, "later", "12 of 16 cores are free, but 1 person is ahead of you"),
    ],
)
def test_pending_jobs_come_first(
    pending: list[ClusterJob], resources: dict[str, Any], chance: str, sentence: str
) -> None:
    """Free GPUs are not promised while a job is pending that could use their node."""
    held = running("1", "g1", "gpu:k80:2")
    snapshot = cluster(node("g1", G4, "gpu:k80:2(IDX:0-1)"), jobs=(held, *pending))
    assert card(snapshot, **resources) == (chance, sentence, "")


G1 = node("g1", G4, "gpu:k80:2(IDX:0-1)", cpus_allocated=4)
ONE_AHEAD = ("later", "2 of 4 K80 are free, but 1 person is ahead of you", "")
NOW_FREE = ("now", "starts now, 2 of 4 K80 free", "")
OVERLAPPING: dict[str, tuple[list[ClusterJob], dict[str, Any], tuple[str, str, str]]] = {
    "it waits for the same node": ([waiting("9", "gpu:k80:4", partitions=("night",))], {}, ONE_AHEAD),
    "it waits for the node's cores": ([waiting("9", partitions=("night",), cpus=16)], {}, ONE_AHEAD),
    "in several partitions": ([waiting("9", "gpu:k80:4", partitions=("other", "night"))], {}, ONE_AHEAD),
    "of many tasks, on nobody knows how many nodes": ([waiting("9", partitions=("night",), cpus=640)], {}, ONE_AHEAD),
    "where its nodes are others": ([waiting("9", "gpu:k80:4", partitions=("other",))], {}, NOW_FREE),
    "it is held": ([waiting("9", "gpu:k80:4", partitions=("night",), priority=0)], {}, NOW_FREE),
    "it waits for another job": ([waiting("9", "gpu:k80:4", partitions=("night",), reason="Dependency")], {}, NOW_FREE),
    "for a limit of its own": ([waiting("9", "gpu:k80:4", partitions=("night",), reason="AssocGrpGRES")], {}, NOW_FREE),
    "no node of these has its GPUs": ([waiting("9", "gpu:v100:1", partitions=("night",))], {}, NOW_FREE),
    "it comes after all of gpu": ([waiting("9", "gpu:k80:4", partitions=("low",))], {}, NOW_FREE),
    "unless Slurm has not seen it yet": ([waiting("9", "gpu:k80:2", partitions=("low",), reason="")], {}, ONE_AHEAD),
    "others' jobs are hidden from this hub": (
        [],
        {"jobs": (), "config": SlurmConfig(private_data=frozenset({"jobs"}))},
        ("unknown", "availability unknown: Slurm does not show this hub the jobs of others", ""),
    ),
    "they would be, but it sees them": ([], {"config": SlurmConfig(private_data=frozenset({"jobs"}))}, NOW_FREE),
    "jobs start in their order alone": (
        [waiting("9", "gpu:v100:1", partitions=("night",))],
        {"config": SlurmConfig(backfills=False)},
        ONE_AHEAD,
    ),
    "Slurm keeps the node": (
        [],
        {"nodes": (G1._replace(states=frozenset({"MIXED", "PLANNED"})),)},
        ("later", "2 of 4 K80 are free, but Slurm keeps them for a job that waits", ""),
    ),
    "but not another one": (
        [],
        {"nodes": (G1._replace(states=frozenset({"MIXED", "PLANNED"})), node("g2", G4))},
        ("now", "starts now, 6 of 8 K80 free", ""),
    ),
}


@pytest.mark.parametrize(("pending", "more", "answer"), OVERLAPPING.values(), ids=OVERLAPPING)
def test_jobs_of_other_partitions_on_the_same_nodes_come_first(
    pending: list[ClusterJob], more: dict[str, Any], answer: tuple[str, str, str]
) -> None:
    """Whoever could get the free GPUs before a new job, they are not promised to it."""
    of_all = replace(
        cluster(G1, node("g2", G4), jobs=(running("1", "g1", "gpu:k80:2"), *pending)),
        partitions=(
            Partition("gpu", nodes=("g1", "g2"), priority_tier=2),
            Partition("night", nodes=("g1",), priority_tier=2),
            Partition("low", nodes=("g1",)),
            Partition("other", nodes=("g3",)),
        ),
        **{"nodes": (G1,), **more},
    )
    chance, clause, field = card(of_all, partition="gpu", gpus=1)
    assert (chance, clause.partition(". Expected")[0], field) == answer


def of(user: str) -> str:
    """The comment of a job that a hub has submitted for this user."""
    return f"jupyterhub-gpuspawner/demo/{user}/#1a2b"


def test_people_are_counted_not_jobs_and_nobody_waits_for_themselves() -> None:
    """Two jobs of one user are one person; a user's own job is named as such.

    An account that submits for many people is as many people as its jobs' comments name.
    """

    def ahead(person: str, *jobs: ClusterJob) -> str:
        snapshot = cluster(node("g1", G4, "gpu:k80:4(IDX:0-3)"), jobs=(*jobs, running("1", "g1", "gpu:k80:4")))
        return availability(resolved(gpus=1), snapshot, now=NOW, user="hub", person=person).sentence

    own = [waiting("8", "gpu:4", user="bob"), waiting("9", "gpu:4", user="bob")]
    of_the_hub = [waiting(id_, "gpu:4", user="hub", tag=of(name)) for id_, name in (("7", "ada"), ("8", "bob"))]

    assert [ahead(person, *own) for person in ("ada", "bob")] == [
        "full, 1 person ahead of you",
        "full, your own job is ahead",
    ]
    assert [ahead(person, *of_the_hub) for person in ("eve", "bob")] == [
        "full, 2 people ahead of you",
        "full, 1 person ahead of you",
    ]
    assert ahead("bob", of_the_hub[1]) == "full, your own job is ahead"


@pytest.mark.parametrize(
    ("unit", "sentence"),
    [
        ("hours", "70 h is more than the limit of 24 h"),
        ("days", "2 days 22 h is more than the limit of 1 day"),
        ("", "2 days 22 h is more than the limit of 24 h"),
    ],
)
def test_a_time_is_told_in_the_unit_in_which_it_was_entered(unit: str, sentence: str) -> None:
    """Where that makes a whole number."""
    snapshot = cluster(node("g1", G4), max_time=24 * HOUR)

    assert card(snapshot, gpus=1, time=70 * HOUR, time_unit=unit) == ("never", sentence, "slurm.time")


def reserved(name: str, starts_in: float, ends_in: float, *nodes: str, **more: Any) -> Reservation:
    """A reservation."""
    return Reservation(name, start=NOW + starts_in, end=NOW + ends_in, nodes=nodes, **more)


@pytest.mark.parametrize(
    ("reservation", "resources", "chance", "opens"),
    [
        (reserved("r", -60, 1800, "g1"), {}, "later", None),
        (reserved("r", 1800, 7200, "g1"), {"time": 1200}, "now", None),
        (reserved("r", 1800, 7200, "g1"), {"time": 2400}, "later", None),
        (reserved("r", -60, 1800, "g1"), {"reservation": "r", "time": 600}, "now", None),
        (reserved("r", 60, 1800, "g1"), {"reservation": "r", "time": 600}, "later", 60),
        (reserved("r", -60, 1800), {"reservation": "r", "time": 600}, "now", None),
        (reserved("r", -60, 1800, "g1", flags=frozenset({"FLEX"})), {"reservation": "r"}, "now", None),
        (reserved("r", -60, 1800, "g1", partial=True), {}, "unknown", None),
        (reserved("r", -60, 1800, "g1", partial=True), {"reservation": "r", "time": 600}, "unknown", None),
        (reserved("r", -60, 1800, "g2", partial=True), {}, "now", None),
        (reserved("r", 1800, 7200, "g1", partial=True), {"time": 1200}, "now", None),
    ],
)
def test_reservations_keep_others_out_and_their_own_in(
    reservation: Reservation, resources: dict[str, Any], chance: str, opens: float | None
) -> None:
    """A job that would overlap a reservation for others waits until it ends, even if everything is free now.

    Beside one of some cores it may start, where Slurm finds others.
    """
    snapshot = cluster(node("g1", G4), reservations=(reservation,))
    assert (card(snapshot, gpus=1, **resources)[0], opens_in(snapshot, gpus=1, **resources)) == (chance, opens)


@pytest.mark.parametrize(
    ("access", "user", "clause"),
    [
        ({"users": ("alice",)}, "bob", "reservation r is for other users"),
        ({"users": ("-bob",)}, "bob", "reservation r is for other users"),
        ({"users": ("alice",)}, "alice", None),
        ({"users": ("-alice",)}, "bob", None),
        ({"users": ("alice",), "accounts": ("proj",)}, "bob", "reservation r is for other users"),
        ({"users": ("alice",)}, "", None),
    ],
)
def test_reservation_of_others_is_told_where_it_can_be_known(
    access: dict[str, Any], user: str, clause: str | None
) -> None:
    """Checked by user name."""
    snapshot = cluster(node("g1", G4), reservations=(reserved("r", -60, 7200, "g1", **access),))
    answer = card(snapshot, user=user, gpus=1, reservation="r")
    if clause is None:
        assert answer == ("now", "starts now, 4 of 4 K80 free", "")
    else:
        assert answer == ("never", clause, "slurm.reservation")


@pytest.mark.parametrize(
    ("partition", "resources", "clause", "field"),
    [
        ({"max_nodes": 1}, {"nodes": 2}, "2 nodes are more than the limit of 1", "nodes"),
        ({"min_nodes": 2}, {}, "1 node is fewer than the 2 required", "nodes"),
        (
            {"max_cpus_per_node": 4},
            {"cpus": 8},
            "8 cores are more than the limit of 4",
            "cpus",
        ),
        (
            {"max_cpus_per_node": 4},
            {"exclusive": True},
            "a whole node has more than the 4 CPUs that partition gpu allows",
            "exclusive",
        ),
        (
            {"max_memory_per_cpu_mib": 100},
            {"memory": 0},
            "all the memory of a node is more than partition gpu allows",
            "memory",
        ),
        (
            {"max_cpus_per_node": 4, "default_cpus_per_gpu": 3},
            {"gpus": 2},
            "by default 6 cores are given with the GPUs, more than the limit of 4",
            "cpus",
        ),
        ({"deny_accounts": ("c",)}, {"account": "c"}, "partition gpu does not allow account c", "account"),
        ({"allow_qos": ("high",)}, {"qos": "low"}, "partition gpu does not allow QOS low", "qos"),
        ({"needs_reservation": True}, {}, "partition gpu requires a reservation", "reservation"),
        ({"default": False}, {}, "no partition requested, and the cluster has no default one", "partition"),
        ({"max_time": 600}, {}, "1 h is more than the limit of 10 min", "time"),
    ],
)
def test_bounds_of_a_partition(partition: dict[str, Any], resources: dict[str, Any], clause: str, field: str) -> None:
    """What slurm.conf does not allow is never possible; the result names the field."""
    snapshot = cluster(node("g1", G4), node("g2", G4), **partition)
    assert card(snapshot, **resources) == ("never", clause, f"slurm.{field}")


@pytest.mark.parametrize(
    ("account", "answer"),
    [
        ("ML", ("now", "starts now, 16 of 16 cores free", "")),
        ("ml-students", ("unknown", "availability unknown: partition gpu may not allow account ml-students", "")),
        (None, ("now", "starts now, 16 of 16 cores free", "")),
    ],
)
def test_an_account_may_be_below_one_that_its_partition_allows(
    account: str | None, answer: tuple[str, str, str]
) -> None:
    """Newer versions of Slurm then let it in, and only Slurm knows the tree of accounts."""
    assert card(cluster(node("n1"), allow_accounts=("ml", "physics")), cpus=1, account=account) == answer


def test_jobs_of_a_partition_share_the_cpus_that_it_allows_on_a_node() -> None:
    snapshot = cluster(node("n1"), jobs=(running("1", "n1", partitions=("gpu",)),), max_cpus_per_node=6)
    answers = [availability(resolved("gpu", cpus=cpus), snapshot, now=NOW) for cpus in (2, 3)]
    assert [(answer.chance.value, answer.sentence) for answer in answers] == [
        ("now", "starts now, 12 of 16 cores free"),
        ("later", "not available now: jobs hold the 6 CPUs of a node that partition gpu allows"),
    ]


@pytest.mark.parametrize(
    ("jobs", "answer"),
    [
        ((), ("now", "starts now, 16 of 16 cores free")),
        (
            (running("1", "n1", partitions=("gpu",)),),
            ("later", "not available now: jobs hold the 6 CPUs of a node that partition gpu allows"),
        ),
    ],
)
def test_a_job_may_have_more_cpus_for_its_memory_than_its_partition_allows_on_a_node(
    jobs: tuple[ClusterJob, ...], answer: tuple[str, str]
) -> None:
    """slurmctld 22.05 gives it 8 for 32 GiB where no job of the partition runs, whether or not it enforces limits."""
    snapshot = cluster(node("n1"), jobs=jobs, max_cpus_per_node=6, max_memory_per_cpu_mib=4096)
    assert card(snapshot, cpus=4, memory=32768)[:2] == answer


def test_qos_may_lift_a_partitions_bounds() -> None:
    """Only Slurm knows what a QOS allows, so its limits are not anticipated."""
    assert card(cluster(node("g1", G4), max_time=600), gpus=1, time=HOUR, qos="long")[0] == "now"


IS_FOR = "partition gpu is restricted to members of course or staff, which this hub cannot check"


@pytest.mark.parametrize(
    ("groups", "answer"),
    [
        ({"course": True}, ("now", "starts now, 4 of 4 K80 free", "")),
        ({"course": False, "staff": True}, ("now", "starts now, 4 of 4 K80 free", "")),
        (
            {"course": False, "staff": False},
            ("never", "partition gpu is restricted to members of course or staff", "slurm.partition"),
        ),
        ({"course": False}, ("unknown", f"availability unknown: {IS_FOR}", "")),
        ({}, ("unknown", f"availability unknown: {IS_FOR}", "")),
    ],
)
def test_allow_groups_of_a_partition(groups: dict[str, bool], answer: tuple[str, str, str]) -> None:
    """Members of one group may, others may not; without the groups on the hub's machine only Slurm knows."""
    snapshot = cluster(node("g1", G4), allow_groups=("course", "staff"))
    verdict = availability(resolved(gpus=1), snapshot, now=NOW, groups=groups)
    assert (verdict.chance.value, verdict.sentence, verdict.field) == answer


def allocated(**limits: int) -> SlurmConfig:
    """A Slurm that allocates memory."""
    return SlurmConfig(memory_is_allocated=True, **limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "partition", "resources", "answer"),
    [
        (SlurmConfig(), {}, {"cpus": 4}, "starts now, 12 of 16 cores free"),
        (SlurmConfig(memory_is_allocated=False), {}, {"cpus": 4}, "starts now, 12 of 16 cores free"),
        (allocated(), {}, {"cpus": 4}, "full"),
        (allocated(default_memory_per_cpu_mib=1000), {}, {"cpus": 4}, "starts now, 12 of 16 cores free"),
        (allocated(default_memory_per_cpu_mib=1000), {}, {"cpus": 6}, "full"),
        (allocated(default_memory_per_node_mib=8000), {}, {}, "full"),
        (
            allocated(default_memory_per_node_mib=8000),
            {"default_memory_per_cpu_mib": 100},
            {},
            "starts now, 12 of 16 cores free",
        ),
        (allocated(default_memory_per_cpu_mib=1), {"default_memory_per_node_mib": 8000}, {}, "full"),
        (allocated(), {"default_memory_per_node_mib": 100}, {}, "starts now, 12 of 16 cores free"),
        (allocated(default_memory_per_gpu_mib=8000, default_memory_per_cpu_mib=1), {}, {"gpus": 1}, "full"),
        (allocated(), {"default_memory_per_gpu_mib": 100}, {"gpus": 1}, "starts now"),
        (allocated(), {}, {"memory": 5000}, "starts now, 12 of 16 cores free"),
        (allocated(), {"max_memory_per_cpu_mib": 1000}, {"memory": 5000}, "starts now, 12 of 16 cores free"),
        (allocated(), {"max_memory_per_cpu_mib": 400}, {"memory": 5000}, "full"),
        (allocated(max_memory_per_cpu_mib=400), {}, {"memory": 5000}, "full"),
        (allocated(max_memory_per_cpu_mib=400), {"max_memory_per_cpu_mib": 1000}, {"memory": 5000}, "starts now"),
        (allocated(max_memory_per_node_mib=4096), {}, {"memory": 5000}, "4.8 GiB of memory is more than the limit"),
        (allocated(max_memory_per_node_mib=4096), {"max_memory_per_cpu_mib": 1000}, {"memory": 5000}, "starts now"),
        (
            allocated(max_memory_per_node_mib=4096, default_memory_per_cpu_mib=1024),
            {},
            {"cpus": 5},
            "5 GiB of memory by default is more than the limit of 4 GiB",
        ),
        (
            allocated(default_memory_per_node_mib=99999),
            {},
            {},
            "97.5 GiB of memory is more than the 64 GiB of a node",
        ),
        (allocated(default_memory_per_cpu_mib=4096), {}, {"exclusive": True}, "full"),
        (
            allocated(default_memory_per_cpu_mib=4097),
            {},
            {"exclusive": True},
            "the default of 4097 MiB for each CPU of a whole node is more memory than it has: name an amount",
        ),
        (
            allocated(),
            {"exclusive": True, "default_memory_per_cpu_mib": 4097},
            {"cpus": 4},
            "the default of 4097 MiB for each CPU of a whole node is more memory than it has: name an amount",
        ),
        (allocated(default_memory_per_cpu_mib=4097), {}, {"exclusive": True, "memory": 5000}, "full"),
    ],
)
def test_memory_of_a_job_that_asks_for_none(
    config: SlurmConfig, partition: dict[str, Any], resources: dict[str, Any], answer: str
) -> None:
    """The partition's default, else the cluster's, else all of a node; it has 16 CPUs, 64 GiB, and 5.5 GiB free."""
    job = running("7", "g1", memory_mib=60000)
    snapshot = replace(cluster(node("g1", "gpu:4"), jobs=(job,), **partition), config=config)
    assert card(snapshot, **resources)[1][: len(answer)] == answer


@pytest.mark.parametrize(
    ("jobs_per_cpu", "resources", "answer"),
    [
        (1, {"cpus": 4}, "full"),
        (4, {"cpus": 4}, "starts now, 16 of 16 cores free"),
        (4, {"cpus": 4, "gpus": 1}, "full"),
        (4, {"cpus": 20}, "20 cores are more than the 16 of a node"),
    ],
)
def test_cpus_that_several_jobs_share_are_free_for_others(
    jobs_per_cpu: int, resources: dict[str, Any], answer: str
) -> None:
    """OverSubscribe=FORCE gives each CPU to so many jobs; GPUs belong to one."""
    snapshot = cluster(
        node("g1", G4, "gpu:k80:4"),
        jobs=(running("7", "g1", "gpu:k80:4", cpus=16, partitions=("gpu",)),),
        jobs_per_cpu=jobs_per_cpu,
        shares_cpus=jobs_per_cpu > 1,
    )

    assert card(snapshot, **resources)[1] == answer


@pytest.mark.parametrize(("cpus", "answer"), [(6, "starts now, 6 of 16 cores free"), (7, "full")])
def test_a_job_shares_its_cpus_in_one_row(cpus: int, answer: str) -> None:
    """Two jobs of ten of 16 CPUs, each of which is given to two jobs: no other job gets the six of both rows."""
    jobs = (running("7", "g1", cpus=10, partitions=("gpu",)), running("8", "g1", cpus=10, partitions=("gpu",)))
    snapshot = cluster(node("g1"), jobs=jobs, jobs_per_cpu=2, shares_cpus=True)
    assert card(snapshot, cpus=cpus)[1] == answer


PLAIN = Partition("plain", nodes=("n1",))
TWO_JOBS = Partition("two", nodes=("n1",), jobs_per_cpu=2, shares_cpus=True)
ON_REQUEST = Partition("request", nodes=("n1",), jobs_per_cpu=4)
FORCED = Partition("forced", nodes=("n1",), shares_cpus=True)


@pytest.mark.parametrize(
    ("own", "other", "apart"),
    [
        (PLAIN, TWO_JOBS, True),
        (TWO_JOBS, PLAIN, True),
        (PLAIN, ON_REQUEST, True),
        (ON_REQUEST, PLAIN, False),
        (ON_REQUEST, ON_REQUEST, False),
        (TWO_JOBS, TWO_JOBS, False),
        (TWO_JOBS, FORCED, False),
        (FORCED, TWO_JOBS, False),
        (TWO_JOBS, ON_REQUEST, True),
        (PLAIN, FORCED, False),
        (FORCED, PLAIN, True),
    ],
    ids=lambda value: value.name if isinstance(value, Partition) else "",
)
def test_jobs_that_share_cpus_share_no_node_with_those_of_others(own: Partition, other: Partition, apart: bool) -> None:
    """Slurm never mixes them on a node, whatever is free there (OverSubscribe)."""
    snapshot = replace(
        cluster(node("n1", cpus_allocated=4), jobs=(running("7", "n1", partitions=(other.name,)),)),
        partitions=tuple(dict.fromkeys((own, other))),
    )
    if apart:
        why = f"jobs of partition {other.name} run there, which share no node with those of {own.name}"
        answer = "later", f"not available now: {why}"
    else:
        answer = "now", f"starts now, {16 if own.shares_cpus else 12} of 16 cores free"
    assert card(snapshot, partition=own.name, cpus=2)[:2] == answer


@pytest.mark.parametrize(
    ("user", "own", "other", "answer"),
    [
        ("ada", {"one_user": True}, {}, "starts now, 12 of 16 cores free"),
        (
            "bob",
            {"one_user": True},
            {},
            "others have jobs there, and partition own gives a node to one person at a time",
        ),
        ("", {"one_user": True}, {}, "others have jobs there, and partition own gives a node to one person at a time"),
        (
            "bob",
            {},
            {"one_user": True},
            "others have jobs there, and partition other gives a node to one person at a time",
        ),
        ("bob", {}, {}, "starts now, 12 of 16 cores free"),
    ],
)
def test_a_node_is_for_one_user_where_its_partition_says_so(
    user: str, own: dict[str, Any], other: dict[str, Any], answer: str
) -> None:
    """Ada's job is there (ExclusiveUser)."""
    snapshot = replace(
        cluster(node("n1", cpus_allocated=4), jobs=(running("7", "n1", user="ada", partitions=("other",)),)),
        partitions=(Partition("own", nodes=("n1",), **own), Partition("other", nodes=("n1",), **other)),
    )
    assert card(snapshot, user=user, partition="own", cpus=2)[1].removeprefix("not available now: ") == answer


THREADS = node("n1", cpus=32, cpus_per_core=2)
ONE_THREAD = ("--hint=nomultithread",)


@pytest.mark.parametrize(
    ("resources", "answer"),
    [
        ({"cpus": 10}, "starts now, 10 of 32 CPUs (5 of 16 cores) free"),
        ({"cpus": 5, "extra": ONE_THREAD}, "starts now, 10 of 32 CPUs (5 of 16 cores) free"),
        ({"cpus": 6, "extra": ONE_THREAD}, "full"),
        ({"cpus": 6, "extra": ("--threads-per-core=1",)}, "full"),
        ({"cpus": 6, "extra": (*ONE_THREAD, "--hint=multithread")}, "starts now, 10 of 32 CPUs (5 of 16 cores) free"),
        (
            {"cpus": 4, "extra": ("--hint=memory_bound",)},
            "availability unknown: part of what this profile asks for is checked at submission",
        ),
    ],
)
def test_a_job_that_uses_one_thread_of_each_core_gets_all(resources: dict[str, Any], answer: str) -> None:
    """So with ``--hint=nomultithread`` it needs twice as many of Slurm's CPUs as it requests."""
    snapshot = cluster(THREADS._replace(cpus_allocated=22), jobs=(running("7", "n1", cpus=22),))
    assert card(snapshot, **resources)[1] == answer


@pytest.mark.parametrize(
    ("extra", "cpus", "answer"), [((), 8, "now"), ((), 10, "never"), (ONE_THREAD, 8, "now"), (ONE_THREAD, 9, "never")]
)
def test_the_default_memory_of_a_job_that_uses_one_thread_is_that_of_its_cores(
    extra: tuple[str, ...], cpus: int, answer: str
) -> None:
    """Though it gets both threads, and they are counted as its CPUs."""
    config = allocated(default_memory_per_cpu_mib=1500)
    snapshot = replace(cluster(node("n1", cpus=32, cpus_per_core=2, memory_mib=12000)), config=config)
    assert card(snapshot, cpus=cpus, extra=extra)[0] == answer


@pytest.mark.parametrize(
    ("snapshot", "resources", "answer"),
    [
        (cluster(THREADS), {"cpus": 8}, "starts now, 32 of 32 CPUs (16 of 16 cores) free"),
        (cluster(THREADS, node("n2")), {"cpus": 8}, "starts now, 48 of 48 CPUs free"),
        (cluster(THREADS), {"cpus": 40}, "40 CPUs (20 cores) are more than the 32 of a node"),
        (cluster(THREADS), {"cpus": 16, "extra": ONE_THREAD}, "starts now, 32 of 32 CPUs (16 of 16 cores) free"),
        (cluster(THREADS), {"cpus": 17, "extra": ONE_THREAD}, "17 cores are more than the 16 of a node"),
        (cluster(THREADS, max_cpus_per_node=4), {"cpus": 8}, "8 CPUs (4 cores) are more than the limit of 4"),
        (cluster(node("n1", cpus=4)), {"cpus": 8}, "8 cores are more than the 4 of a node"),
    ],
)
def test_cpus_are_called_cores_where_each_has_its_own(
    snapshot: ClusterSnapshot, resources: dict[str, Any], answer: str
) -> None:
    """Where two hardware threads share a core, somebody with eight CPUs has four cores."""
    assert card(snapshot, **resources)[1] == answer


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("disk 3 fails", "disk 3 fails"),
        ("disk 3 fails [root@1795416792]", "disk 3 fails, since 23 Nov 2026, 06:53 UTC, by root"),
        ("Not responding [root@1795416792]", "it does not respond, since 23 Nov 2026, 06:53 UTC, by root"),
    ],
)
@pytest.mark.usefixtures("utc")
def test_nodes_out_of_service_are_named_with_their_reason(reason: str, words: str) -> None:
    """The job can run once they are back, so the chance is not never."""
    out = node("g1", G4, states=frozenset({"IDLE", "DRAIN"}), reason=reason)
    assert card(cluster(out, node("c1")), gpus=1) == (
        "later",
        f"not available now: g1 ({words}) is out of service",
        "",
    )


@pytest.mark.parametrize(
    ("states", "clause"),
    [
        ({"IDLE", "CLOUD", "POWERING_DOWN"}, ""),
        ({"IDLE", "REBOOT_ISSUED"}, ""),
        ({"IDLE", "DRAIN", "POWERING_DOWN"}, "g1 (powering down) is out of service"),
        ({"IDLE", "NOT_RESPONDING"}, "g1 (it does not respond) is out of service"),
    ],
)
def test_nodes_that_come_back_by_themselves_are_not_out_of_service_for_an_admin(states: set[str], clause: str) -> None:
    """The form names them all the same."""
    out = cluster(node("g1", G4, states=frozenset(states)))
    found = availability(resolved(gpus=1), out, now=NOW)

    assert found.out_of_service == clause
    assert found.sentence.startswith("not available now: g1 (")


def test_feature_that_a_reboot_would_bring_counts() -> None:
    """Plugins change a node's features at the start of a job."""
    assert card(cluster(node("g1", G4, other_features=("mig",))), gpus=1, constraint="mig")[0] == "now"


UNREAD_JOB = UnparsedField("job", "9", "StartTime")
UNREAD_RESERVATION = UnparsedField("reservation", "day", "Nodes")


@pytest.mark.parametrize(
    ("unread", "resources", "answer"),
    [
        (UNREAD_JOB, {"gpus": 1}, ("unknown", "availability unknown: part of what Slurm says could not be read")),
        (
            UNREAD_RESERVATION,
            {"gpus": 1},
            ("unknown", "availability unknown: part of what Slurm says could not be read"),
        ),
        (
            UNREAD_RESERVATION,
            {"gpus": 1, "reservation": "day"},
            ("unknown", "availability unknown: part of what Slurm says could not be read"),
        ),
        (
            UnparsedField("configuration", "slurm.conf", ""),
            {"gpus": 1},
            ("unknown", "availability unknown: part of what Slurm says could not be read"),
        ),
        (UNREAD_JOB, {"gpus": 9}, ("never", "9 GPUs are more than the 4 of a node")),
        (replace(UNREAD_JOB, partial=True), {"gpus": 1}, ("now", "starts now, 4 of 4 K80 free")),
        (UnparsedField("node", "g9", "Gres"), {"gpus": 1}, ("now", "starts now, 4 of 4 K80 free")),
    ],
)
def test_what_was_not_understood_is_not_called_free(
    unread: UnparsedField, resources: dict[str, Any], answer: tuple[str, str]
) -> None:
    """A job or reservation that was not understood may hold the nodes, so no start is certain."""
    snapshot = replace(cluster(node("g1", "gpu:k80:4")), unread=(unread,))
    chance, sentence, _ = card(snapshot, **resources)
    assert (chance, sentence[: len(answer[1])]) == answer


def test_a_job_in_line_whose_gpus_are_unknown_comes_before_everybody() -> None:
    """It may compete for any request."""
    snapshot = cluster(node("g1", "gpu:k80:4,shard:16"), jobs=(waiting("7", gpus_unknown=True),))
    assert [card(snapshot, gpus=1)[0], card(snapshot, shards=1)[0], card(snapshot, cpus=1)[0]] == ["later"] * 3


def test_a_running_job_whose_gpus_are_unknown_holds_what_its_node_says() -> None:
    """The node's count of GPUs in use decides."""
    unknown = running("7", "g1", ends_in=600)._replace(gpus_unknown=True)
    other = running("8", "g1", "gpu:k80:2", ends_in=1200)
    snapshot = cluster(node("g1", "gpu:k80:4", "gpu:k80:4"), jobs=(unknown, other))
    assert card(snapshot, gpus=1)[0] == "later"


def test_a_node_that_was_not_understood_refuses_nothing() -> None:
    """Its partition has more nodes than are known, so no request is impossible for certain."""
    snapshot = cluster(node("g1", "gpu:k80:4"), nodes=("g1", "g2"))
    assert card(snapshot, gpus=8) == (
        "unknown",
        "availability unknown: Slurm does not show all nodes that could run this job; some may be powered down",
        "",
    )


def test_a_full_partition_with_hidden_nodes_may_start_a_job_on_one_of_them() -> None:
    """Slurm powers it on; but a job that is pending for resources shows that there is none."""
    full = node("g1", "gpu:k80:4", "gpu:k80:4")
    snapshot = cluster(full, jobs=(running("1", "g1", "gpu:k80:4"),), nodes=("g1", "g2"))
    behind = cluster(full, jobs=(running("1", "g1", "gpu:k80:4"), waiting("2", "gpu:k80:1")), nodes=("g1", "g2"))

    assert [card(snapshot, gpus=1)[0], card(behind, gpus=1)[0]] == ["unknown", "later"]


def test_a_node_that_is_being_powered_down_is_named_as_such() -> None:
    """It may boot again as soon as it is off."""
    snapshot = cluster(node("g1", "gpu:k80:4", states=frozenset({"IDLE", "CLOUD", "POWERING_DOWN"})))
    assert card(snapshot, gpus=1)[1] == "not available now: g1 (powering down) is out of service"


def test_a_partition_that_was_not_understood_is_in_doubt() -> None:
    """Neither now nor never."""
    snapshot = cluster(node("g1", "gpu:k80:4"), unread=("MaxTime",))
    assert [card(snapshot, gpus=gpus) for gpus in (1, 9)] == [
        ("unknown", "availability unknown: the description of partition gpu could not be read", "")
    ] * 2


def test_no_start_is_promised_in_a_partition_with_a_parameter_that_nobody_models() -> None:
    """What can never run is said all the same."""
    snapshot = cluster(node("g1", "gpu:k80:4"), not_modelled=("MaxCPUsPerSocket", "RootOnly"))
    sentence = "availability unknown: this hub cannot check MaxCPUsPerSocket and RootOnly of partition gpu"

    assert card(snapshot, gpus=1) == ("unknown", sentence, "")
    assert card(snapshot, gpus=9)[0] == "never"


LATER = Availability(Chance.LATER, "full", expected(NOW + 5 * HOUR, now=NOW))
BEHIND = Availability(Chance.LATER, "not yet", not_before(NOW + 5 * HOUR))
TOO_LATE = ", but a start may wait for at most 4 h here"
LIMITS: dict[str, tuple[Availability, float | None, str]] = {
    "no limit": (LATER, None, ""),
    "within the limit": (LATER, 6 * HOUR, ""),
    "at the limit": (LATER, 5 * HOUR, ""),
    "after the limit": (LATER, 4 * HOUR, TOO_LATE),
    "a set time": (BEHIND, 4 * HOUR, TOO_LATE),
    "a set time within the limit": (BEHIND, 6 * HOUR, ""),
    "nobody knows when": (Availability(Chance.LATER, "full"), 4 * HOUR, ""),
    "now": (Availability(Chance.NOW, "starts now"), 1, ""),
}


@pytest.mark.parametrize(("answer", "limit", "warning"), LIMITS.values(), ids=LIMITS.keys())
def test_a_start_that_is_expected_after_the_queues_limit(
    answer: Availability, limit: float | None, warning: str
) -> None:
    """The sentence says how long it may wait; nothing else changes."""
    assert within(answer, limit, now=NOW) == replace(answer, sentence=answer.sentence + warning)


def test_silence_of_slurm_is_told() -> None:
    """Without a snapshot, or with an old one, availability is unknown; impossible requests stay impossible."""
    assert availability(resolved(), None, now=NOW) == Availability(
        Chance.UNKNOWN, "availability unknown: Slurm has not responded yet"
    )
    snapshot = cluster(node("g1", G4))
    assert card(snapshot, gpus=1, now=NOW + STALE)[0] == "now"
    assert card(snapshot, gpus=1, now=NOW + STALE + 60) == (
        "unknown",
        "availability unknown: Slurm has not responded for 16 min",
        "",
    )
    assert card(snapshot, gpus=5, now=NOW + STALE + 60)[0] == "never"


# --- anything ---------------------------------------------------------------------------------------

words = st.sampled_from(["", "k80", "v100", "1g.10gb", "gpu", "batch", "r", "a&(b", "x"])
gres = st.lists(
    st.builds(
        Gres,
        st.sampled_from(["gpu", "shard", "mps", "other"]),
        st.sampled_from([None, "k80", "v100", "1g.10gb"]),
        st.integers(0, 9),
        st.sampled_from([(), (0,), (0, 3)]),
    ),
    max_size=3,
).map(tuple)
names = st.lists(st.sampled_from(["g1", "g2", "g3", "hidden"]), max_size=4).map(tuple)
moments = st.none() | st.floats(NOW - 10**5, NOW + 10**5)
nodes = st.builds(
    NodeState,
    st.sampled_from(["g1", "g2", "g3"]),
    states=st.frozensets(st.sampled_from(["IDLE", "MIXED", "DOWN", "DRAIN", "RESERVED", "POWERED_DOWN", "NEW"])),
    cpus=st.integers(0, 64),
    cpus_allocated=st.integers(0, 64),
    memory_mib=st.integers(0, 10**6),
    memory_allocated_mib=st.integers(0, 10**6),
    gres=gres,
    gres_used=gres,
    features=st.lists(words, max_size=2).map(tuple),
)
jobs = st.builds(
    ClusterJob,
    st.integers(1, 99).map(str),
    st.sampled_from(Phase),
    partitions=st.lists(words, max_size=2).map(tuple),
    priority=st.integers(0, 3),
    reason=st.sampled_from(["", "Resources", "JobHeldUser"]),
    nodes=names,
    node_count=st.integers(1, 4),
    cpus=st.integers(0, 64),
    gpus=gres,
    starts_at=moments,
    ends_at=moments,
    reservation=words,
)
partitions = st.builds(
    Partition,
    words,
    state=st.sampled_from(["UP", "DOWN", "", "NEW"]),
    default=st.booleans(),
    nodes=names,
    max_time=st.none() | st.integers(0, 10**6),
    default_time=st.none() | st.integers(0, 10**6),
    max_nodes=st.none() | st.integers(0, 9),
)
reservations = st.builds(
    Reservation, words, start=moments, end=moments, nodes=names, users=st.lists(words, max_size=2).map(tuple)
)
snapshots = st.builds(
    ClusterSnapshot,
    nodes=st.lists(nodes, max_size=4, unique_by=lambda state: state.name).map(tuple),
    partitions=st.lists(partitions, max_size=3).map(tuple),
    reservations=st.lists(reservations, max_size=3).map(tuple),
    jobs=st.lists(jobs, max_size=6).map(tuple),
    taken_at=st.just(NOW),
)
requests = st.builds(
    resolved,
    partition=st.none() | words.filter(bool) | st.just("gpu,batch"),
    nodes=st.integers(1, 3),
    gpus=st.none() | st.integers(0, 9),
    gpu_type=st.none() | words.filter(bool),
    shards=st.none() | st.integers(0, 9),
    cpus=st.none() | st.integers(1, 64),
    memory=st.none() | st.integers(0, 10**6),
    time=st.none() | st.integers(1, 10**6) | st.just("UNLIMITED"),
    reservation=st.none() | words.filter(bool),
    constraint=st.none() | words.filter(bool),
    exclusive=st.booleans(),
    extra=st.sampled_from([(), ("-w g1",), ("--gres-flags=enforce-binding",)]),
)


@pytest.mark.parametrize(("first", "second", "chance"), [(65536, 16000, "never"), (16000, 65536, "now")])
def test_for_all_memory_slurm_compares_the_first_node_of_the_partition(first: int, second: int, chance: str) -> None:
    """It refuses ``--mem=0`` with MaxMemPerCPU=1000 where the first one has 16 CPUs, and more than 16,000 MiB."""
    nodes = node("g1", memory_mib=first), node("g2", memory_mib=second)
    snapshot = cluster(*nodes, max_memory_per_cpu_mib=1000)
    assert availability(resolved(memory=0), snapshot, now=NOW).chance.value == chance


@settings(deadline=None, max_examples=300)
@given(requests, snapshots, st.floats(NOW - 10**6, NOW + 10**6))
def test_any_job_on_any_cluster_gets_a_sentence(resources: Resources, snapshot: ClusterSnapshot, now: float) -> None:
    """For any cluster: no exception, a sentence, and no start in the past."""
    answer = availability(resources, snapshot, now=now, user="alice")
    assert answer.sentence
    assert not answer.sentence.endswith(".")
    assert (answer.chance is Chance.NEVER) <= answer.field.startswith("slurm.")
    times = answer.estimate.earliest, answer.estimate.likely, answer.estimate.latest
    assert [at for at in times if at is not None and at < now] == []
    assert (answer.estimate.kind is Kind.NOW) == (answer.chance is Chance.NOW)
    assert answer.estimate == UNKNOWN or answer.chance in (Chance.NOW, Chance.LATER)


# --- what stands in the way -----------------------------------------------------------------------

K80 = node("g1", G4, cpus=16)
USED = node("g1", G4, "gpu:k80:2(IDX:0-1)", cpus_allocated=4)
BESIDE = "this hub cannot check which cores beside the GPUs are free"
OF_ALL_CORES = Reservation("r", None, None, ("g1",), partial=True, core_count=16)
BOUND: dict[str, tuple[NodeState, bool, dict[str, Any], str]] = {
    "an empty node, and a GPU's share of its cores": (K80, True, {"gpus": 1, "cpus": 4}, "now"),
    "more cores than those beside it may be": (K80, True, {"gpus": 1, "cpus": 5}, BESIDE),
    "a whole node, and more cores": (K80, True, {"gpus": 1, "cpus": 5, "exclusive": True}, BESIDE),
    "cores are in use": (USED, True, {"gpus": 1}, BESIDE),
    "by an option of its own": (USED, False, {"gpus": 1, "extra": ("--gres-flags=enforce-binding",)}, BESIDE),
    "any cores will do": (USED, False, {"gpus": 1, "extra": ("--gres-flags=disable-binding",)}, "now"),
    "no GPU, no cores beside it": (USED, True, {"cpus": 2}, "now"),
}


@pytest.mark.parametrize(("state", "binds", "resources", "answer"), BOUND.values(), ids=BOUND)
def test_cores_beside_the_gpus_are_not_known_to_be_free(
    state: NodeState, binds: bool, resources: dict[str, Any], answer: str
) -> None:
    """Slurm starts a job with enforce-binding only where its GPUs' own cores are free."""
    jobs = (running("1", "g1", "gpu:k80:2", cpus=4),) if state.cpus_allocated else ()
    found = availability(resolved(**resources), cluster(state, jobs=jobs), now=NOW, binds_cores=binds)
    said = found.chance.value if found.chance is Chance.NOW else found.sentence.removeprefix("availability unknown: ")
    assert said == answer


WHO_MAY: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a user who is listed": ({"users": ("bob",)}, {}, "now"),
    "a user of another list": ({"users": ("ada",)}, {}, "never"),
    "Slurm wants the user and the account": ({"users": ("ada",), "accounts": ("ml",)}, {}, "never"),
    "and has both": ({"users": ("bob",), "accounts": ("ml",)}, {"account": "ml"}, "now"),
    "an account that is not named": ({"accounts": ("ml",)}, {}, "unknown"),
    "a user who is listed, and no account": ({"users": ("bob",), "accounts": ("ml",)}, {}, "unknown"),
    "an account that is excluded": ({"accounts": ("-ml",)}, {"account": "ml"}, "unknown"),
    "one that may be": ({"accounts": ("-ml",)}, {}, "unknown"),
    "another than the excluded one": ({"accounts": ("-ml",)}, {"account": "bio"}, "now"),
    "an account that may be below": ({"accounts": ("ml",)}, {"account": "ml-course"}, "unknown"),
    "a group that nobody knows": ({"groups": ("ml",)}, {}, "unknown"),
    "another QOS": ({"qos": ("high",)}, {"qos": "low"}, "unknown"),
    "a partition of its own": ({"allowed_partitions": ("cpu",)}, {"partition": "gpu"}, "unknown"),
}


@pytest.mark.parametrize(("of_reservation", "resources", "chance"), WHO_MAY.values(), ids=WHO_MAY)
def test_who_may_use_a_reservation(of_reservation: dict[str, Any], resources: dict[str, Any], chance: str) -> None:
    """All that it names have to be the job's."""
    own = Reservation("r", None, None, ("g1",), **of_reservation)
    snapshot = cluster(K80, reservations=(own,))
    assert card(snapshot, user="bob", gpus=1, reservation="r", **resources)[0] == chance


@pytest.mark.parametrize(
    ("own", "other", "chance"),
    [
        ("r", OF_ALL_CORES, "now"),
        ("r", replace(OF_ALL_CORES, core_count=8), "unknown"),
        (None, OF_ALL_CORES, "later"),
        (None, replace(OF_ALL_CORES, core_count=8), "unknown"),
    ],
)
def test_a_reservation_of_all_cores_is_of_the_whole_node(own: str | None, other: Reservation, chance: str) -> None:
    """Slurm lists its cores, as it does of a part of them."""
    assert card(cluster(K80, reservations=(other,)), gpus=1, reservation=own)[0] == chance


def test_a_field_that_nobody_considers_is_as_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an option delays a start is asked once, wherever it is written."""
    assert card(cluster(K80), gpus=1, extra=("--switches=1",))[0] == "unknown"
    assert card(cluster(K80), gpus=1, nice=1)[0] == "now"
    monkeypatch.setitem(SBATCH_OPTIONS, "switches", "nice")
    assert card(cluster(K80), gpus=1, nice=1)[0] == "unknown"


TIMES = "\N{MULTIPLICATION SIGN}"
MAX_3000: dict[str, Any] = {"max_memory_per_cpu_mib": 3000}
B1 = node("b1", "gpu:k80:4", cpus=16, memory_mib=64000, socket_cores=8)
M1 = node("m1", "gpu:k80:2,gpu:v100:1", cpus=16, memory_mib=64000, socket_cores=8)
K, V, WHOLE = f"{TIMES} K80, 12 GB", f"{TIMES} V100", "all of a node's memory"
PER_GPU: dict[str, Any] = {"default_memory_per_gpu_mib": 7000, "default_memory_per_cpu_mib": 100}
Given = tuple[NodeState, dict[str, Any], dict[str, Any], tuple[str, ...]]
GIVEN: dict[str, Given] = {
    "what it requests": (B1, {}, {"gpus": 1, "cpus": 3, "memory": 2048}, (f"1 {K}", "3 cores", "2 GiB memory")),
    "all memory, where there is no default": (B1, {}, {"cpus": 3}, ("3 cores", WHOLE)),
    "all memory": (B1, {}, {"cpus": 3, "memory": 0}, ("3 cores", WHOLE)),
    "all memory, by an option": (B1, {}, {"cpus": 3, "extra": ("--mem=0",)}, ("3 cores", WHOLE)),
    "a default for each CPU": (B1, {"default_memory_per_cpu_mib": 1024}, {"cpus": 3}, ("3 cores", "3 GiB memory")),
    "a default for each node": (B1, {"default_memory_per_node_mib": 5120}, {"cpus": 2}, ("2 cores", "5 GiB memory")),
    "a default for each GPU": (B1, PER_GPU, {"gpus": 2, "cpus": 2}, (f"2 {K}", "2 cores", "13.5 GiB memory")),
    "no GPU, no default for it": (B1, PER_GPU, {"cpus": 2}, ("2 cores", "200 MiB memory")),
    "so much for each CPU": (B1, {}, {"cpus": 3, "extra": ("--mem-per-cpu=1G",)}, ("3 cores", "3 GiB memory")),
    "so much for each GPU": (
        B1,
        {},
        {"gpus": 2, "cpus": 3, "extra": ("--mem-per-gpu=1G",)},
        (f"2 {K}", "3 cores", "2 GiB memory"),
    ),
    "CPUs for its memory": (B1, MAX_3000, {"cpus": 3, "memory": 21000}, ("7 cores", "20.5 GiB memory")),
    "by so much for each CPU": (
        B1,
        MAX_3000,
        {"cpus": 3, "extra": ("--mem-per-cpu=7000",)},
        ("9 cores", "20.5 GiB memory"),
    ),
    "by its default for each CPU": (
        B1,
        {"max_memory_per_cpu_mib": 300, "default_memory_per_cpu_mib": 700},
        {"cpus": 3},
        ("9 cores", "2 GiB memory"),
    ),
    "by its default for each node": (
        B1,
        MAX_3000 | {"default_memory_per_node_mib": 7000},
        {"cpus": 2},
        ("3 cores", "6.8 GiB memory"),
    ),
    "a whole node": (
        M1,
        {},
        {"gpus": 1, "gpu_type": "k80", "cpus": 3, "memory": 4096, "exclusive": True},
        (f"2 {K}", f"1 {V}", "16 cores", "4 GiB memory"),
    ),
    "its GPUs, also without a request": (
        M1,
        {"exclusive": True},
        {"cpus": 3},
        (f"2 {K}", f"1 {V}", "16 cores", WHOLE),
    ),
    "its memory for each GPU": (
        M1,
        {},
        {"gpus": 1, "exclusive": True, "extra": ("--mem-per-gpu=1G",)},
        (f"2 {K}", f"1 {V}", "16 cores", "3 GiB memory"),
    ),
    "its memory for each CPU": (
        B1,
        {"default_memory_per_cpu_mib": 1024},
        {"gpus": 1, "cpus": 3, "exclusive": True},
        (f"4 {K}", "16 cores", "16 GiB memory"),
    ),
    "its default for each GPU": (
        B1,
        PER_GPU,
        {"gpus": 1, "cpus": 3, "exclusive": True},
        (f"4 {K}", "16 cores", "27 GiB memory"),
    ),
}
"""Jobs of Slurm 24.11 got as much; the amounts of memory are rounder here."""


@pytest.mark.parametrize(("state", "partition", "resources", "gets"), GIVEN.values(), ids=GIVEN)
def test_what_slurm_gives_is_said(
    state: NodeState, partition: dict[str, Any], resources: dict[str, Any], gets: tuple[str, ...]
) -> None:
    """On the form, in the trial and over REST."""
    job, one = resolved(**resources), replace(cluster(state, **partition), config=allocated())
    assert what_a_job_gets(job, hardware_of(job, one)).parts == gets


@pytest.mark.parametrize(("cpus", "given"), [(3, 6), (1, 7), (8, 8), (None, 7)])
def test_older_versions_give_no_part_of_what_a_task_requests(cpus: int | None, given: int) -> None:
    """21000 MiB with 3000 for each CPU take seven: Slurm 22.05 gave a job that requested three of them six."""
    one = replace(cluster(B1, **MAX_3000), config=replace(allocated(), version="22.05.8"))
    assert hardware_of(resolved(cpus=cpus, memory=21000), one).cpus == (given,)


NOT_READ = {
    "two amounts": {"memory": 1024, "extra": ("--mem-per-cpu=1G",)},
    "no amount": {"extra": ("--mem-per-cpu=lots",)},
    "for each GPU beside MaxMemPerCPU": {"gpus": 1, "extra": ("--mem-per-gpu=1G",)},
}


@pytest.mark.parametrize("resources", NOT_READ.values(), ids=NOT_READ)
def test_memory_that_cannot_be_judged_starts_nothing_now(resources: dict[str, Any]) -> None:
    """Slurm refuses them."""
    one = replace(cluster(B1, **MAX_3000), config=allocated())
    assert card(one, **resources)[0] == "unknown"
