"""Which of a course's profiles the next participant is offered."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.spawners.offers import offered_beside
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.extensions.courses.test_course_card import Book, lesson, spawner
from tests.snapshots import cluster, node, running

ONE_SEAT = cluster(node("g1", "gpu:k80:2", "gpu:k80:1"), jobs=(running("7", "g1", "gpu:k80:1", ends_in=None),))
"""One of two GPUs is free."""
FREE = cluster(node("g1", "gpu:k80:1"))
"""One GPU, which is free."""
FULL = cluster(node("g1", "gpu:k80:1", "gpu:k80:1"), jobs=(running("7", "g1", "gpu:k80:1", ends_in=None),))


GPU = {
    "display_name": "GPU",
    "slug": "gpu",
    "slurm": {"partition": "gpu", "gpus": 1, "cpus": 1, "memory": "1G", "time": "1:00:00"},
    "profile_options": {"gpus": {"range": {"min": 1, "max": 2, "sets": "slurm.gpus"}}},
}


def server(
    name: str,
    job_id: str,
    profile: str = "course-lesson",
    *,
    active: bool = True,
    cluster: str = "",
    rank: int = 0,
) -> Any:
    """A participant, and the server of theirs that the hub has in memory."""
    chosen = ChosenProfile(profile, "slurm", rank=rank)
    of = SimpleNamespace(active=active, cluster=cluster, job_id=job_id, chosen=chosen)
    return SimpleNamespace(name=name, spawners={"": of})


SERVERS: dict[str, tuple[ClusterSnapshot | None, Sequence[Any], int]] = {
    "a seat is left": (ONE_SEAT, [], 1),
    "another is being started": (ONE_SEAT, [server("train2", "")], 2),
    "another's job waits, or is newer than the snapshot": (ONE_SEAT, [server("train2", "9")], 2),
    "another's job waits for the second": (ONE_SEAT, [server("train2", "9", rank=1)], 1),
    "another has its seat": (ONE_SEAT, [server("train2", "7")], 1),
    "another of another profile": (ONE_SEAT, [server("train2", "", "usual")], 1),
    "another that has ended": (ONE_SEAT, [server("train2", "", active=False)], 1),
    "somebody of no course": (ONE_SEAT, [server("kim", "")], 1),
    "nothing is known of the cluster": (None, [server("train2", "")], 1),
}


@pytest.mark.parametrize(("snapshot", "users", "gpus"), SERVERS.values(), ids=SERVERS.keys())
def test_the_first_profile_that_has_a_seat_is_offered(
    snapshot: ClusterSnapshot | None, users: Sequence[Any], gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one GPU and of two, in this order; servers that hold nothing yet have a seat."""
    course = lesson(-1, profile=[{"slug": "gpu", "options": {"gpus": gpus}} for gpus in (1, 2)])
    of = spawner(Book([course]), "train1")
    of.profiles = [GPU]
    of.user.settings["users"] = dict(enumerate(users))
    one = SimpleNamespace(view=SimpleNamespace(latest=snapshot), silent=False)
    monkeypatch.setattr(of, "connections", lambda: {"": one})
    (offer,) = offered_beside(of)
    assert offer.profile.slurm.gpus == gpus


@pytest.mark.parametrize(
    ("juniper", "silent", "users", "offered"),
    [
        (FREE, "", [], "juniper"),
        (ONE_SEAT, "", [server("train2", "7", cluster="cedar")], "cedar"),
        (FULL, "", [], "cedar"),
        (FREE, "juniper", [], "cedar"),
        (FREE, "juniper cedar", [], "juniper"),
    ],
    ids=["a seat is left", "another is being started", "no seat is left", "the first is silent", "both are silent"],
)
def test_a_course_on_two_clusters_fills_one_after_the_other(
    juniper: ClusterSnapshot | None,
    silent: str,
    users: Sequence[Any],
    offered: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Job 7 of the one who is being started waits on cedar; the one of that number on juniper is another."""
    course = lesson(-1, profile=[{"slug": "gpu", "options": {"where": name}} for name in ("juniper", "cedar")])
    of = spawner(Book([course]), "train1", clusters={"juniper": {}, "cedar": {"slurm_conf": "/etc/cedar.conf"}})
    choices = {name: {"display_name": name, "slurm": {"cluster": name}} for name in ("juniper", "cedar")}
    of.profiles = [{**GPU, "profile_options": {"where": {"choices": choices}}}]
    of.user.settings["users"] = dict(enumerate(users))
    snapshots = {"juniper": juniper, "cedar": FREE}
    connections = {
        name: SimpleNamespace(view=SimpleNamespace(latest=snapshot), silent=name in silent.split())
        for name, snapshot in snapshots.items()
    }
    monkeypatch.setattr(of, "connections", lambda: connections)
    (offer,) = offered_beside(of)
    assert offer.profile.slurm.cluster == offered


@pytest.mark.parametrize(("allowed", "others"), [(["cpu"], ["cpu"]), ([], []), (["gpu", "other"], [])])
def test_who_waits_for_one_of_a_courses_profiles_accepts_the_others_that_the_site_allows(
    allowed: list[str], others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the admin's profile of the one that waits; a course offers nothing else to accept."""
    course = lesson(-1, profile=[{"slug": "gpu"}, {"slug": "cpu"}])
    of = spawner(Book([course]), "train1")
    of.profiles = [{**GPU, "alternatives": allowed}, {"display_name": "CPU", "slug": "cpu", "slurm": {"cpus": 1}}]
    of.user.settings["users"] = {}
    one = SimpleNamespace(view=SimpleNamespace(latest=FREE), silent=False)
    monkeypatch.setattr(of, "connections", lambda: {"": one})
    (offer,) = offered_beside(of)
    of.chosen, of.child_profile = ChosenProfile("course-lesson", "slurm"), "course-lesson"
    of.request = of.resolve({"profile": "course-lesson"})

    assert (offer.base, [other.base for other in offer.others], offer.profile.alternatives) == ("gpu", others, ())
    assert [(request.profile.slug, request.resources.gpus) for request in of.acceptable()] == [
        ("course-lesson", None) for _ in others
    ]
    assert of.request.may_have_rival is bool(others)


@pytest.mark.parametrize("stored", [{}, {"rank": "1"}, {"rank": True}, {"rank": None}])
def test_a_restarted_hub_knows_which_of_the_profiles_a_server_has(
    stored: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are the same profile with another choice; a state that does not say it has the first."""
    course = lesson(-1, profile=[{"slug": "gpu", "options": {"gpus": gpus}} for gpus in (1, 2)])

    def participant() -> Any:
        of = spawner(Book([course]), "train1")
        of.profiles = [GPU]
        of.user.settings["users"] = {0: server("train2", "")}
        monkeypatch.setattr(
            of, "connections", lambda: {"": SimpleNamespace(view=SimpleNamespace(latest=ONE_SEAT), silent=False)}
        )
        return of

    first, second = participant(), participant()
    first.prepare(first.resolve({"profile": "course-lesson"}))
    second.load_state({**first.get_state(), "job_id": "9", **stored})

    assert (first.chosen.rank, second.chosen.rank) == (1, 0 if stored else 1)
