"""The form: its offers, its texts, and that no text in it becomes code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.forecast import (
    ClusterForecast,
    ClusterNow,
    Silence,
    Site,
    silence_of,
)
from jupyterhub_gpuspawner.extensions.availability.words import STILL, STILL_THERE
from jupyterhub_gpuspawner.hub.choose.offer import (
    FilledIn,
    filled_in_with_fault,
    of_a_form,
    of_a_link,
    of_the_last_time,
    offers,
    option_fields,
)
from jupyterhub_gpuspawner.hub.choose.page import fault_at, form_html, nothing_to_start, render_form
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.times import clock
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.estimate import Chance
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition, SlurmConfig
from jupyterhub_gpuspawner.units import Gres
from tests.extensions.availability.statuses import profile_statuses
from tests.fixtures.extensions import SETTINGS
from tests.snapshots import cluster, node

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=timezone.utc)
DOCUMENTS: list[dict[str, object]] = [
    {
        "display_name": "One K80",
        "slug": "k80",
        "slurm": {
            "partition": "gpu",
            "gpus": 1,
            "gpu_type": "k80",
            "cpus": 4,
            "memory": "8G",
            "time": "1:00:00",
        },
        "profile_options": {
            "gpus": {"display_name": "GPUs", "range": {"min": 1, "max": 4, "sets": "slurm.gpus"}},
            "image": {
                "choices": {"a": {"display_name": "Image A", "default": True}, "b": {}},
                "unlisted_choice": {"validation_regex": "[a-z/]+", "sets": "environment.container"},
            },
        },
    },
    {"display_name": '<b>Bold</b> & "quoted"', "slug": "bold", "description": "<script>alert(1)</script>"},
    {"display_name": "A week", "slug": "week", "slurm": {"partition": "gpu", "time": "7-0"}},
    {"display_name": "Spring", "slug": "spring", "allow": {"from": "2026-03-21"}},
    {"display_name": "Winter", "slug": "winter", "allow": {"until": "2026-01-31"}},
    {"display_name": "Staff", "slug": "staff", "allow": {"groups": ["staff"]}},
    {"display_name": "Staff's spring", "slug": "both", "allow": {"groups": ["staff"], "from": "2026-03-21"}},
]
PROFILES = parse_profiles(DOCUMENTS)
CLUSTER = ClusterSnapshot(
    nodes=(
        NodeState(
            "g1",
            states=frozenset({"IDLE"}),
            cpus=24,
            memory_mib=64000,
            gres=(Gres("gpu", "k80", 4),),
            partitions=("gpu",),
        ),
    ),
    partitions=(Partition("gpu", default=True, nodes=("g1",), max_time=86400),),
    taken_at=NOW.timestamp() - 20,
)

GETS: dict[str, tuple[Mapping[str, object], tuple[str, ...]]] = {
    "a K80 for an hour": (
        {"slurm": {"gpus": 1, "gpu_type": "k80", "cpus": 4, "memory": "8G", "time": "1:00:00"}},
        ("1 \N{MULTIPLICATION SIGN} K80, 12 GB", "4 cores", "8 GiB memory", "1 h"),
    ),
    "nothing said": ({}, ("1 core",)),
    "any GPU": ({"slurm": {"gpus": 2}}, ("2 \N{MULTIPLICATION SIGN} P100", "1 core")),
    "a type alone": ({"slurm": {"gpu_type": "1g.10gb"}}, ("1 \N{MULTIPLICATION SIGN} GPU slice, 10 GB",)),
    "shards": ({"slurm": {"shards": 3}}, ("3 GPU shards",)),
    "many nodes, without end": (
        {"slurm": {"nodes": 2, "cpus": 1, "memory": 0, "time": "UNLIMITED"}},
        ("2 nodes", "1 core on each", "all of a node's memory", "no time limit"),
    ),
    "one or more nodes with GPUs": (
        {
            "slurm": {"nodes": 1, "gpus": 4, "gpu_type": "k80", "memory": "8G"},
            "profile_options": {"n": {"range": {"min": 1, "max": 4, "sets": "slurm.nodes"}}},
        },
        ("1 to 4 nodes", "4 \N{MULTIPLICATION SIGN} K80, 12 GB on each", "8 GiB memory on each"),
    ),
    "a range": (
        {"slurm": {"cpus": 4}, "profile_options": {"c": {"range": {"min": 1, "max": 32, "sets": "slurm.cpus"}}}},
        ("1 to 32 cores",),
    ),
    "a range from none": (
        {"profile_options": {"g": {"range": {"min": 0, "max": 4, "sets": "slurm.gpus"}}}},
        ("0 to 4 \N{MULTIPLICATION SIGN} GPU", "1 core"),
    ),
    "choices": (
        {
            "slurm": {"memory": "16G", "gpus": 1},
            "profile_options": {
                "m": {"choices": {"small": {}, "large": {"slurm": {"memory": "64G"}}}},
                "t": {"choices": {"a": {"slurm": {"gpu_type": "k80"}}, "b": {"slurm": {"gpu_type": "a100"}}}},
            },
        },
        ("1 \N{MULTIPLICATION SIGN} K80, 12 GB or A100", "1 core", "16 to 64 GiB memory"),
    ),
    "memory below a GiB, and more than two days": (
        {
            "slurm": {"time": "2-12:00:00"},
            "profile_options": {"m": {"choices": {"a": {"slurm": {"memory": 512}}, "b": {"slurm": {"memory": "2G"}}}}},
        },
        ("1 core", "512 MiB to 2 GiB memory", "2 days 12 h"),
    ),
    "hours": (
        {"profile_options": {"h": {"range": {"min": 1, "max": 24, "sets": "slurm.time", "unit": "hours"}}}},
        ("1 core", "1 to 24 h"),
    ),
}


def check(options: Mapping[str, object]) -> object:
    """Check a choice as the hub does."""
    return resolve(PROFILES, options, username="ann", groups=(), server_name="", now=NOW)


def gets(document: Mapping[str, object], snapshot: ClusterSnapshot | None) -> tuple[str, ...]:
    """What the form says that one gets with a profile."""
    profiles = parse_profiles([{"display_name": "It", **document}])
    statuses = profile_statuses(profiles, username="ann", groups=(), clusters={"": ClusterNow(snapshot)}, now=NOW)
    nothing_selected = FilledIn(fault="There is no such profile.", field="profile")
    (offer,) = offers(statuses, nothing_selected, base_url="/hub/")
    return offer.usual.parts


def form(filled_in: FilledIn, snapshot: ClusterSnapshot | None = CLUSTER) -> BeautifulSoup:
    """The form as the browser receives it."""
    statuses = profile_statuses(PROFILES, username="ann", groups=(), clusters={"": ClusterNow(snapshot)}, now=NOW)
    html = form_html(offers(statuses, filled_in, base_url="/hub/"), now=NOW.timestamp())
    return BeautifulSoup(html, "html.parser")


def held(page: BeautifulSoup) -> dict[str, object]:
    """The values of the selected profile's fields that *Start* would send."""
    radio = page.select_one("input[type=radio][checked]")
    fields = page.select("input:not([type=radio], [type=hidden])")
    selects = page.select("select")
    return {
        "profile": radio and radio["value"],
        **{str(field["name"]).partition("--")[2]: field.get("value") for field in fields},
        **{
            str(select["name"]).partition("--")[2]: option["value"]
            for select in selects
            for option in select.select("option[selected]")
        },
    }


@pytest.mark.parametrize(("document", "words"), GETS.values(), ids=GETS.keys())
def test_a_profile_says_what_one_gets(document: Mapping[str, object], words: tuple[str, ...]) -> None:
    """GPUs with their memory where known, cores, memory and time; ranges where there is a choice."""
    assert gets(document, cluster(node("n1", "gpu:p100:4"))) == words


def test_a_profile_says_what_slurm_gives_for_all_of_its_choices() -> None:
    """Two cores and 4 GiB are as requested, and 32 GiB take eight (MaxMemPerCPU)."""
    choices = {"a": {"slurm": {"memory": "4G"}}, "b": {"slurm": {"memory": "32G"}}}
    document = {"slurm": {"cpus": 2}, "profile_options": {"m": {"choices": choices}}}
    limited = cluster(node("n1", memory_mib=64000), max_memory_per_cpu_mib=4096)

    assert gets(document, limited) == ("2 to 8 cores", "4 to 32 GiB memory")


@pytest.mark.parametrize(
    ("per_core", "words"), [(1, "8 to 16 cores"), (2, "8 to 16 CPUs (4 to 8 cores)"), (0, "8 to 16 CPUs")]
)
def test_cpus_that_are_threads_are_not_called_cores(per_core: int, words: str) -> None:
    """Slurm gives four cores for eight CPUs where two hardware threads share a core."""
    cpus = {"range": {"min": 8, "max": 16, "sets": "slurm.cpus"}}
    document = {"slurm": {"cpus": 8}, "profile_options": {"cpus": cpus}}

    assert gets(document, cluster(node("n1", cpus=32, cpus_per_core=per_core)) if per_core else None) == (words,)


ENDED = "may be ended at any time for a job with higher priority"


@pytest.mark.parametrize(
    ("preemption", "changes", "words"),
    [
        ("partition", {"preemptable": True}, (ENDED,)),
        ("partition", {"suspendable": True}, ("may be paused at any time for a job with higher priority",)),
        ("partition", {"preemptable": True, "priority_tier": 10}, ()),
        ("partition", {}, ()),
        ("qos", {"preemptable": True}, ()),
        ("qos", {"preemptable": True, "qos": "Scavenger"}, (ENDED,)),
        ("qos", {"preemptable": True, "qos": "normal"}, ()),
        ("", {"preemptable": True}, ()),
    ],
)
def test_a_profile_says_that_others_may_preempt_its_jobs(
    preemption: Any, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Those of a partition with a higher PriorityTier that has the same nodes, or of a QOS that preempts its own."""
    qos = changes.get("qos")
    snapshot = cluster(node("n1", "gpu:p100:4"), **{name: value for name, value in changes.items() if name != "qos"})
    owners = Partition("owners", nodes=("n1",), priority_tier=10)
    elsewhere = Partition("elsewhere", nodes=("n2",), priority_tier=100)
    snapshot = replace(
        snapshot,
        partitions=(*snapshot.partitions, owners, elsewhere),
        config=SlurmConfig(preemption=preemption),
        preempted_qos={"normal": frozenset({"scavenger"}), "scavenger": frozenset()},
    )

    assert gets({"slurm": {"cpus": 1, "qos": qos}}, snapshot) == ("1 core", *words)


def test_what_the_site_gives_where_the_profile_says_nothing() -> None:
    """The job's resources, with the site's defaults where the profile does not replace them."""
    site = Resources.model_validate({"gpus": 1, "gpu_type": "k80", "cpus": 2, "memory": "8G", "time": "1:00:00"})
    profiles = parse_profiles(
        [
            {"display_name": "As the site says"},
            {"display_name": "Shares", "slurm": {"shards": 2, "memory": None}},
            {"display_name": "No GPU", "slurm": {"gpus": 0, "cpus": 4}},
        ]
    )
    statuses = profile_statuses(
        profiles, username="ann", groups=(), clusters={"": ClusterNow(None)}, now=NOW, defaults={"": site}
    )

    assert [offer.usual.parts for offer in offers(statuses, FilledIn(), base_url="/hub/")] == [
        ("1 \N{MULTIPLICATION SIGN} K80, 12 GB", "2 CPUs", "8 GiB memory", "1 h"),
        ("2 GPU shards", "2 CPUs", "1 h"),
        ("4 CPUs", "8 GiB memory", "1 h"),
    ]


def test_the_form_has_kubespawners_field_names_and_the_defaults() -> None:
    """A radio button for each profile, the option's bounds at its field, and the first profile selected."""
    page = form(FilledIn())
    number = page.select_one("[name=profile-option-k80--gpus]")

    assert held(page) == {"profile": "k80", "gpus": "1", "image": "a", "image--unlisted-choice": ""}
    assert number is not None
    assert (number["min"], number["max"], number["step"]) == ("1", "4", "1")


NOTES = {
    "cores and memory": ({"cpus": 4, "memory": "8G"}, ["gpus"], "cores and memory stay the same"),
    "cores alone": ({"cpus": 4}, ["gpus"], "the cores stay the same"),
    "cores that another option sets": ({"cpus": 4, "memory": "8G"}, ["gpus", "cpus"], "the memory stays the same"),
    "all of the node's memory": ({"memory": 0}, ["gpus"], ""),
    "another number": ({"cpus": 4}, ["cpus"], ""),
}


@pytest.mark.parametrize(("slurm", "sets", "note"), NOTES.values(), ids=NOTES.keys())
def test_a_number_of_gpus_says_what_does_not_grow_with_it(slurm: dict[str, object], sets: list[str], note: str) -> None:
    """Two GPUs do not bring more cores, unless an option does."""
    options = {name: {"range": {"min": 1, "max": 4, "default": 1, "sets": f"slurm.{name}"}} for name in sets}
    document = {"display_name": "K80", "slurm": {"gpus": 1, **slurm}, "profile_options": options}
    [profile] = parse_profiles([document])

    assert option_fields(profile, {})[0].kept == note


def test_what_is_offered_and_what_is_not() -> None:
    """Profiles that can never run or begin later say so and are disabled; others' and past ones are left out."""
    page = form(FilledIn())
    shown = {
        str(radio["value"]): " ".join(part.get_text().strip() for part in box.select(".gs-about > strong"))
        for box in page.select(".gs-choice")
        for radio in box.select("input[type=radio]")
    }

    assert shown == {
        "k80": "",
        "bold": "",
        "week": "7 days is more than the limit of 24 h.",
        "spring": "Not yet: it is available from 21 Mar 2026.",
    }
    assert [radio["value"] for radio in page.select("input[type=radio][disabled]")] == ["week", "spring"]


def test_an_availability_has_its_age() -> None:
    """It stands once, at the head of the column."""
    page = form(FilledIn())
    head, line = page.select_one(".gs-columns > :last-child"), page.select_one(".gs-when > .now")

    assert head is not None
    assert line is not None
    assert " ".join(head.get_text(" ").split()) == "Starts checked 20 s ago"
    assert line.get_text() == "Starts now, 4 of 4 K80 free."


def test_while_slurm_is_silent_the_form_says_of_when_it_is() -> None:
    """With the time of the snapshot; before the first one there is nothing to be dated."""

    def notice(silence: Silence | None) -> str | None:
        html = form_html([], forecast=ClusterForecast({}, now=NOW.timestamp(), silence=silence))
        shown = BeautifulSoup(html, "html.parser").select_one("#gpuspawner-silent:not([hidden])")
        return shown.get_text() if shown is not None else None

    at, when = NOW.timestamp(), clock(NOW.timestamp())
    silences = [None, *(Silence(*silence) for silence in (({}, at), ({}, None), ({"cedar": at}, at), (BOTH, None)))]
    assert [notice(silence) for silence in silences] == [
        None,
        f"Slurm is not responding at the moment. This is as of {when}. {STILL}",
        f"Slurm has not responded to this hub yet. {STILL}",
        f"Slurm on cedar is not responding at the moment. What is shown of it is as of {when}. {STILL_THERE}",
        f"Slurm on juniper and cedar has not responded to this hub yet. {STILL_THERE}",
    ]


BOTH = {"juniper": None, "cedar": None}
SILENCES = {
    "the only cluster": ({"": True}, {"": CLUSTER}, Silence({}, CLUSTER.taken_at)),
    "the only cluster, from the start": ({"": True}, {"": None}, Silence({}, None)),
    "none": ({"juniper": False, "cedar": False}, {"juniper": CLUSTER, "cedar": CLUSTER}, None),
    "one of two": (
        {"juniper": False, "cedar": True},
        {"juniper": CLUSTER, "cedar": CLUSTER},
        Silence({"cedar": CLUSTER.taken_at}, CLUSTER.taken_at),
    ),
    "both, one from the start": (
        {"juniper": True, "cedar": True},
        {"juniper": CLUSTER, "cedar": None},
        Silence({"juniper": CLUSTER.taken_at, "cedar": None}, CLUSTER.taken_at),
    ),
}


@pytest.mark.parametrize(("silent", "snapshots", "silence"), SILENCES.values(), ids=SILENCES)
def test_a_cluster_that_is_silent_is_named_where_there_are_several(
    silent: dict[str, bool], snapshots: dict[str, Any], silence: Silence | None
) -> None:
    """With the time of its own last answer; the only cluster of a hub has no name."""
    connections: Any = {name: SimpleNamespace(silent=is_silent) for name, is_silent in silent.items()}

    assert silence_of(Site(connections), snapshots, CLUSTER.taken_at) == silence


AGES: dict[str, tuple[bool, float, bool]] = {
    "it has just answered": (False, 0.0, True),
    "as long ago as a page lets it be": (False, 30.0, True),
    "its answer is older, and the next one is not late yet": (False, 31.0, False),
    "its answer is from yesterday": (False, 86400.0, False),
    "it is known not to respond": (True, 4.0, False),
}


@pytest.mark.parametrize(("silent", "age", "responds"), AGES.values(), ids=AGES)
def test_nothing_starts_now_by_an_answer_that_is_older_than_a_page_lets_it_be(
    silent: bool, age: float, responds: bool
) -> None:
    """Neither on the cluster nor by a choice of an option; the other cluster is as ever, and the notice names one."""
    connections: Any = {"juniper": SimpleNamespace(silent=False), "cedar": SimpleNamespace(silent=silent)}
    now = CLUSTER.taken_at + age
    site, snapshots = Site(connections), {"juniper": replace(CLUSTER, taken_at=now), "cedar": CLUSTER}
    clusters = {
        name: ClusterNow(snapshot, responds=name not in site.silent(snapshots, now))
        for name, snapshot in snapshots.items()
    }
    options = {"gpus": {"display_name": "GPUs", "choices": {"one": {"display_name": "1", "slurm": {"gpus": 1}}}}}
    profiles = parse_profiles(
        [
            {
                "display_name": name,
                "slug": name,
                "slurm": {"cluster": name, "partition": "gpu", "gpus": 1},
                "profile_options": options,
            }
            for name in clusters
        ]
    )
    defaults = {name: Resources() for name in clusters}
    moment = datetime.fromtimestamp(now).astimezone()
    statuses = profile_statuses(profiles, username="ann", groups=(), clusters=clusters, now=moment, defaults=defaults)
    chances = {status.profile.slug: {status.availability, *status.choices["gpus"].values()} for status in statuses}
    silence = silence_of(site, snapshots, now)

    assert {name: {answer.chance for answer in answers if answer} for name, answers in chances.items()} == {
        "juniper": {Chance.NOW},
        "cedar": {Chance.NOW if responds else Chance.UNKNOWN},
    }
    assert silence == (None if responds else Silence({"cedar": CLUSTER.taken_at}, CLUSTER.taken_at))


def test_profiles_of_another_cluster_are_judged_while_one_is_silent() -> None:
    """Its own start is not known; the other's is as ever, though partition and nodes have the same names."""
    profiles = parse_profiles(
        [
            {"display_name": name, "slug": name, "slurm": {"cluster": name, "partition": "gpu", "gpus": 1}}
            for name in ("juniper", "cedar")
        ]
    )
    clusters = {"juniper": ClusterNow(CLUSTER), "cedar": ClusterNow(None)}
    defaults = {name: Resources() for name in clusters}
    statuses = profile_statuses(profiles, username="ann", groups=(), clusters=clusters, now=NOW, defaults=defaults)

    assert [status.availability.chance for status in statuses if status.availability] == [Chance.NOW, Chance.UNKNOWN]


def test_without_slurm_everything_can_be_chosen() -> None:
    """Unknown availability disables nothing."""
    page = form(FilledIn(), snapshot=None)

    assert [radio["value"] for radio in page.select("input[type=radio]:not([disabled])")] == ["k80", "bold", "week"]


def test_the_last_choice_is_chosen_again() -> None:
    """Profile, number and free text are filled in again."""
    filled_in = of_the_last_time({"profile": "k80", "gpus": 3, "image": "my/image"}, check)

    assert held(form(filled_in)) == {
        "profile": "k80",
        "gpus": "3",
        "image": "unlisted-choice",
        "image--unlisted-choice": "my/image",
    }


def test_a_last_choice_that_is_gone_falls_back_with_a_note() -> None:
    """An invalid option is reset to its default; an invalid profile resets all options."""
    narrower = of_the_last_time({"profile": "k80", "gpus": 9, "image": "b"}, check)
    gone = of_the_last_time({"profile": "winter", "gpus": 2}, check)

    assert narrower == FilledIn(
        "k80",
        {"image": "b"},
        note="Your last choice is no longer available. GPUs: 9 is not allowed: it must be a number from 1 to 4. "
        "The form shows the defaults instead.",
    )
    assert gone == FilledIn(
        note="Your last choice is no longer available. You cannot use Winter now: it was available "
        'until 31 Jan 2026. You can choose: One K80, <b>Bold</b> & "quoted", A week. The form shows the defaults '
        "instead."
    )


def test_a_link_fills_the_form_in() -> None:
    """With short names and with KubeSpawner's; a note says that nothing has been started."""
    short = of_a_link({"profile": ["k80"], "gpus": ["2"]}, check)
    long = of_a_link({"profile": ["k80"], "profile-option-k80--gpus": ["2"]}, check)

    assert short == long
    assert held(form(short))["gpus"] == "2"
    assert short.note.startswith("This link has filled in the form.")


IMPOSSIBLE: dict[str, object] = {"slurm": {"partition": "gpu", "gpus": 9}}
GPUS_OPTION = {"gpus": {"range": {"min": 1, "max": 16, "sets": "slurm.gpus"}}}
PARTITION_OPTION = {"where": {"choices": {"a": {}, "b": {"slurm": {"partition": "gpu", "gpus": 1}}}}}
LINKED_TO: dict[str, tuple[dict[str, object], dict[str, list[str]], str, str | None]] = {
    "more GPUs than a node has": (
        IMPOSSIBLE,
        {},
        "Big cannot be started: 9 GPUs are more than the 4 of a node.",
        None,
    ),
    "a partition that is not there": (
        {"slurm": {"partition": "gone"}},
        {},
        "Big cannot be started: there is no partition gone (available: gpu).",
        None,
    ),
    "a number that another value could mend": (
        {"slurm": {"partition": "gpu", "gpus": 1}, "profile_options": GPUS_OPTION},
        {"gpus": ["9"]},
        "9 GPUs are more than the 4 of a node.",
        "big",
    ),
    "a default that another partition could mend": (
        {**IMPOSSIBLE, "profile_options": PARTITION_OPTION},
        {},
        "9 GPUs are more than the 4 of a node.",
        "big",
    ),
}


@pytest.mark.parametrize(("document", "fields", "fault", "selected"), LINKED_TO.values(), ids=LINKED_TO.keys())
def test_a_link_to_what_can_never_start_says_why(
    document: dict[str, object], fields: dict[str, list[str]], fault: str, selected: str | None
) -> None:
    """No other profile is selected in its place; it stays selected itself where an option could change that."""
    profiles = parse_profiles([*DOCUMENTS[:1], {"display_name": "Big", "slug": "big", **document}])
    by_link = of_a_link({"profile": ["big"], **fields}, lambda _: None)
    choice = {"profile": "big", **{name: values[0] for name, values in fields.items()}}
    statuses = profile_statuses(
        profiles, username="ann", groups=(), clusters={"": ClusterNow(CLUSTER)}, now=NOW, choice=choice
    )
    filled_in = filled_in_with_fault(statuses, by_link, linked=True)
    shown = offers(statuses, filled_in, base_url="/hub/")

    assert (filled_in.fault, filled_in.note) == (fault, "")
    assert [offer.profile.slug for offer in shown if offer.checked] == ([selected] if selected else [])


def test_a_last_choice_that_can_never_start_falls_back_with_a_note() -> None:
    """The cluster has changed: the reason stands in the note, and the form shows the default profile."""
    profiles = parse_profiles([*DOCUMENTS[:1], {"display_name": "Big", "slug": "big", **IMPOSSIBLE}])
    statuses = profile_statuses(profiles, username="ann", groups=(), clusters={"": ClusterNow(CLUSTER)}, now=NOW)

    assert filled_in_with_fault(statuses, FilledIn("big"), linked=False) == FilledIn(
        note="Your last choice is no longer available. 9 GPUs are more than the 4 of a node. The form "
        "shows the defaults instead."
    )


FAULTS = {
    "a number": ({"profile": ["k80"], "gpus": ["9"]}, "profile-option-k80--gpus", {"gpus": "9"}),
    "a text": ({"profile": ["k80"], "image": ["A B"]}, "profile-option-k80--image", {"image--unlisted-choice": "A B"}),
    "a profile": ({"profile": ["nope"]}, "", {"profile": None}),
    "somebody else's": ({"profile": ["staff"]}, "", {"profile": None}),
    "no profile": ({"profile": [""]}, "", {"profile": None}),
    "twice": ({"profile": ["k80"], "gpus": ["2", "3"]}, "profile-option-k80--gpus", {"gpus": "2"}),
}


@pytest.mark.parametrize(("fields", "at", "values"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_told_at_its_field_and_the_values_are_kept(
    fields: Mapping[str, list[str]], at: str, values: Mapping[str, str]
) -> None:
    """A link and a refused click give the same form."""
    by_link = of_a_link(fields, check)
    by_click = of_a_form(fields, None if by_link.field == "gpus" and len(fields["gpus"]) > 1 else _refusal(fields))
    statuses = profile_statuses(PROFILES, username="ann", groups=(), clusters={"": ClusterNow(CLUSTER)}, now=NOW)
    shown = offers(statuses, by_link, base_url="/hub/")
    page = form(by_link)
    fault = page.find(id=f"{at}-fault")

    assert by_link == by_click
    assert fault_at(shown, by_link) == at
    assert values.items() <= held(page).items()
    assert fault is None or fault.get_text() == by_link.fault
    assert [field["id"] for field in page.select("[aria-invalid=true]") if field.get("id")] == ([at] if fault else [])


def _refusal(fields: Mapping[str, list[str]]) -> Exception | None:
    try:
        check({name: values[0] for name, values in fields.items()})
    except Exception as error:  # noqa: BLE001 - it belongs to this one file
        return error
    return None


def test_the_link_of_a_choice_carries_what_stands_in_the_form() -> None:
    """Values are quoted; a profile's defaults are left out."""
    page = form(of_the_last_time({"profile": "k80", "image": "my/image"}, check))

    assert [link["href"] for link in page.select(".gpuspawner-link")] == [
        "/hub/spawn?opt-profile=k80&opt-image=my%2Fimage",
        "/hub/spawn?opt-profile=bold",
    ]


def test_what_is_filled_in_is_what_the_card_tells() -> None:
    """GPUs of the link, not the range; the other profiles keep theirs."""
    linked = of_a_link({"profile": ["k80"], "gpus": ["2"]}, check)
    statuses = profile_statuses(
        PROFILES,
        username="ann",
        groups=(),
        clusters={"": ClusterNow(CLUSTER)},
        now=NOW,
        choice={"profile": "k80", "gpus": "2"},
    )

    assert [offer.gets.parts for offer in offers(statuses, linked, base_url="/hub/")][:1] == [
        ("2 \N{MULTIPLICATION SIGN} K80, 12 GB", "4 cores", "8 GiB memory", "1 h")
    ]


REFUSED: dict[str, tuple[GPUSpawnerError, str, str]] = {
    "by Slurm, for a field of an option": (
        SubmitRejected("x", for_user="4 GPUs are more than the 2 of a node.", field="slurm.gpus"),
        "never",
        "This choice cannot start.",
    ),
    "by Slurm, for something else": (
        SubmitRejected("x", for_user="There is no such account."),
        "never",
        "There is no such account.",
    ),
    "by a hub that is not set up": (
        ConfigError("sudo asks for a password."),
        "never",
        "The hub cannot start this server: it is not set up correctly.",
    ),
    "not at all: Slurm is silent": (
        SlurmUnavailable("x"),
        "unknown",
        "Slurm is not responding at the moment.",
    ),
}


@pytest.mark.parametrize(("error", "mark", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_a_card_is_never_green_after_a_refusal(error: GPUSpawnerError, mark: str, text: str) -> None:
    """Its mark and its sentence are those of the refusal; the other cards keep theirs."""
    page = form(of_a_form({"profile": ["", "k80"], "profile-option-k80--gpus": ["4"]}, error))
    lines = {str(line["id"]): line for line in page.select(".gs-when > .gs-state")}
    line = lines["profile-k80-state"]

    assert (line["class"], " ".join(line.get_text().split())) == (["gs-state", mark], text)
    assert lines["profile-bold-state"]["class"] == ["gs-state", "now"]


def test_start_is_off_where_nothing_can_be_started() -> None:
    """No profile at all, or none that is open; not where Slurm is silent."""
    statuses = profile_statuses(PROFILES, username="ann", groups=(), clusters={"": ClusterNow(CLUSTER)}, now=NOW)
    shown = offers(statuses, FilledIn(), base_url="/hub/")
    closed = [offer for offer in shown if offer.closed]

    assert [nothing_to_start(form_offers, "the help desk") for form_offers in ([], closed, shown)] == [
        "No profile is available to you at the moment. Please contact the help desk.",
        "None of these can be started at the moment.",
        "",
    ]


async def test_fifty_who_open_the_page_at_once_ask_slurm_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them see the availability."""
    questions = []

    async def snapshot(_client: SlurmClient) -> ClusterSnapshot:
        questions.append("a question")
        await asyncio.sleep(0)
        return replace(CLUSTER, taken_at=time.time())

    monkeypatch.setattr(SlurmClient, "snapshot", snapshot)
    people = [SimpleNamespace(name=f"user{number}", groups=[], spawners={}, settings=SETTINGS) for number in range(50)]
    pages = await asyncio.gather(
        *(render_form(GPUProfilesSpawner(profiles=DOCUMENTS, user=person, config=Config())) for person in people)
    )

    assert questions == ["a question"]
    assert [page.count("Starts now, 4 of 4 K80 free.") for page in pages] == [1] * 50


def test_a_profiles_words_are_text_and_no_html() -> None:
    """Markup in names and descriptions is shown as text."""
    page = form(FilledIn("bold"))

    assert page.select("script:not([type='application/json']), b") == []
    assert page.select_one("label[for=profile-bold]").text == '<b>Bold</b> & "quoted"'  # type: ignore[union-attr]
