"""Whom the limits of accounting let in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.courses.limits import Admission, JobSize, admit
from jupyterhub_gpuspawner.slurm.accounting import Accounting, Association, Limits, Qos
from tests.snapshots import running

PEOPLE = tuple(f"t{number}" for number in range(1, 9))
EACH = JobSize("gpu", {"cpu": 4, "mem": 8192, "node": 1, "gres/gpu": 1, "gres/gpu:k80": 1}, 7200, account="training")
NONE = Limits()
ENFORCED = frozenset({"associations", "limits", "qos"})


def accounting(
    *,
    training: Limits = NONE,
    dept: Limits = NONE,
    user: dict[str, Any] | None = None,
    qos: tuple[Qos, ...] = (),
    members: tuple[str, ...] = PEOPLE,
    **more: Any,
) -> Accounting:
    """Account ``training`` below ``dept``, with these limits and people."""
    own = {"qos": ("normal", "lesson"), "default_qos": "normal", **(user or {})}
    return Accounting(
        accounts={
            "root": Association("root"),
            "dept": Association("dept", parent="root", limits=dept),
            "training": Association("training", parent="dept", limits=training),
        },
        users=tuple(Association("training", name, **own) for name in members),
        qos={each.name: each for each in (Qos("normal"), *qos)},
        **{"enforced": ENFORCED, "default_accounts": dict.fromkeys(members, "training"), **more},
    )


def gpus(number: int) -> Limits:
    """GrpTRES of so many GPUs."""
    return Limits(group_tres={"gres/gpu": number})


LESSON = Qos("lesson", limits=gpus(5))
ADMISSIONS: dict[str, tuple[Accounting, dict[str, Any], Admission]] = {
    "no limits": (accounting(), {}, Admission(8)),
    "limits are not enforced": (
        accounting(training=gpus(1), enforced=frozenset({"associations"})),
        {},
        Admission(8),
    ),
    "GPUs of the account": (
        accounting(training=gpus(3)),
        {},
        Admission(3, "GrpTRES", ("Account training may use 3 GPUs at once (GrpTRES): 3 of 8 people fit.",)),
    ),
    "GPUs of a type": (
        accounting(training=Limits(group_tres={"gres/gpu:k80": 2, "gres/gpu:a100": 1})),
        {},
        Admission(2, "GrpTRES", ("Account training may use 2 GPUs of type k80 at once (GrpTRES): 2 of 8 people fit.",)),
    ),
    "memory": (
        accounting(training=Limits(group_tres={"mem": 40 * 1024})),
        {},
        Admission(5, "GrpTRES", ("Account training may use 40 GiB of memory at once (GrpTRES): 5 of 8 people fit.",)),
    ),
    "the account above is narrower": (
        accounting(training=gpus(6), dept=Limits(group_jobs=4)),
        {},
        Admission(4, "GrpJobs", ("Account dept may run 4 jobs at once (GrpJobs): 4 of 8 people fit.",)),
    ),
    "jobs that may be submitted": (
        accounting(training=Limits(group_submitted=7)),
        {},
        Admission(
            7,
            "GrpSubmitJobs",
            ("Account training may have 7 jobs pending or running (GrpSubmitJobs): 7 of 8 people fit.",),
        ),
    ),
    "a QOS sets it instead of the account": (
        accounting(training=gpus(3), qos=(LESSON,)),
        {"qos": "lesson"},
        Admission(5, "GrpTRES", ("QOS lesson may use 5 GPUs at once (GrpTRES): 5 of 8 people fit.",)),
    ),
    "the partition's QOS comes first": (
        accounting(qos=(LESSON, Qos("part", limits=gpus(7)))),
        {"qos": "lesson", "partition_qos": "part"},
        Admission(7, "GrpTRES", ("QOS part may use 7 GPUs at once (GrpTRES): 7 of 8 people fit.",)),
    ),
    "unless the job's says otherwise": (
        accounting(qos=(replace(LESSON, flags=frozenset({"OverPartQOS"})), Qos("part", limits=gpus(7)))),
        {"qos": "lesson", "partition_qos": "part"},
        Admission(5, "GrpTRES", ("QOS lesson may use 5 GPUs at once (GrpTRES): 5 of 8 people fit.",)),
    ),
    "jobs of an account in a QOS": (
        accounting(qos=(Qos("lesson", account_jobs=6),)),
        {"qos": "lesson"},
        Admission(
            6,
            "MaxJobsPerAccount",
            ("QOS lesson for account training may run 6 jobs at once (MaxJobsPerAccount): 6 of 8 people fit.",),
        ),
    ),
    "each person has fewer GPUs": (
        accounting(qos=(Qos("lesson", user_tres={"gres/gpu": 1}),)),
        {"qos": "lesson", "tres": {"gres/gpu": 2}},
        Admission(
            0,
            "MaxTRESPerUser",
            ("QOS lesson allows each person 1 GPU (MaxTRESPerUser), and a server requests 2 GPUs: it does not start.",),
        ),
    ),
    "jobs are shorter": (
        accounting(dept=Limits(longest=3600)),
        {},
        Admission(
            0, "MaxWall", ("Account dept limits jobs to 1 h (MaxWall), and servers have 2 h: they do not start.",)
        ),
    ),
    "no jobs at all": (
        accounting(user={"user_jobs": 0}),
        {},
        Admission(0, "MaxJobs", ("Account training allows no jobs (MaxJobs is 0) for t1, t2, t3, t4, t5 and 3 more.",)),
    ),
    "a QOS allows the jobs that the account does not": (
        accounting(user={"user_jobs": 0}, qos=(Qos("lesson", user_jobs=1),)),
        {"qos": "lesson"},
        Admission(8),
    ),
    "minutes are used up": (
        accounting(training=Limits(group_minutes={"gres/gpu": 6000}), used_minutes={"training": {"gres/gpu": 6000}}),
        {},
        Admission(0, "GrpTRESMins", ("Account training has used up its GPU minutes (GrpTRESMins): no job starts.",)),
    ),
    "minutes are left": (
        accounting(training=Limits(group_minutes={"gres/gpu": 6000}), used_minutes={"training": {"gres/gpu": 5700}}),
        {},
        Admission(8),
    ),
    "too few minutes are left, and jobs must be able to end": (
        accounting(
            training=Limits(group_minutes={"gres/gpu": 6000}),
            used_minutes={"training": {"gres/gpu": 5700}},
            enforced=ENFORCED | {"safe"},
        ),
        {},
        Admission(
            2,
            "GrpTRESMins",
            (
                "Account training has 300 GPU minutes left (GrpTRESMins), and each server may use 120: "
                "2 of 8 people fit.",
            ),
        ),
    ),
    "people who are not in the account": (
        accounting(members=PEOPLE[:6]),
        {},
        Admission(
            6,
            "account",
            ("Not in Slurm's account training: t7, t8. Slurm refuses their jobs until an admin adds them.",),
        ),
    ),
    "people without an account": (
        accounting(members=PEOPLE[:7]),
        {"account": ""},
        Admission(7, "account", ("Without an account in Slurm: t8. Slurm refuses their jobs.",)),
    ),
    "a QOS that they may not use": (
        accounting(user={"qos": ("normal",)}, members=PEOPLE[:1], qos=(LESSON,)),
        {"qos": "lesson"},
        Admission(
            0,
            "account",
            (
                "Without access to QOS lesson in account training: t1.",
                "Not in Slurm's account training: t2, t3, t4, t5, t6 and 2 more. Slurm refuses their jobs until an "
                "admin adds them.",
            ),
        ),
    ),
    "an association for another partition": (
        accounting(user={"partition": "debug"}, members=PEOPLE[:1]),
        {"people": PEOPLE[:1]},
        Admission(
            0, "account", ("Not in Slurm's account training: t1. Slurm refuses their jobs until an admin adds them.",)
        ),
    ),
}


@pytest.mark.parametrize(("found", "changes", "expected"), ADMISSIONS.values(), ids=ADMISSIONS.keys())
def test_limits_let_people_in_one_after_the_other(
    found: Accounting, changes: dict[str, Any], expected: Admission
) -> None:
    """Until one of them is reached, which is named with its owner."""
    size = replace(EACH, **{name: value for name, value in changes.items() if name != "people"})

    assert admit(changes.get("people", PEOPLE), size, found, ()) == expected


def test_jobs_of_others_count_for_their_accounts() -> None:
    """Also those of accounts below the one that is limited."""
    held = (
        running("1", "g1", "gpu:2", account="training"),
        running("2", "g1", "gpu:1", account="dept"),
        running("3", "g1", "gpu:4", account="other"),
    )

    assert admit(PEOPLE, EACH, accounting(dept=gpus(5)), held) == Admission(
        2,
        "GrpTRES",
        ("Account dept may use 5 GPUs at once (GrpTRES), and jobs of others hold 3 GPUs: 2 of 8 people fit.",),
    )


def test_user_names_are_compared_as_slurmdbd_keeps_them() -> None:
    """In lower case."""
    assert admit(("T1", "t2"), EACH, accounting(), ()) == Admission(2)
