"""The availability of each profile for one user."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from datetime import datetime
from typing import Any

from jupyterhub_gpuspawner.extensions.availability.api import profiles_document
from jupyterhub_gpuspawner.extensions.availability.forecast import ClusterNow
from jupyterhub_gpuspawner.hub.choose import words
from jupyterhub_gpuspawner.hub.choose.offer import CHOICES_AT_MOST, FilledIn, offers
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.job import job_owner
from jupyterhub_gpuspawner.slurm.snapshot import Reservation
from tests.extensions.availability.statuses import profile_statuses
from tests.snapshots import NOW, cluster, node, running

PROFILES = parse_profiles(
    [
        {"display_name": "One GPU", "slurm": {"gpus": 1}},
        {"display_name": "Course", "slurm": {"gpus": 1}, "allow": {"groups": ["ml-course"]}},
        {"display_name": "Here", "kind": "local"},
        {"display_name": "Huge", "slurm": {"gpus": 16}},
        {
            "display_name": "Adjustable",
            "profile_options": {"gpus": {"range": {"min": 1, "max": 8, "default": 8, "sets": "slurm.gpus"}}},
        },
        {"display_name": "Yesterday", "slurm": {"reservation": {"2000-01-01": "old"}}},
    ]
)
LIMITS = ("0:30:00", "3:00:00", "UNLIMITED")
FOUR = cluster(node("g1", "gpu:k80:4", "gpu:k80:1(IDX:0)"))


def status_texts(**more: Any) -> dict[str, tuple[str | None, str | None]]:
    """Return refusal and sentence of each profile."""
    arguments: dict[str, Any] = {"username": "alice", "groups": (), "clusters": {"": ClusterNow(FOUR)}, **more}
    statuses = profile_statuses(PROFILES, now=datetime.fromtimestamp(NOW).astimezone(), **arguments)
    assert [status.profile for status in statuses] == list(PROFILES)
    return {
        status.profile.slug: (
            status.refusal.text if status.refusal else None,
            status.availability.sentence if status.availability else None,
        )
        for status in statuses
    }


def test_the_status_of_every_profile() -> None:
    """Available, not for this user, without Slurm, never, by its options' defaults, without a reservation today."""
    day = datetime.fromtimestamp(NOW).astimezone().date().isoformat()
    assert status_texts() == {
        "one-gpu": (None, "starts now, 3 of 4 K80 free"),
        "course": ("it is reserved for the group ml-course", None),
        "here": (None, None),
        "huge": (None, "16 GPUs are more than the 4 of a node"),
        "adjustable": (None, "8 GPUs are more than the 4 of a node"),
        "yesterday": (None, f"there is no reservation for {day}; days are 2000-01-01"),
    }
    assert status_texts(groups={"ml-course"})["course"] == (None, "starts now, 3 of 4 K80 free")


def test_defaults_of_the_site_count() -> None:
    """They fill in what a profile does not say."""
    texts = status_texts(defaults={"": Resources(cpus=64)})
    assert texts["one-gpu"] == (
        None,
        "64 cores are more than the 16 of a node",
    )


def test_silent_slurm_keeps_no_profile_from_being_shown() -> None:
    """Availability is unknown; what can be refused without Slurm still is."""
    texts = status_texts(clusters={"": ClusterNow(None)})
    assert texts["one-gpu"] == (None, "availability unknown: Slurm has not responded yet")
    assert texts["course"] == ("it is reserved for the group ml-course", None)


def test_a_status_carries_what_the_job_would_ask_for() -> None:
    """The profile's values before the site's, and the options' defaults."""
    status = profile_statuses(
        PROFILES[4:5],
        username="alice",
        groups=(),
        clusters={"": ClusterNow(FOUR)},
        now=datetime.fromtimestamp(NOW).astimezone(),
        defaults={"": Resources(gpus=1, cpus=2)},
    )[0]
    assert status.resources is not None
    assert status.availability is not None
    assert (status.resources.gpus, status.resources.cpus, status.availability.chance) == (8, 2, Chance.NEVER)


def test_a_reservation_is_for_the_account_that_owns_the_jobs() -> None:
    """If the hub's account owns all jobs, the reservation must allow that account, not the user."""
    reserved = Reservation("lab", start=NOW - 60, end=NOW + 3600, nodes=("g1",), users=("jupyter",))
    snapshot = replace(FOUR, reservations=(reserved,))
    defaults = {"": Resources.model_validate({"reservation": "lab"})}
    sentences = [
        status_texts(clusters={"": ClusterNow(snapshot, owner=owner)}, defaults=defaults)["one-gpu"][1]
        for owner in ("jupyter", "", "alice")
    ]

    assert sentences == [
        "starts now, 3 of 4 K80 free",
        "starts now, 3 of 4 K80 free",
        "reservation lab is for other users",
    ]


def test_a_node_in_maintenance_is_free_for_those_who_maintain_it() -> None:
    """Whose reservation it is; not where another one is the reason, nor without one."""
    times: dict[str, Any] = {"start": NOW - 60, "end": NOW + 7200, "nodes": ("g1",), "flags": frozenset({"MAINT"})}
    in_maintenance = tuple(node._replace(states=node.states | {"MAINTENANCE"}) for node in FOUR.nodes)
    of_both = (Reservation("repair", **times), Reservation("upgrade", **times))
    sentences = [
        status_texts(
            clusters={"": ClusterNow(replace(FOUR, nodes=in_maintenance, reservations=reservations))},
            defaults={"": Resources.model_validate(request)},
        )["one-gpu"][1]
        for request, reservations in (
            ({"reservation": "repair"}, of_both[:1]),
            ({"reservation": "repair"}, of_both),
            ({}, of_both[:1]),
        )
    ]

    assert sentences == [
        "starts now, 3 of 4 K80 free",
        "full",
        "not available now: g1 (in maintenance) is out of service",
    ]


def test_the_form_and_rest_show_the_same_profiles() -> None:
    """Those of other groups and users, and those that have ended, are named to nobody else."""
    allowed: dict[str, dict[str, Any]] = {
        "Mine": {"groups": ["lab"]},
        "Theirs": {"groups": ["others"]},
        "Carl's": {"users": ["carl"]},
        "Over": {"until": "2000-01-01"},
        "Later": {"from": "2999-01-01"},
    }
    profiles = parse_profiles(
        [{"display_name": name, "kind": "local", "allow": allow} for name, allow in allowed.items()]
    )
    statuses = profile_statuses(
        profiles,
        username="ann",
        groups=["lab"],
        clusters={"": ClusterNow(FOUR)},
        now=datetime.fromtimestamp(NOW).astimezone(),
    )
    form = [offer.profile.display_name for offer in offers(statuses, FilledIn(), base_url="/hub/")]
    rest = [profile.display_name for profile in profiles_document(statuses, {"": FOUR}, silence=None, now=0.0).profiles]

    assert (form, rest) == (["Mine", "Later"], ["Mine", "Later"])


def test_a_start_that_is_expected_after_the_queues_limit_has_a_warning() -> None:
    """The profile's limit, else the site's; UNLIMITED lifts it."""
    reserved = Reservation("lab", start=NOW + 7200, end=NOW + 9000, nodes=("g1",))
    plain: dict[str, Any] = {"slurm": {"reservation": "lab", "time": "0:10:00"}}
    own = [{"display_name": f"P{limit}", "queue_timeout": limit, **plain} for limit in LIMITS]
    profiles = parse_profiles([{"display_name": "The site's", **plain}, *own])
    statuses = profile_statuses(
        profiles,
        username="alice",
        groups=(),
        clusters={"": ClusterNow(replace(FOUR, reservations=(reserved,)))},
        now=datetime.fromtimestamp(NOW).astimezone(),
        site_queue_limit=3600,
    )

    sentences = [status.availability.sentence.partition(", but ")[2] for status in statuses if status.availability]
    assert sentences == ["a start may wait for at most 1 h here", "a start may wait for at most 30 min here", "", ""]


def test_whose_jobs_they_are() -> None:
    """The hub's account without a prefix, the user's if the prefix names the user, else unknown."""
    own = pwd.getpwuid(os.getuid()).pw_name

    assert [job_owner(prefix, "ann") for prefix in ("", "sudo -u {username}", "sudo -u jupyter")] == [own, "ann", ""]


def test_each_choice_of_an_option_has_its_own_start() -> None:
    """With the other options as they are: two of four GPUs are free."""
    busy = cluster(node("g1", "gpu:k80:4", "gpu:k80:2(IDX:0-1)"), jobs=(running("1", "g1", "gpu:k80:2"),))
    choices = {str(number): {"slurm": {"gpus": number}} for number in (1, 2, 4, 8)}
    profile = {"display_name": "K80", "slurm": {"cpus": 1}, "profile_options": {"gpus": {"choices": choices}}}
    at = datetime.fromtimestamp(NOW).astimezone()
    (status,) = profile_statuses(
        parse_profiles([profile]), username="ada", groups=(), clusters={"": ClusterNow(busy)}, now=at
    )
    starts = {key: words.start_of_choice(availability, NOW) for key, availability in status.choices["gpus"].items()}

    assert starts == {"1": ": starts now", "2": ": starts now", "4": ": later", "8": ": cannot start"}


def test_so_many_choices_have_a_start_that_a_page_costs_little() -> None:
    """Twenty options of four choices each: the first sixty."""
    choices = {str(number): {"slurm": {"gpus": number}} for number in (1, 2, 4, 8)}
    options = {f"option{number}": {"display_name": f"Option {number}", "choices": choices} for number in range(20)}
    profile = {"display_name": "K80", "slurm": {"cpus": 1}, "profile_options": options}
    at = datetime.fromtimestamp(NOW).astimezone()
    (status,) = profile_statuses(
        parse_profiles([profile]),
        username="ada",
        groups=(),
        clusters={"": ClusterNow(cluster(node("g1", "gpu:k80:4")))},
        now=at,
    )

    assert sum(map(len, status.choices.values())) == CHOICES_AT_MOST


def test_each_profile_and_each_choice_is_judged_on_its_own_cluster() -> None:
    """Node and partition have the same names on both; only the second one has a GPU left."""
    juniper, cedar = cluster(node("g1", "gpu:k80:4", "gpu:k80:4(IDX:0-3)")), FOUR
    choices = {name: {"slurm": {"cluster": name}} for name in ("juniper", "cedar")}
    profile = {"display_name": "Either", "slurm": {"gpus": 1}, "profile_options": {"where": {"choices": choices}}}
    gone = {"display_name": "Gone", "slurm": {"gpus": 1, "cluster": "birch"}}
    either, without = profile_statuses(
        parse_profiles([profile, gone]),
        username="ada",
        groups=(),
        clusters={"juniper": ClusterNow(juniper), "cedar": ClusterNow(cedar)},
        now=datetime.fromtimestamp(NOW).astimezone(),
        defaults={"juniper": Resources(), "cedar": Resources()},
    )
    sentences = {name: answer.sentence for name, answer in either.choices["where"].items()}

    assert sentences["cedar"] == "starts now, 3 of 4 K80 free on cedar"
    assert sentences["juniper"].endswith(" on juniper")
    assert either.choices["where"]["juniper"].chance is not Chance.NOW
    older = replace(cedar, taken_at=juniper.taken_at - 60.0)
    document = profiles_document([either], {"juniper": juniper, "cedar": older}, silence=None, now=NOW)
    timestamps = (document.taken_at, document.profiles[0].taken_at)
    times = [datetime.fromisoformat(str(at).replace("Z", "+00:00")) for at in timestamps]
    assert [time.timestamp() for time in times] == [juniper.taken_at - 60.0, juniper.taken_at]
    assert without.availability is not None
    assert (without.availability.chance, without.availability.sentence, without.availability.field) == (
        Chance.NEVER,
        "there is no cluster 'birch'. Clusters of this hub are juniper, cedar",
        "slurm.cluster",
    )
