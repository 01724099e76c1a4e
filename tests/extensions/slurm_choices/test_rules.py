"""Which combinations Slurm would refuse, and what follows for the options of a profile."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.slurm_choices import words
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import Accounting, Association, Qos
from jupyterhub_gpuspawner.extensions.slurm_choices.job_size import requested_by
from jupyterhub_gpuspawner.extensions.slurm_choices.personal import (
    TRIED_AT_MOST,
    Known,
    naming_of,
    refused_choices,
    with_choices,
)
from jupyterhub_gpuspawner.extensions.slurm_choices.rules import Combination, Person, Rules
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.accounting import TRES_OF_A_JOB, WALL, Limits
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Partition, Reservation, SlurmConfig
from tests.snapshots import NOW

ENFORCED = SlurmConfig(accounting_enforced=frozenset({"associations", "limits", "qos"}))
ADA = Person(
    "ada",
    (
        Association("climate", "", ("normal", "long"), "normal"),
        Association("physics", "batch", ("normal",)),
        Association("physics", "gpu", ("normal", "fast")),
    ),
    "climate",
    {"staff": False, "lab": True},
)
BATCH = Partition("batch", default=True)
CLUSTER = ClusterSnapshot(
    partitions=(
        BATCH,
        Partition("gpu", deny_accounts=("climate",)),
        Partition("staff", allow_groups=("staff",)),
        Partition("lab", allow_groups=("staff", "lab")),
        Partition("unknown", allow_groups=("ldap",)),
        Partition("old", state="INACTIVE"),
        Partition("drained", state="DRAIN"),
        Partition("down", state="DOWN"),
        Partition("lesson", needs_reservation=True),
        Partition("few", allow_accounts=("Climate",), deny_accounts=("climate",)),
        Partition("others", allow_accounts=("dept",)),
        Partition("quick", allow_qos=("long",)),
        Partition("slow", deny_qos=("long",)),
        Partition("hidden", hidden=True),
        Partition("odd", state="INACTIVE", unread=("MaxTime",)),
    ),
    reservations=(
        Reservation("mine", NOW, NOW + 60, users=("ada",)),
        Reservation("both", NOW, NOW + 60, users=("ada",), accounts=("physics",)),
        Reservation("not-me", NOW, NOW + 60, users=("-ada",), accounts=("climate",)),
        Reservation("all-but-bob", NOW, NOW + 60, users=("-bob",)),
        Reservation("of-lab", NOW, NOW + 60, groups=("lab",)),
        Reservation("of-staff", NOW, NOW + 60, groups=("staff",)),
        Reservation("of-ldap", NOW, NOW + 60, groups=("ldap",)),
        Reservation("over", NOW - 60, NOW - 1, users=("ada",)),
        Reservation("daily", NOW - 60, NOW - 1, users=("ada",), flags=frozenset({"DAILY"})),
        Reservation("in-gpu", NOW, NOW + 60, users=("ada",), allowed_partitions=("gpu",)),
        Reservation("in-long", NOW, NOW + 60, users=("ada",), qos=("long",)),
        Reservation("maintenance", NOW, NOW + 60, flags=frozenset({"MAINT"})),
    ),
    config=SlurmConfig(version="22.05.8"),
)
ACCOUNTING = Accounting(config=ENFORCED, qos={"fast": Qos(frozenset({"requiresreservation"}))})
RULES = Rules(ADA, ACCOUNTING, CLUSTER, NOW)

REFUSALS: dict[str, tuple[dict[str, str], str]] = {
    "nothing named": ({}, ""),
    "the default account and QOS": ({"account": "climate", "qos": "normal"}, ""),
    "accounts are compared without regard to case": ({"account": "Climate"}, ""),
    "an account of somebody else": ({"account": "secret"}, "account secret is not one of yours"),
    "an account for other partitions": (
        {"account": "physics", "partition": "down"},
        "account physics cannot be used in partition down",
    ),
    "a QOS of another account": ({"qos": "fast"}, "account climate does not have QOS fast"),
    "a QOS of the account in another partition": (
        {"account": "physics", "partition": "batch", "qos": "fast"},
        "account physics does not have QOS fast in partition batch",
    ),
    "DenyAccounts": ({"partition": "gpu"}, "partition gpu is not open to account climate"),
    "AllowAccounts wins over DenyAccounts": ({"partition": "few"}, ""),
    "AllowAccounts": ({"partition": "others"}, "partition others is not open to account climate"),
    "AllowQos": ({"partition": "quick"}, "partition quick is not open to QOS normal"),
    "AllowQos that lists it": ({"partition": "quick", "qos": "long"}, ""),
    "DenyQos": ({"partition": "slow", "qos": "long"}, "partition slow is not open to QOS long"),
    "AllowGroups": ({"partition": "staff"}, "partition staff is for members of staff"),
    "AllowGroups with one of the user's": ({"partition": "lab"}, ""),
    "AllowGroups of which nothing is known": ({"partition": "unknown"}, ""),
    "INACTIVE": ({"partition": "old"}, "partition old accepts no jobs at the moment"),
    "DRAIN": ({"partition": "drained"}, "partition drained accepts no jobs at the moment"),
    "DOWN accepts": ({"partition": "down"}, ""),
    "a partition that was not understood": ({"partition": "odd"}, ""),
    "a partition that is not there": ({"partition": "lost"}, ""),
    "one of two partitions": ({"partition": "gpu,batch"}, ""),
    "neither of two": ({"partition": "gpu,staff"}, "partition gpu is not open to account climate"),
    "ReqResv": ({"partition": "lesson"}, "partition lesson needs a reservation"),
    "ReqResv with one": ({"partition": "lesson", "reservation": "mine"}, ""),
    "RequiresReservation": (
        {"account": "physics", "partition": "gpu", "qos": "fast"},
        "QOS fast needs a reservation",
    ),
    "RequiresReservation with one": (
        {"account": "physics", "partition": "gpu", "qos": "fast", "reservation": "mine"},
        "",
    ),
    "a reservation for users and accounts admits who is in both": (
        {"reservation": "both"},
        "reservation both is not for account climate",
    ),
    "a reservation that excludes the user": ({"reservation": "not-me"}, "reservation not-me is for other users"),
    "a reservation that excludes others": ({"reservation": "all-but-bob"}, ""),
    "a reservation of a group": ({"reservation": "of-lab"}, ""),
    "a reservation of another group": (
        {"reservation": "of-staff"},
        "reservation of-staff is for members of other groups",
    ),
    "a reservation of a group of which nothing is known": ({"reservation": "of-ldap"}, ""),
    "a reservation that has ended": ({"reservation": "over"}, "reservation over has ended"),
    "a reservation that begins again": ({"reservation": "daily"}, ""),
    "a reservation of a partition": ({"reservation": "in-gpu"}, "reservation in-gpu is for partition gpu"),
    "a reservation of a QOS": (
        {"reservation": "in-long", "qos": "normal"},
        "reservation in-long is not for QOS normal",
    ),
    "a reservation that is not there": ({"reservation": "lost"}, ""),
}


@pytest.mark.parametrize(("job", "expected"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_slurm_would_refuse(job: dict[str, str], expected: str) -> None:
    """With the reason; what is not known is for Slurm to judge."""
    assert RULES.refusal(Combination(**job)) == expected


NOT_ENFORCED = replace(RULES, accounting=Accounting(exists=False))
OTHERS: dict[str, tuple[Rules, dict[str, str], str]] = {
    "accounts that are not enforced": (NOT_ENFORCED, {"account": "secret", "partition": "others"}, ""),
    "QOS that are not enforced": (
        replace(RULES, accounting=Accounting(config=SlurmConfig(accounting_enforced=frozenset({"associations"})))),
        {"qos": "fast"},
        "",
    ),
    "associations that are not known": (
        replace(RULES, person=Person("ada", None)),
        {"account": "secret", "qos": "long"},
        "",
    ),
    "no association at all": (
        replace(RULES, person=Person("eve"), contact="the help desk"),
        {},
        "Slurm has no account for you on this cluster, so it would refuse the job; ask the help desk",
    ),
    "an account below one that is listed, from 24.11 on": (
        replace(RULES, snapshot=replace(CLUSTER, config=SlurmConfig(version="24.11.5"))),
        {"partition": "others"},
        "",
    ),
    "the same where the version is not known": (
        replace(RULES, snapshot=replace(CLUSTER, config=SlurmConfig())),
        {"partition": "others"},
        "",
    ),
    "AllowQos and the only QOS of an account": (
        replace(RULES, person=Person("ada", (Association("b", "", ("single",)),), "b")),
        {"partition": "quick"},
        "partition quick is not open to QOS single",
    ),
    "a cluster that has not answered": (replace(RULES, snapshot=ClusterSnapshot()), {"partition": "gpu"}, ""),
}


@pytest.mark.parametrize(("rules", "job", "expected"), OTHERS.values(), ids=OTHERS.keys())
def test_other_clusters_and_people(rules: Rules, job: dict[str, str], expected: str) -> None:
    """Nothing is refused that Slurm would take."""
    assert rules.refusal(Combination(**job)) == expected


def limits(minutes: float | None = None, **tres: float) -> Limits:
    """Of one job; ``gpu`` and ``a100`` are GPUs."""
    names = {"gpu": "gres/gpu", "a100": "gres/gpu:a100"}
    amounts = {(TRES_OF_A_JOB, names.get(name, name)): amount for name, amount in tres.items()}
    return {**({} if minutes is None else {WALL: minutes}), **amounts}


LIMITED = Rules(
    Person(
        "ada",
        (
            Association("a", "", ("normal", "long", "over"), "normal", limits(120, gpu=1, cpu=8, mem=4096)),
            Association("b", "", ("single",)),
            Association("c", "", ("normal", "tiny")),
        ),
        "a",
    ),
    Accounting(
        qos={
            "normal": Qos(),
            "tiny": Qos(limits=limits(cpu=1)),
            "single": Qos(limits=limits(cpu=2)),
            "long": Qos(limits=limits(1440)),
            "over": Qos(frozenset({"overpartqos"}), limits(gpu=4)),
            "of-part": Qos(limits=limits(60, gpu=2, a100=1)),
        },
        root_qos="tiny",
        config=ENFORCED,
    ),
    ClusterSnapshot(partitions=(BATCH, Partition("gpu", parameters={"QoS": "of-part"}))),
    NOW,
)
BEYOND: dict[str, tuple[Limits, dict[str, str], str]] = {
    "within all": (limits(120, cpu=8, gpu=1, mem=4096, node=1), {}, ""),
    "longer than the account's": (limits(121), {}, "account a allows at most 2 h"),
    "UNLIMITED": (limits(inf), {}, "account a allows at most 2 h"),
    "a time that is not known": (limits(), {}, ""),
    "a QOS that allows more": (limits(121), {"qos": "long"}, ""),
    "longer than that QOS": (limits(1500), {"qos": "long"}, "QOS long allows at most 24 h"),
    "GPUs": (limits(1, gpu=2), {"qos": "long"}, "account a allows at most 1 GPU"),
    "CPUs": (limits(1, cpu=9), {}, "account a allows at most 8 CPUs"),
    "memory": (limits(1, mem=4097), {}, "account a allows at most 4 GiB"),
    "a partition's QOS first": (
        limits(61),
        {"partition": "gpu", "qos": "long"},
        "partition gpu allows at most 1 h",
    ),
    "a partition's QOS, GPUs": (limits(1, gpu=2), {"partition": "gpu"}, ""),
    "a partition's QOS, GPUs of a type": (
        limits(1, gpu=2, a100=2),
        {"partition": "gpu"},
        "partition gpu allows at most 1 a100 GPU",
    ),
    "OverPartQOS": (limits(1, gpu=4), {"partition": "gpu", "qos": "over"}, ""),
    "OverPartQOS leaves what it does not limit": (
        limits(61),
        {"partition": "gpu", "qos": "over"},
        "partition gpu allows at most 1 h",
    ),
    "one of two partitions": (limits(61), {"partition": "gpu,batch"}, ""),
    "root's default QOS, of those that the account has": (
        limits(cpu=2),
        {"account": "c"},
        "QOS tiny allows at most 1 CPU",
    ),
    "the only QOS of an account": (limits(1, cpu=3), {"account": "b"}, "QOS single allows at most 2 CPUs"),
}


@pytest.mark.parametrize(("requested", "job", "expected"), BEYOND.values(), ids=BEYOND.keys())
def test_a_job_beyond_the_limits_of_its_account_and_qos_is_refused(
    requested: Limits, job: dict[str, str], expected: str
) -> None:
    """Slurm would take it, and never start it; the first of partition's QOS, QOS and association that limits counts."""
    combination = Combination(**{"partition": "batch", **job})
    assert replace(LIMITED, requested=requested).refusal(combination) == expected
    associations = SlurmConfig(accounting_enforced=frozenset({"associations", "qos"}))
    not_enforced = replace(LIMITED.accounting, config=associations)
    assert replace(LIMITED, requested=requested, accounting=not_enforced).refusal(combination) == ""


REQUESTS: dict[str, tuple[dict[str, Any], Limits]] = {
    "nothing": ({}, limits(node=1)),
    "two nodes": (
        {"nodes": 2, "gpus": 2, "gpu_type": "a100", "cpus": 8, "memory": "4G", "time": "1:00:00"},
        limits(60, node=2, cpu=16, mem=8192, gpu=4, a100=4),
    ),
    "no limit of time": ({"time": "UNLIMITED", "shards": 2}, limits(inf, node=1)),
    "all memory of a node": ({"memory": 0}, limits(node=1)),
}


@pytest.mark.parametrize(("slurm", "requested"), REQUESTS.values(), ids=REQUESTS.keys())
def test_what_a_job_requests(slurm: dict[str, Any], requested: Limits) -> None:
    """On all of its nodes together, as limits count it."""
    assert requested_by(Resources.model_validate(slurm)) == requested


# The options of a profile.


def profile_with(**options: Any) -> Profile:
    """A profile with these options."""
    return parse_profiles([{"display_name": "One", "slug": "one", "profile_options": options}])[0]


def shown(source: dict[str, Any], known: Known) -> tuple[list[str], str | None, str] | None:
    """The values, the one that is selected, and the description of an option; None where there is no such option."""
    profile = with_choices(profile_with(own={"choices_from": source}), known)
    option = profile.profile_options.get("own")
    if option is None:
        return None
    initial = option.initial(profile.slurm)
    return list(option.choices), None if initial is None else str(initial), option.description


KNOWN = Known({"": RULES})
SILENT = Known({})
LISTS: dict[str, tuple[dict[str, Any], Known, tuple[list[str], str | None, str] | None]] = {
    "accounts": ({"slurm": "accounts"}, KNOWN, (["climate", "physics"], "climate", "")),
    "accounts, another one at first": (
        {"slurm": "accounts", "default": "physics"},
        KNOWN,
        (["climate", "physics"], "physics", ""),
    ),
    "accounts, at first one that the user does not have": (
        {"slurm": "accounts", "default": "lost"},
        KNOWN,
        (["climate", "physics"], "climate", ""),
    ),
    "some accounts": ({"slurm": "accounts", "match": "p.*|x"}, KNOWN, (["physics"], "physics", "")),
    "an expression must match the whole name": ({"slurm": "accounts", "match": "p"}, KNOWN, (["(none)"], "(none)", "")),
    "all accounts but some": ({"slurm": "accounts", "except": "cl.*"}, KNOWN, (["physics"], "physics", "")),
    "accounts or none": (
        {"slurm": "accounts", "none": "As usual"},
        KNOWN,
        (["(none)", "climate", "physics"], "(none)", ""),
    ),
    "QOS": ({"slurm": "qos"}, KNOWN, (["(none)", "fast", "long", "normal"], "(none)", "")),
    "partitions": (
        {"slurm": "partitions"},
        KNOWN,
        (
            ["batch", "gpu", "lab", "unknown", "old", "drained", "down", "lesson", "few", "quick", "slow", "odd"],
            "batch",
            "",
        ),
    ),
    "reservations": (
        {"slurm": "reservations"},
        KNOWN,
        (
            ["(none)", "mine", "both", "all-but-bob", "of-lab", "of-ldap", "daily", "in-gpu", "in-long"],
            "(none)",
            "",
        ),
    ),
    "the last known ones": (
        {"slurm": "accounts"},
        Known({"": RULES}, age=720.0),
        (["climate", "physics"], "climate", "Slurm's accounting is not responding: this list is 12 min old."),
    ),
    "the last known ones while slurmctld is silent": (
        {"slurm": "accounts"},
        Known({"": RULES}, age=720.0, silent=True),
        (["climate", "physics"], "climate", "Slurm is not responding: this list is 12 min old."),
    ),
    "slurmctld is silent from the beginning": (
        {"slurm": "qos"},
        Known({}, silent=True),
        (
            [],
            None,
            "Slurm is not responding, so this hub does not know which you have. You can enter a name; Slurm decides "
            "when the server is started.",
        ),
    ),
    "partitions while slurmdbd is silent": (
        {"slurm": "partitions", "match": "gpu"},
        Known({"": RULES}, age=720.0),
        (["gpu"], "gpu", ""),
    ),
    "silence from the beginning": (
        {"slurm": "accounts"},
        SILENT,
        (
            [],
            None,
            "Slurm's accounting is not responding, so this hub does not know which you have. You can enter a name; "
            "Slurm decides when the server is started.",
        ),
    ),
    "what the site offers then": (
        {"slurm": "partitions", "otherwise": ["batch", "gpu"]},
        SILENT,
        (
            ["batch", "gpu"],
            "batch",
            "Slurm is not responding, so this hub does not know which you have; these are the usual ones, and Slurm "
            "decides when the server is started.",
        ),
    ),
    "what Slurm hides": (
        {"slurm": "qos"},
        Known({"": replace(RULES, person=Person("ada", None))}, hidden=True),
        (
            [],
            None,
            "Slurm does not show this hub which you have. You can enter a name; Slurm decides when the server is "
            "started.",
        ),
    ),
    "reservations that Slurm hides": (
        {"slurm": "reservations"},
        Known({"": replace(RULES, accounting=Accounting(hides=frozenset({"reservations"})))}, hidden=True),
        (
            [],
            None,
            "Slurm does not show this hub which you have. You can enter a name; Slurm decides when the server is "
            "started.",
        ),
    ),
    "a cluster without accounts": ({"slurm": "accounts"}, Known({"": NOT_ENFORCED}, exists=False), None),
    "nobody's accounts": (
        {"slurm": "accounts"},
        Known({"": replace(RULES, person=Person("eve"))}),
        (["(none)"], "(none)", ""),
    ),
    "those of two clusters": (
        {"slurm": "accounts"},
        Known({"a": RULES, "b": replace(RULES, person=Person("ada", (Association("extra"),), "extra"))}),
        (["climate", "physics", "extra"], "climate", ""),
    ),
}


@pytest.mark.parametrize(("source", "known", "expected"), LISTS.values(), ids=LISTS.keys())
def test_what_an_option_offers(source: dict[str, Any], known: Known, expected: Any) -> None:
    """The user's own, with the one that is selected at first, and what the form says below it."""
    assert shown(source, known) == expected


@pytest.mark.parametrize("other", [{"choices": {"a": {}}}, {"range": {"min": 1, "max": 2, "sets": "slurm.cpus"}}])
def test_an_option_lists_names_of_slurm_s_or_its_author_s(other: dict[str, Any]) -> None:
    """Never both."""
    with pytest.raises(ConfigError, match="choices_from takes the place of a range, choices and an unlisted_choice"):
        profile_with(own={"choices_from": {"slurm": "accounts"}, **other})


def refused(rules: Rules, values: dict[str, str], **options: Any) -> dict[str, dict[str, str]]:
    """What is refused in a profile with these options and values."""
    profile = with_choices(profile_with(**options), Known({"": rules}))
    return refused_choices(profile, Combination(), values, replace(rules, naming=naming_of(profile)))


ACCOUNT = {"display_name": "Project", "choices_from": {"slurm": "accounts"}}
PARTITION = {"choices_from": {"slurm": "partitions", "match": "batch|gpu|old"}}
QOS = {"choices_from": {"slurm": "qos", "labels": {"fast": "Express"}}}


def test_an_option_is_judged_by_those_before_it() -> None:
    """Project decides over partition, and both over the QOS; so that no choice is a dead end."""
    old = {"old": "partition old accepts no jobs at the moment"}
    options = {"account": ACCOUNT, "partition": PARTITION, "qos": QOS}

    assert refused(RULES, {"account": "climate", "partition": "batch", "qos": "(none)"}, **options) == {
        "partition": {"gpu": "partition gpu is not open to project climate", **old},
        "qos": {"fast": 'project climate does not have QOS "Express"'},
    }
    assert refused(RULES, {"account": "physics", "partition": "gpu", "qos": "(none)"}, **options) == {
        "partition": {"old": "project physics cannot be used in partition old"},
        "qos": {
            "fast": 'QOS "Express" needs a reservation',
            "long": "project physics does not have QOS long in partition gpu",
        },
    }


def test_a_fixed_partition_excludes_accounts() -> None:
    """And so do the choices of the profile's author, where they name a partition."""
    fixed = {"choices": {"gpu": {"slurm": {"partition": "gpu"}}}}

    assert refused(RULES, {"account": "physics", "where": "gpu"}, account=ACCOUNT, where=fixed) == {
        "account": {"climate": "partition gpu is not open to project climate"}
    }


def test_where_nothing_is_left_the_profile_cannot_be_started() -> None:
    """An expression that leaves out all that a user has does not let them use the default one."""
    left_out = {"choices_from": {"slurm": "accounts", "match": "x"}}

    assert refused(RULES, {"own": "(none)"}, own=left_out) == {
        "own": {"(none)": "none that you have can be used with this profile"}
    }


@pytest.mark.parametrize("kind", ["accounts", "qos", "partitions"])
def test_somebody_without_an_account_reads_whom_to_ask(kind: str) -> None:
    """Rather than that nothing of theirs fits the profile."""
    nobody = replace(RULES, person=Person("eve"), contact="the help desk")

    assert refused(nobody, {"own": "(none)"}, own={"choices_from": {"slurm": kind}}) == {
        "own": {"(none)": words.NO_ACCOUNT.format(contact="the help desk")}
    }


def test_to_name_none_may_be_called_anything() -> None:
    """Also what the form calls a list that leaves a user nothing."""
    named = {"choices_from": {"slurm": "accounts", "none": words.NONE_LEFT}}

    assert refused(RULES, {"own": "(none)"}, own=named) == {}


def test_a_typed_name_is_held_against_the_expressions() -> None:
    """While the list is not known, what the profile leaves out is refused all the same."""
    options = {"own": {"choices_from": {"slurm": "accounts", "except": "test-.*"}}}
    unknown = replace(RULES, person=Person("ada", None))

    assert refused(unknown, {"own": "test-1"}, **options) == {
        "own": {"test-1": "test-1 is not offered with this profile"}
    }
    assert refused(unknown, {"own": "climate"}, **options) == {}


def test_after_a_value_that_is_refused_nothing_is_judged() -> None:
    """What comes after it is not to blame."""
    options = {"account": ACCOUNT, "partition": PARTITION, "qos": QOS}

    assert refused(RULES, {"account": "climate", "partition": "gpu", "qos": "(none)"}, **options) == {
        "partition": {
            "gpu": "partition gpu is not open to project climate",
            "old": "partition old accepts no jobs at the moment",
        },
    }


def test_what_a_form_costs_is_bounded_for_somebody_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staff with hundreds of accounts: the partitions are judged once, and the combinations are limited."""
    tried: list[Combination] = []
    refusal = Rules.refusal

    def counted(rules: Rules, job: Combination) -> str:
        tried.append(job)
        return refusal(rules, job)

    monkeypatch.setattr(Rules, "refusal", counted)
    rows = tuple(Association(f"a{number}", "", tuple(f"q{qos}" for qos in range(20))) for number in range(200))
    partitions = tuple(Partition(f"p{number}", allow_qos=("other",)) for number in range(40))
    snapshot = replace(CLUSTER, partitions=(BATCH, *partitions))
    rules = replace(RULES, person=Person("ada", rows, "a0"), snapshot=snapshot)
    options = {"account": ACCOUNT, "partition": {"choices_from": {"slurm": "partitions"}}, "qos": QOS}
    fixed = {"choices": {f"p{number}": {"slurm": {"partition": f"p{number}"}} for number in range(40)}}
    refused(rules, {"account": "a0", "partition": "batch", "where": "p0", "qos": "(none)"}, **options, where=fixed)

    assert 0 < len(tried) <= TRIED_AT_MOST
