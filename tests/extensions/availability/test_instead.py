"""What is free instead of what somebody waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.choose.likeness import closest
from jupyterhub_gpuspawner.hub.choose.offer import FilledIn, ProfileStatus, offers
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import Availability, Chance

PROFILES: dict[str, dict[str, Any]] = {
    "cpu": {"cpus": 12},
    "small-cpu": {"cpus": 2},
    "slice": {"gpus": 1, "gpu_type": "1g.10gb"},
    "any": {"gpus": 1},
    "shard": {"shards": 1},
    "k80": {"gpus": 1, "gpu_type": "k80"},
    "k80x4": {"gpus": 4, "gpu_type": "k80"},
    "l40s": {"gpus": 1, "gpu_type": "l40s"},
    "h200x8": {"gpus": 8, "gpu_type": "h200"},
}
RESOURCES = {slug: Resources(**slurm) for slug, slurm in PROFILES.items()}
NOW, LATER = Availability(Chance.NOW, "starts now"), Availability(Chance.LATER, "full")


def statuses(*, busy: tuple[str, ...] = ()) -> list[ProfileStatus]:
    """All profiles start now, except for the busy ones."""
    parsed = parse_profiles([{"display_name": slug, "slug": slug, "slurm": slurm} for slug, slurm in PROFILES.items()])
    return [
        ProfileStatus(profile, None, LATER if profile.slug in busy else NOW, RESOURCES[profile.slug])
        for profile in parsed
    ]


ORDER = {
    "one K80": (
        RESOURCES["k80"],
        "l40s k80x4 h200x8 slice any shard cpu small-cpu",
    ),
    "four K80": (
        RESOURCES["k80x4"],
        "k80 l40s h200x8 slice any shard cpu small-cpu",
    ),
    "an L40S": (RESOURCES["l40s"], "h200x8 slice any shard k80 k80x4 cpu small-cpu"),
    "any GPU": (RESOURCES["any"], "slice k80 l40s k80x4 h200x8 shard cpu small-cpu"),
    "a part of a GPU": (RESOURCES["shard"], "slice any k80 l40s k80x4 h200x8 cpu small-cpu"),
    "a slice": (RESOURCES["slice"], "k80 l40s k80x4 h200x8 any shard cpu small-cpu"),
    "cores": (RESOURCES["cpu"], "small-cpu slice any shard k80 l40s k80x4 h200x8"),
}


@pytest.mark.parametrize(("resources", "order"), ORDER.values(), ids=ORDER.keys())
def test_the_closest_is_offered_first(resources: Resources, order: str) -> None:
    """The same model or as much GPU memory, other GPUs, none; then the nearest number; never what was asked for."""
    assert closest(resources, RESOURCES) == order.split()


def test_without_gpus_the_nearest_number_of_cores_comes_first() -> None:
    """Whatever the order; several nodes come after one."""
    wanted = Resources(gpus=1, gpu_type="k80", cpus=10)
    offered = {"two nodes": Resources(cpus=10, nodes=2), "two": Resources(cpus=2), "twelve": Resources(cpus=12)}

    assert closest(wanted, offered) == ["twelve", "two", "two nodes"]


def test_what_does_not_start_now_is_not_offered() -> None:
    """Nor a profile whose availability is not known."""
    busy = tuple(slug for slug in PROFILES if slug not in ("cpu", "slice", "l40s"))
    unknown = [
        replace(status, availability=None) if status.profile.slug == "l40s" else status
        for status in statuses(busy=busy)
    ]
    instead = {
        offer.profile.slug: [other.profile.slug for other in offer.instead]
        for offer in offers(unknown, FilledIn(), base_url="/hub/")
    }

    assert instead == {slug: [] for slug in PROFILES} | {
        slug: ["cpu", "slice"] if slug == "small-cpu" else ["slice", "cpu"] for slug in busy
    }
