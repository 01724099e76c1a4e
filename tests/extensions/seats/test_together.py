"""Which jobs of others are tried before a session's, and what accounting says of all of them together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.extensions.seats.accounting import QOS, Accounting, Association, Budget, UsersQOS
from jupyterhub_gpuspawner.extensions.seats.held import WaitingJob
from jupyterhub_gpuspawner.extensions.seats.site import Request, Site
from jupyterhub_gpuspawner.extensions.seats.together import (
    JOBS_HIDDEN,
    WAITING_AT_MOST,
    Limited,
    Started,
    Verdict,
    not_counted,
    waiting_before,
)
from jupyterhub_gpuspawner.extensions.seats.twin import what_runs
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.units import NodeAllocation, parse_gres
from tests.extensions.seats.site_answers import NOW, job, node, partition, site

OPTIONS = ("--partition=gpu", "--nodes=1", "--ntasks=1", "--gres=gpu:4", "--mem=1000", "--time=60")


def waits(number: int, *options: str, qos: str = "", **changed: Any) -> WaitingJob:
    """A job that waits for the four GPUs of a node."""
    of_cluster = ClusterJob(
        str(number),
        Phase.QUEUED,
        "PENDING",
        **{
            "reason": "Priority",
            "user": "eve",
            "account": "low",
            "partitions": ("gpu",),
            "priority": 5,
            "time_limit": 3600,
            **changed,
        },
    )
    return WaitingJob(of_cluster, options or OPTIONS, qos)


def of(*waiting: WaitingJob, accounting: Any = None) -> Site:
    """Two partitions on nodes of their own, and one on all."""
    answers = site(
        [node(f"g{number}", "gpu:4") for number in (1, 2, 3)],
        [
            partition("gpu", "g[1-2]"),
            partition("other", "g3", default=False),
            partition("all", "g[1-3]", default=False),
        ],
    )
    config = replace(answers.config, answered_at=NOW)
    return replace(answers, config=config, waiting=waiting, accounting=accounting)


ONE = Request("ada", ("--gres=gpu:1", "--mem=100", "--time=30"))
ORDER: dict[str, tuple[tuple[WaitingJob, ...], float, list[str]]] = {
    "by priority, and then by age": (
        (waits(7), waits(5), waits(6, priority=9)),
        0,
        ["job 6", "job 5", "job 7"],
    ),
    "in a partition on the same nodes": (
        (waits(1, partitions=("all",)), waits(2, partitions=("other",))),
        0,
        ["job 1"],
    ),
    "in one of several partitions": ((waits(1, partitions=("other", "gpu")),), 0, ["job 1"]),
    "not those that wait for more than nodes": (
        (
            waits(1, reason="Dependency"),
            waits(2, reason="JobHeldUser", priority=0),
            waits(3, reason="BeginTime"),
            waits(4, reason="Resources"),
        ),
        0,
        ["job 4"],
    ),
    "not those that will have ended": (
        (waits(1), waits(2, time_limit=None), waits(3, time_limit=9000)),
        7200,
        ["job 2", "job 3"],
    ),
    "until then from when Slurm plans them": ((waits(1, starts_at=NOW + 7000),), 7200, ["job 1"]),
    "each task of an array": ((waits(1, array_tasks=3),), 0, ["job 1"] * 3),
    "not those that a limit holds back, where limits are not known": ((waits(1, reason="AssocGrpGRES"),), 0, []),
}


@pytest.mark.parametrize(("waiting", "later", "names"), ORDER.values(), ids=ORDER)
def test_jobs_of_others_come_first_that_wait_for_the_same_nodes(
    waiting: tuple[WaitingJob, ...], later: float, names: list[str]
) -> None:
    """In Slurm's order of them."""
    before, left_out = waiting_before(of(*waiting), [ONE], NOW + later)
    assert ([request.name for request in before], left_out) == (names, [])


def test_a_job_that_a_limit_holds_back_is_tried_where_limits_are_known() -> None:
    """It may start, if those who have reached the limit are gone by then; with its account and its QOS."""
    answers = of(waits(1, reason="AssocGrpGRES", qos="long"), accounting=Accounting())
    assert waiting_before(answers, [ONE], NOW) == (
        [Request("job 1", (*OPTIONS, "--account=low", "--qos=long"), "eve", of_site=True, limit="AssocGrpGRES")],
        [],
    )


def ranked(*, at: float = NOW, qos: str = "first", weights: str = "1000", kind: str = "multifactor") -> list[str]:
    """Who comes before Ada, whose QOS gives 500 and whose fair share 250 of 1,000: jobs of these priorities."""
    known = Accounting(
        {Association("low", "ada"): Budget()},
        qos={"first": QOS(priority=5), "most": QOS(priority=10), "humble": QOS(flags=frozenset({"NoReserve"}))},
        shares={Association("low", "ada"): 0.25},
    )
    waiting = [waits(number, priority=number) for number in (100, 600, 744, 746, 900)]
    answers = of(*waiting, waits(999, priority=999, qos="humble"), accounting=known)
    parameters = {
        "PriorityType": f"priority/{kind}",
        "PriorityWeightQOS": weights,
        "PriorityWeightFairShare": "1000",
        "PriorityWeightAge": "7000",
    }
    config = replace(answers.config, parameters={**answers.config.parameters, **parameters})
    one = replace(ONE, user="ada", options=(*ONE.options, "--account=low", f"--qos={qos}"))
    return [request.name for request in waiting_before(replace(answers, config=config), [one], at)[0]]


def test_only_jobs_that_have_at_least_the_priority_of_new_ones_come_before_them() -> None:
    """By fair share, of which Slurm prints two digits, and by QOS; none that keeps no nodes for itself."""
    assert ranked() == ["job 900", "job 746"]
    assert ranked(qos="most") == []
    assert ranked(weights="0") == ["job 900", "job 746", "job 744", "job 600"]


def test_with_a_priority_that_nobody_knows_all_come_before() -> None:
    """By age alone, and of those who are nobody."""
    assert ranked(kind="basic") == ["job 900", "job 746", "job 744", "job 600", "job 100"]


def test_of_jobs_that_wait_until_a_later_day_the_priority_grows() -> None:
    """By a thousand a day here, 34 in this time; and which of them keep nodes does not matter then."""
    assert ranked(at=NOW + 3000) == ["job 999", "job 900", "job 746", "job 744"]


def test_of_very_many_only_the_first_are_tried_and_that_is_said() -> None:
    """slurmctld plans each of them."""
    before, left_out = waiting_before(of(waits(1, array_tasks=2 * WAITING_AT_MOST)), [ONE], NOW)
    assert len(before) == WAITING_AT_MOST
    assert left_out == ["Only the first 2,000 of 4,000 jobs that wait for these nodes are counted."]


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
async def test_what_others_wait_for_is_theirs_first() -> None:
    """One of them gets a whole node; another waits for the other node, of which a job has one GPU."""
    answers = replace(of(waits(1), waits(2)), jobs=job(9, "g2", "0-3", "gpu:1(IDX:0)", ends_in=600))
    with_them = await what_runs(answers, [ONE] * 5, at=NOW, slurm=Installation())
    alone = await what_runs(replace(answers, waiting=()), [ONE] * 5, at=NOW, slurm=Installation())
    assert (with_them.running, alone.running) == (0, 5)
    assert [answer.reason for answer in with_them.answers] == ["Priority"] * 5


# --- limits ---------------------------------------------------------------------------------------------------------


def accounting(gpus: float, used: float = 0.0, **more: Any) -> Accounting:
    """Ada and Eve share an account with so many GPUs."""
    usage = {("GrpTRES", "gres/gpu"): used, ("GrpJobs", ""): used, ("GrpSubmitJobs", ""): used}
    return Accounting(
        {
            Association("low"): Budget({("GrpTRES", "gres/gpu"): gpus}, usage),
            Association("low", "ada"): Budget(),
            Association("low", "eve"): Budget({}, usage),
        },
        default_accounts={"ada": "low", "eve": "low"},
        qos_of={Association("low", "ada"): UsersQOS(("normal",))},
        **more,
    )


GETS = Started("gpu", {"cpu": 1.0, "node": 1.0}, 30.0, (NodeAllocation("g1", (0,), 100, parse_gres("gpu:1")),))
ADA = replace(ONE, user="ada")
EVES = tuple(
    replace(held, job=held.job._replace(user="eve", account="low"), tres={"cpu": 4.0, "gres/gpu": 2.0})
    for held in job(9, "g2", "0-3", "gpu:2(IDX:0-1)", ends_in=600)
)


def held_back(state: Site, *requests: Request, at: float = NOW, without: tuple[str, ...] = ()) -> list[str]:
    """For each of these, which all get a GPU in the twin, the limit that it would exceed."""
    verdict = Limited(state, at, without).held_back(requests, dict.fromkeys(range(len(requests)), GETS))
    return [verdict.held_back.get(place, "") for place in range(len(requests))]


def test_what_jobs_have_that_run_then_counts() -> None:
    """Those that have ended do not, nor do the participants' own, which are counted among the requests."""
    state = replace(of(accounting=accounting(3, used=2)), jobs=EVES)
    assert held_back(state, ADA, ADA) == ["", "AssocGrpGRES"]
    assert held_back(state, *[ADA] * 4, at=NOW + 1200) == ["", "", "", "AssocGrpGRES"]
    assert held_back(state, *[ADA] * 4, without=("9",)) == ["", "", "", "AssocGrpGRES"]


def test_the_qos_of_a_partition_counts_in_whichever_letters_slurm_conf_has_it() -> None:
    """slurmdbd writes names small."""
    state = of(accounting=accounting(9, qos={"part": QOS(own=Budget({("GrpTRES", "gres/gpu"): 1.0}))}))
    gpu = replace(state.partitions[0], parameters={**state.partitions[0].parameters, "QoS": "Part"})
    assert held_back(replace(state, partitions=(gpu, *state.partitions[1:])), ADA, ADA) == ["", "QOSGrpGRES"]


@pytest.mark.parametrize(
    ("option", "reasons"), [("--gres=gpu:1", ["", ""]), ("--gres=gpu:k80:1", ["", "AssocGrpGRES"])]
)
def test_a_limit_of_a_type_counts_for_jobs_that_name_it(option: str, reasons: list[str]) -> None:
    """As in Slurm, which knows the type of another job only once it has its GPU."""
    typed = replace(GETS, allocations=(NodeAllocation("g1", (0,), 100, parse_gres("gpu:k80:1")),))
    known = accounting(9)
    low = Budget({("GrpTRES", "gres/gpu:k80"): 1.0})
    known = replace(known, associations={**known.associations, Association("low"): low})
    requests = [replace(ADA, options=(option,))] * 2
    verdict = Limited(of(accounting=known), NOW).held_back(requests, {0: typed, 1: typed})

    assert [verdict.held_back.get(place, "") for place in (0, 1)] == reasons


def test_whoever_gets_nothing_is_judged_by_what_others_get_who_request_the_same() -> None:
    """After all who get something."""
    verdict = Limited(of(accounting=accounting(1)), NOW).held_back([ADA, ADA], {1: GETS})
    assert verdict.held_back == {0: "AssocGrpGRES"}


@pytest.mark.parametrize(
    ("later", "held_back"),
    [(0, {0: "QOSMaxCpuPerUserLimit"}), (3601, {})],
    ids=["as Slurm says", "until a job has ended"],
)
def test_a_job_that_waits_for_a_limit_keeps_no_nodes(later: float, held_back: dict[int, str]) -> None:
    """Nobody gets what it requests, whose whole nodes are in use, so that its limit cannot be counted again."""
    whole = waits(1, *OPTIONS, "--exclusive", reason="QOSMaxCpuPerUserLimit", user="ada")
    answers = site(
        [node("g1", "gpu:4")], [partition("gpu", "g1")], jobs=job(7, "g1", "0", "gpu:1(IDX:0)", ends_in=3600)
    )
    answers = replace(answers, waiting=(whole,), accounting=accounting(9))
    before, _ = waiting_before(answers, [ONE], NOW + later)
    assert Limited(answers, NOW + later).held_back([*before, ONE], {1: GETS}).held_back == held_back


def test_sbatch_refuses_more_jobs_than_may_be_submitted() -> None:
    """Jobs of the site are submitted already."""
    limits, low = accounting(9, used=1), Budget({("GrpSubmitJobs", ""): 2.0}, {("GrpSubmitJobs", ""): 1.0})
    limits = replace(limits, associations={**limits.associations, Association("low"): low})
    theirs = Request("job 1", OPTIONS, "eve", of_site=True)
    assert Limited(of(accounting=limits), NOW).refused([theirs, ADA, ADA]).refused == {2: "AssocGrpSubmitJobsLimit"}


SENTENCES: dict[str, tuple[Any, Verdict, list[str]]] = {
    "no accounting": (None, Verdict(), []),
    "all is known": (accounting(1), Verdict(), []),
    "slurmdbd is silent": (
        SlurmUnavailable("slurmdbd is down."),
        Verdict(),
        ["Limits of Slurm's accounting are not counted: slurmdbd is down."],
    ),
    "some are hidden": (
        accounting(1),
        Verdict(unknown=("ada", "bob")),
        ["Limits of Slurm's accounting are not counted for ada, bob: Slurm shows no association of theirs."],
    ),
}


@pytest.mark.parametrize(("known", "verdict", "sentences"), SENTENCES.values(), ids=SENTENCES)
def test_what_is_not_known_is_said(known: Any, verdict: Verdict, sentences: list[str]) -> None:
    """Also that jobs of others are hidden."""
    assert not_counted(of(accounting=known), verdict, [ADA]) == sentences
    assert not_counted(replace(of(accounting=known), hides_jobs=True), verdict, [ADA]) == [*sentences, JOBS_HIDDEN]


def test_people_who_are_nobody_have_no_limits_that_are_known() -> None:
    """As many as are only counted."""
    assert not_counted(of(accounting=accounting(1)), Verdict(), [ONE, ONE]) == [
        "Limits of Slurm's accounting are not counted for 2 people: Slurm shows no association of theirs."
    ]
