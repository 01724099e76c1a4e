"""What Slurm is asked about a session, and what becomes of its answers."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.extensions.courses.check import (
    CourseInputs,
    SessionPlan,
    plan_of,
    plans,
    plans_beside,
    report_of,
)
from jupyterhub_gpuspawner.extensions.courses.course import ChosenProfile, CourseDate
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFile
from jupyterhub_gpuspawner.extensions.courses.rehearsal import (
    NOT_BY_HAND,
    PersonsAnswer,
    Rehearsal,
    RehearsalCluster,
    count_seats,
)
from jupyterhub_gpuspawner.extensions.courses.report import check_document
from jupyterhub_gpuspawner.extensions.seats.accounting import Accounting, Association, Budget
from jupyterhub_gpuspawner.extensions.seats.count import SeatCount, Smaller
from jupyterhub_gpuspawner.extensions.seats.site import Site, gpu_cpus
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.job import tag
from jupyterhub_gpuspawner.slurm.process import Answer
from jupyterhub_gpuspawner.slurm.scontrol import parse_reservations
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, ClusterSnapshot
from tests.extensions.courses.test_course import DEEP_LEARNING, course
from tests.extensions.seats.site_answers import NOW, job, node, partition, reservation, site
from tests.slurm.recorded import would_start
from tests.snapshots import cluster, running
from tests.snapshots import node as node_state

K80 = "gpu:k80:4"
NEAR = "".join(f"Name=gpu Type=k80 File=/dev/nvidia{n} Cores={'0-11' if n < 2 else '12-23'}\n" for n in range(4))
"""Two GPUs beside each of two sockets of twelve cores."""
BEGINS, ENDS = NOW + 3600, NOW + 3 * 3600


def snapshot_of(answers: Site) -> ClusterSnapshot:
    """What the hub reads from the same answers."""
    return ClusterSnapshot(
        nodes=answers.nodes,
        partitions=tuple(answers.partitions),
        reservations=tuple(answers.reservations),
        taken_at=NOW,
    )


def plan(answers: Site, people: int, own_jobs: frozenset[str] = frozenset(), **slurm: Any) -> SessionPlan:
    """A session of so many people who each request this."""
    resources = {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "1G", "time": "2:00:00", **slurm}
    profiles = parse_profiles([{"display_name": "K80", "slug": "k80", "slurm": resources}])
    now = datetime.fromtimestamp(NOW, timezone.utc)
    request = resolve(profiles, {}, username="ada", groups=(), server_name="", now=now)
    start, end = (datetime.fromtimestamp(moment, timezone.utc) for moment in (BEGINS, ENDS))
    date = CourseDate(start, end, "today")
    names = [f"t{number}" for number in range(people)]
    return replace(plan_of(date, request, snapshot_of(answers), names, opens=BEGINS), own_jobs={"": own_jobs})


def cluster_of(answers: Site, fault: GPUSpawnerError | None = None, **settings: Any) -> RehearsalCluster:
    """A cluster with these answers, or with a fault in their place."""
    client = SlurmClient(Installation(**settings))
    return RehearsalCluster(client, snapshot_of(answers), fault or answers)


def script(*options: str) -> str:
    """A batch script with these lines for sbatch."""
    return "".join(f"{line}\n" for line in ("#!/bin/bash", *(f"#SBATCH {option}" for option in options), "echo"))


WIDE, NARROW = (ChosenProfile(slug=slug) for slug in ("wide", "narrow"))
ONE = ("--partition=gpu", "--gres=gpu:k80:1", "--mem=1000", "--time=120", "--no-requeue", "--job-name=jupyterhub")
TWO = site([node("g1", K80), node("g2", K80)], [partition("gpu", "g[1-2]")], gres_conf=NEAR)


def on_clusters(*names: str, people: int) -> SessionPlan:
    """A session of so many people that fills these clusters one after the other."""
    one = plan(TWO, people)
    (request,) = one.requests
    requests = (replace(request, resources=request.resources.model_copy(update={"cluster": name})) for name in names)
    session = replace(one.session, profiles=(WIDE, NARROW))
    return replace(
        one, session=session, requests=tuple(requests), on=tuple(f" on {name}" for name in names), own_jobs={}
    )


COUNTS: dict[str, tuple[Site, int, dict[str, Any], tuple[str, ...], SeatCount]] = {
    "more than everybody": (TWO, 4, {}, (*ONE, "-c 6"), SeatCount(4, 6, 6, with_gpu=4, beside=4)),
    "too few, and with fewer cores all": (
        TWO,
        8,
        {"cpus": 8},
        (*ONE, "-c 8"),
        SeatCount(8, 12, 6, waiting={"Resources": 2}, with_gpu=6, beside=4, smaller=Smaller("cpus-per-task", 6, 8)),
    ),
    "whole nodes by an option of the profile's": (
        TWO,
        3,
        {},
        (*ONE, "-c 2", "--exclusive"),
        SeatCount(3, 5, 2, waiting={"Resources": 1}, with_gpu=2, beside=2),
    ),
    "shards, which are of one GPU each": (
        site([node("s1", "gpu:3,shard:12")], [partition("gpu", "s1")]),
        4,
        {"gpus": None, "shards": 3},
        ("--partition=gpu", "--gres=shard:3", "--mem=1000", "--time=120"),
        SeatCount(4, 6, 3, waiting={"Resources": 1}),
    ),
    "no such device": (
        TWO,
        2,
        {},
        ("--partition=gpu", "--gres=gpu:v100:1"),
        SeatCount(
            2,
            3,
            0,
            refusal="no node of the partition has all the requested resources",
        ),
    ),
    "a job that still runs then, and one of the course's own": (
        replace(
            TWO,
            jobs=job(7, "g1", "0-3", "gpu:k80:2(IDX:0-1)", ends_in=7200)
            + job(8, "g2", "0", f"{K80}(IDX:0-3)", ends_in=7200),
        ),
        6,
        {"own_jobs": frozenset({"8"})},
        (*ONE, "-c 2"),
        SeatCount(6, 9, 6, with_gpu=6, beside=6),
    ),
    "maintenance before servers could end": (
        replace(
            TWO,
            reservations=parse_reservations(
                reservation("upkeep", "g[1-2]", begins_in=3 * 3600 - 600, ends_in=9 * 3600, flags="MAINT,SPEC_NODES")
            ),
        ),
        2,
        {},
        (*ONE, "-c 2"),
        SeatCount(2, 3, 0, waiting={"ReqNodeNotAvail": 2}),
    ),
}


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
@pytest.mark.parametrize(("answers", "people", "more", "options", "expected"), COUNTS.values(), ids=COUNTS.keys())
async def test_slurms_scheduler_counts_the_seats(
    answers: Site, people: int, more: dict[str, Any], options: tuple[str, ...], expected: SeatCount
) -> None:
    """With the options of the batch script, one and a half times the roster, and again with less where that helps."""
    session = plan(answers, people, **more)
    count = await count_seats(session, [script(*options)], {"": cluster_of(answers)})
    assert count == expected


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
async def test_the_servers_of_a_course_before_take_their_seats_first() -> None:
    """With what they request; they are not among the course's own."""
    first = [(plan(TWO, 3), [script(*ONE, "-c 12")])]
    count = await count_seats(plan(TWO, 5), [script(*ONE, "-c 2")], {"": cluster_of(TWO)}, first=first)
    assert count is not None
    assert (count.wanted, count.tried, count.fit, count.waiting) == (5, 8, 3, {"Resources": 2})


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
async def test_whom_the_first_profile_has_no_seat_for_gets_the_next() -> None:
    """Two people get twenty of a node's cores, and the others a GPU with two of the cores that are left."""
    session = replace(plan(TWO, 6), session=replace(plan(TWO, 6).session, profiles=(WIDE, NARROW)))
    session = replace(session, requests=session.requests * 2, on=("", ""))
    scripts = [script("--partition=gpu", "--mem=1000", "--time=120", "-c 20"), script(*ONE, "-c 2")]
    count = await count_seats(session, scripts, {"": cluster_of(TWO)})
    assert count == SeatCount(6, 9, 6, by_profile={"wide": 2, "narrow": 4}, waiting={}, with_gpu=4, beside=4)


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
async def test_each_of_several_profiles_is_tried_with_less() -> None:
    """The first takes three of a node's GPUs; the second wants more cores than that leaves, and fits with fewer."""
    session = replace(plan(TWO, 6), session=replace(plan(TWO, 6).session, profiles=(WIDE, NARROW)))
    session = replace(session, requests=session.requests * 2, on=("", ""))
    common = ("--partition=gpu", "--mem=1000", "--time=120")
    scripts = [script(*common, "--gres=gpu:k80:3", "-c 2"), script(*common, "-c 23")]
    count = await count_seats(session, scripts, {"": cluster_of(TWO)})
    assert count is not None
    assert (count.fit, count.by_profile, count.smaller) == (
        2,
        {"wide": 2, "narrow": 0},
        Smaller("cpus-per-task", 6, 6, rank=1),
    )


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
async def test_each_cluster_is_asked_about_its_own_profile() -> None:
    """Their nodes have the same names; on the second one two GPUs are taken. A session before has seats on both."""
    session = on_clusters("juniper", "cedar", people=12)
    first = on_clusters("juniper", "cedar", people=9)
    cedar = replace(TWO, jobs=job(7, "g1", "0-3", "gpu:k80:2(IDX:0-1)", ends_in=7200))
    scripts = [script(*ONE, "-c 2")] * 2
    count = await count_seats(
        session, scripts, {"juniper": cluster_of(TWO), "cedar": cluster_of(cedar)}, first=[(first, scripts)]
    )
    assert count == SeatCount(
        12,
        18,
        5,
        waiting={"Resources": 7},
        with_gpu=5,
        beside=5,
        by_profile={"wide on juniper": 0, "narrow on cedar": 5},
    )


async def test_slurm_is_asked_on_each_cluster_by_its_own_commands(tmp_path: Path) -> None:
    """As each person, with the prefix of that cluster; what it refuses is said of it."""

    class OfCedar(Refusing):
        """Has another prefix."""

        prefix = ("ssh", "cedar", "sudo", "-u")

    config = tmp_path / "jupyterhub_config.py"
    config.write_text('c.GPUSlurmSpawner.clusters = {"juniper": {}, "cedar": {"req_partition": "k80"}}')
    refusing = {"juniper": Refusing({}), "cedar": OfCedar({"t1": SubmitRejected("no access to the QOS.", stderr="")})}
    clusters = {
        name: RehearsalCluster(
            client,  # type: ignore[arg-type]
            snapshot_of(TWO),
            SlurmUnavailable("No scheduler."),
            exec_prefix=f"{' '.join(client.prefix)} {{username}}",
        )
        for name, client in refusing.items()
    }
    session = on_clusters("juniper", "cedar", people=2)
    (report,) = await Rehearsal(load_site(config).spawner("nobody"), clusters).reports([session])

    assert {name: sorted(user for user, _ in client.requests) for name, client in refusing.items()} == {
        "juniper": ["t0", "t1"],
        "cedar": ["t0", "t1"],
    }
    assert [problem.text for problem in report.problems] == ["t1: on cedar: no access to the QOS."]
    assert [hint.text for hint in report.hints] == [
        "2 get profile wide on juniper, 0 get profile narrow on cedar.",
        "Counted by hand, as an estimate: Cluster juniper: No scheduler.",
    ]


async def test_an_estimate_takes_its_place_where_slurm_cannot_be_asked() -> None:
    """It is called so, with what would be needed."""
    fault = SlurmUnavailable("slurmctld is not installed on this machine.", hint="Install it.")
    count = await count_seats(plan(TWO, 9), [script(*ONE)], {"": cluster_of(TWO, fault)})
    assert count == SeatCount(
        9, 14, 8, estimate="Counted by hand, as an estimate: slurmctld is not installed on this machine. Install it."
    )


def test_the_cpus_beside_a_gpu_are_those_of_gres_conf() -> None:
    """Or else the socket that Slurm reports; a node of which neither is known is left out. Each thread counts."""
    reported = site([node("g1", "gpu:k80:2(S:1)"), node("g2", "gpu:2"), node("c1")], [partition("gpu", "g[1-2],c1")])
    threads = site([node("g1", "gpu:1(S:1)", threads=2).replace("CPUTot=48", "CPUTot=24")], [partition("gpu", "g1")])
    first, second = frozenset(range(12)), frozenset(range(12, 24))

    assert gpu_cpus(TWO) == dict.fromkeys(("g1", "g2"), (first, first, second, second))
    assert gpu_cpus(reported) == {"g1": (second, second)}
    assert gpu_cpus(threads) == {"g1": (frozenset(range(24, 48)),)}


def limited(shared: float, **people: float) -> Accounting:
    """An account whose people may have so many GPUs together, and each of these so many cores."""
    own = {name: {("MaxTRESPJ", "cpu"): cores} for name, cores in people.items()}
    names = [f"t{number}" for number in range(6)]
    return Accounting(
        {
            Association("course"): Budget({("GrpTRES", "gres/gpu"): shared}),
            **{Association("course", name): Budget(own.get(name, {})) for name in names},
        },
        default_accounts=dict.fromkeys(names, "course"),
    )


LIMITED: dict[str, tuple[Accounting, SeatCount]] = {
    "of the account": (
        limited(2),
        SeatCount(4, 6, 2, waiting={"AssocGrpGRES": 2}, with_gpu=2, beside=2),
    ),
    "of one person, whom nobody takes the place of": (
        limited(99, t1=1),
        SeatCount(4, 6, 3, waiting={"AssocMaxCpuPerJobLimit": 1}, with_gpu=3, beside=3),
    ),
}


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
@pytest.mark.parametrize(("accounting", "expected"), LIMITED.values(), ids=LIMITED)
async def test_limits_of_accounting_hold_people_back(accounting: Accounting, expected: SeatCount) -> None:
    """Whose server does not start, and with which of Slurm's reasons."""
    on = replace(cluster_of(replace(TWO, accounting=accounting)), exec_prefix="sudo -u {username}")
    count = await count_seats(plan(TWO, 4), [script(*ONE, "-c 2")], {"": on})
    assert count is not None
    assert replace(count, smaller=None) == expected


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
@pytest.mark.parametrize(
    ("accounting", "sentence"),
    [
        (SlurmUnavailable("slurmdbd is down."), "Limits of Slurm's accounting are not counted: slurmdbd is down."),
        (
            Accounting({Association("course"): Budget()}),
            "Limits of Slurm's accounting are not counted for t0, t1: Slurm shows no association of theirs.",
        ),
    ],
    ids=["silent", "hidden"],
)
async def test_limits_that_slurm_does_not_tell_are_not_counted_and_that_is_said(
    accounting: Accounting | GPUSpawnerError, sentence: str
) -> None:
    """In the report, in the JSON, and behind the number."""
    on = replace(cluster_of(replace(TWO, accounting=accounting)), exec_prefix="sudo -u {username}")
    count = await count_seats(plan(TWO, 2), [script(*ONE, "-c 2")], {"": on})
    report = report_of(plan(TWO, 2), {"": snapshot_of(TWO)}, count, {})
    (document,) = check_document("c", [report]).sessions

    assert document.not_counted == (sentence,)
    assert (report.fits, report.fit_in_words) == (True, "3 or more fit, as far as it is counted")
    assert sentence in document.hints


class Refusing(Installation):
    """A Slurm that refuses the jobs of some people."""

    prefix: tuple[str, ...] = ("sudo", "-u")

    def __init__(self, refused: dict[str, GPUSpawnerError]) -> None:
        super().__init__(bin_dir="/no/such/folder")
        self.refused = refused
        self.installation = self
        self.requests: list[tuple[str, str]] = []
        """As whom it was asked, and from when on the job may begin."""

    async def run(self, command: str, *arguments: str, **how: Any) -> Answer:
        """The answer to one job."""
        if (command, *arguments) != ("sbatch", "--test-only"):
            return await super().run(command, *arguments, **how)
        prefix, environment, script = how["prefix"], how["environment"], how["stdin"]
        begins = next((line for line in script.splitlines() if line.startswith("#SBATCH --begin=")), "")
        self.requests.append((environment["USER"], begins))
        assert prefix == (*self.prefix, environment["USER"])
        if environment["USER"] in self.refused:
            raise self.refused[environment["USER"]]
        return Answer(command, 0, "", would_start(BEGINS, "g1", "gpu", 2))


def rehearsal(folder: Path, client: Refusing) -> Rehearsal:
    """What asks this Slurm, without its scheduler."""
    config = folder / "jupyterhub_config.py"
    config.write_text('c.GPUSlurmSpawner.exec_prefix = "sudo -u {username}"')
    spawner = load_site(config).spawner("nobody")
    silent = SlurmUnavailable("No scheduler.")
    cluster = RehearsalCluster(client, snapshot_of(TWO), silent, True, spawner.exec_prefix)  # type: ignore[arg-type]
    return Rehearsal(spawner, {"": cluster})


async def test_the_sites_slurm_is_asked_as_each_person_whether_it_would_take_the_job(tmp_path: Path) -> None:
    """From the session's beginning on; those whom the profile keeps out are not asked about."""
    sentence = "Slurm refused the job: the account does not exist."
    client = Refusing({"t1": SubmitRejected(sentence, stderr="")})
    session = replace(plan(TWO, 3), at=time.time() + 3600, excluded={"t2": "cannot use the profile."})
    (report,) = await rehearsal(tmp_path, client).reports([session])

    assert sorted(user for user, _ in client.requests) == ["t0", "t1"]
    delays = [int(begins.removeprefix("#SBATCH --begin=now+")) for _, begins in client.requests]
    assert [3000 < delay <= 3600 for delay in delays] == [True, True]
    assert [problem.text for problem in report.problems] == [f"t1: {sentence}"]
    assert [hint.text for hint in report.hints] == [NOT_BY_HAND, "Counted by hand, as an estimate: No scheduler."]


async def test_a_later_session_is_asked_about_as_one_person(tmp_path: Path) -> None:
    """So that a course of many sessions asks no more than one with a few."""
    client = Refusing({})
    await rehearsal(tmp_path, client).reports([plan(TWO, 3), plan(TWO, 3)])
    assert sorted(user for user, _ in client.requests) == ["t0", "t0", "t1", "t2"]


async def test_whom_slurm_refuses_for_the_first_session_is_asked_about_for_the_others(tmp_path: Path) -> None:
    """So that a session is as wrong without --session as with it; and a note says who was not asked about."""
    sentence = "Slurm refused the job: the account does not exist."
    client = Refusing({"t1": SubmitRejected(sentence, stderr="")})
    first, second = await rehearsal(tmp_path, client).reports([plan(TWO, 3), plan(TWO, 3)])

    assert sorted(user for user, _ in client.requests) == ["t0", "t0", "t1", "t1", "t2"]
    assert [[problem.text for problem in report.problems] for report in (first, second)] == [[f"t1: {sentence}"]] * 2
    assert [hint.text for hint in second.hints if hint not in first.hints] == [
        "Whom Slurm would refuse was asked as t0, t1 alone for sessions after the first; with --session it is asked as "
        "everybody."
    ]


LESSONS = {"date": "2026-11-18", "from": "11:00", "to": "13:00"}
"""Since six minutes before NOW."""
OF_COURSES = parse_profiles(
    [
        {
            "display_name": "K80",
            "slug": "k80",
            "slurm": {"partition": "gpu", "gpus": 1, "cpus": 2, "memory": "1G", "time": "2:00:00"},
        }
    ]
)


def lessons(slug: str, roster: str, **changes: Any) -> CourseFile:
    """A course that is on now, and tomorrow."""
    values = {"sessions": [LESSONS, {**LESSONS, "date": "2026-11-19"}], "start_ahead": None, "zone": "UTC"}
    return CourseFile(slug, course(DEEP_LEARNING, profile="k80", roster=roster, **{**values, **changes}))


def of_person(job_id: str, user: str) -> ClusterJob:
    """The job of a participant, of this hub."""
    return running(
        job_id, "g1", "gpu:k80:1", cpus=2, ends_in=None, user=user, partitions=("gpu",), tag=tag("hub", user, "")
    )


async def answer(
    folder: Path, clock: float, *, session: str = "", jobs: tuple[ClusterJob, ...] = (), **other: Any
) -> list[tuple[str, int, tuple[str, ...]]]:
    """How many of course ``deep`` fit in each of its sessions, by hand, by a snapshot of this moment; and the hints."""
    used = f"gpu:k80:{len(jobs)}" if jobs else ""
    nodes = (node_state("g1", K80, used), node_state("g2", K80))
    snapshots = {"": replace(cluster(*nodes, jobs=jobs), taken_at=clock)}
    own, files = lessons("deep", "t[1-8]"), [lessons("ada", "a[1-3]", **other), lessons("deep", "t[1-8]")]
    inputs = CourseInputs(OF_COURSES, snapshots)
    since = datetime.fromtimestamp(clock, timezone.utc)
    planned = plans(own, inputs, only=session, since=since)
    asking = rehearsal(folder, Refusing({}))
    of_cluster = replace(asking.clusters[""], snapshot=snapshots[""], limited=False)
    asking = replace(asking, clusters={"": of_cluster}, others=plans_beside(planned, files, inputs))
    return [
        (
            report.session.name,
            report.fit,
            tuple(hint.text for hint in report.hints if hint.text.startswith("Counted after")),
        )
        for report in await asking.reports(planned)
    ]


AFTER = "Counted after the servers of course ada, whose session is at the same time"
BEGINS_AT = datetime(2026, 11, 18, 11, tzinfo=timezone.utc).timestamp()
BESIDE: dict[str, tuple[float, tuple[ClusterJob, ...], dict[str, Any], int, str]] = {
    "before both": (-3600, (), {}, 5, f"{AFTER}."),
    "a moment before": (-0.001, (), {}, 5, f"{AFTER}."),
    "as they begin": (0.0, (), {}, 5, f"{AFTER}."),
    "both are on, and nobody of the other has a server": (600, (), {}, 5, f"{AFTER}."),
    "some have one": (
        600,
        (of_person("1", "a1"), of_person("2", "a3")),
        {},
        5,
        f"{AFTER}: 1 person of it has none yet.",
    ),
    "all have one": (600, tuple(of_person(str(number), f"a{number}") for number in (1, 2, 3)), {}, 5, ""),
    "somebody else has one": (600, (of_person("1", "kim"),), {}, 4, f"{AFTER}."),
    "the other begins later": (600, (), {"sessions": [{**LESSONS, "from": "12:00"}]}, 8, ""),
    "the other is over": (3600, (), {"sessions": [{**LESSONS, "to": "11:30"}]}, 8, ""),
}


@pytest.mark.parametrize(("after", "jobs", "other", "fit", "hint"), BESIDE.values(), ids=BESIDE.keys())
async def test_the_seats_of_a_course_at_the_same_time_are_kept_for_those_who_have_none_yet(
    after: float, jobs: tuple[ClusterJob, ...], other: dict[str, Any], fit: int, hint: str, tmp_path: Path
) -> None:
    """Eight GPUs, three people of the other course: its session's beginning alone changes no answer."""
    (now, fits, hints), *_ = await answer(tmp_path, BEGINS_AT + after, jobs=jobs, **other)
    assert (now, fits, hints) == ("2026-11-18", fit, (hint,) if hint else ())


async def test_a_check_gives_one_answer_whenever_it_is_made_and_with_one_session_or_all(tmp_path: Path) -> None:
    """Nothing changes but the clock, which counts in fractions that a date does not have."""
    clocks = [BEGINS_AT + 600 + number * 0.123456789 for number in range(8)]
    together = [await answer(tmp_path, clock) for clock in clocks]
    alone = [
        [*await answer(tmp_path, clock, session="2026-11-18"), *await answer(tmp_path, clock, session="2026-11-19")]
        for clock in clocks
    ]
    expected = [("2026-11-18", 5, (f"{AFTER}.",)), ("2026-11-19", 5, (f"{AFTER}.",))]

    assert [*together, *alone] == [expected] * 16


async def test_a_course_whose_servers_still_run_when_the_next_ones_are_started_is_beside_it(tmp_path: Path) -> None:
    """Its session ends as the next begins, and that one's servers are started ahead; with one session or all."""
    earlier = {"sessions": [{**LESSONS, "from": "9:00", "to": "11:00"}]}
    files = [lessons("ada", "a[1-3]", **earlier), lessons("deep", "t[1-8]", start_ahead="10min")]
    snapshot = replace(cluster(node_state("g1", K80), node_state("g2", K80)), taken_at=BEGINS_AT - 86400)
    inputs = CourseInputs(OF_COURSES, {"": snapshot})
    own = plans(files[1], inputs, only="2026-11-18")

    assert [other.course for other in own[0].served_before(plans_beside(own, files, inputs))] == ["ada"]


@pytest.mark.slurm
@pytest.mark.usefixtures("needs_slurm")
async def test_slurms_scheduler_gives_one_answer_beside_a_course_that_is_on(tmp_path: Path) -> None:
    """At moments that no date has; nobody of the other course has a server yet."""
    files = [lessons("ada", "a[1-3]"), lessons("deep", "t[1-8]")]
    asking, fits = rehearsal(tmp_path, Refusing({})), list[tuple[int, bool]]()
    for clock in (NOW, NOW + 0.123456789, NOW + 0.7654321):
        inputs = CourseInputs(OF_COURSES, {"": replace(snapshot_of(TWO), taken_at=clock)})
        (own,) = plans(files[1], inputs, only="2026-11-18")
        of_cluster = replace(cluster_of(TWO), snapshot=inputs.snapshots[""])
        others = plans_beside([own], files, inputs)
        report = await replace(asking, clusters={"": of_cluster}, others=others).report(own, ())
        fits.append((report.fit, report.seats is not None and not report.seats.estimate))

    assert fits == [(5, True)] * 3


async def test_where_nothing_can_be_run_as_the_people_a_note_says_so(tmp_path: Path) -> None:
    """The seats are counted all the same."""
    client = Refusing({"t0": ConfigError("sbatch was not run: sudo asks for a password.", where="exec_prefix")})
    report = await rehearsal(tmp_path, client).report(plan(TWO, 2), ["t0", "t1"])

    assert (report.fits, report.fit) == (True, 3)
    assert report.hints[0].text == (
        "Whom Slurm would refuse is not known: exec_prefix: sbatch was not run: sudo asks for a password."
    )


async def test_seats_are_promised_under_limits_that_people_share_only_with_that_said(tmp_path: Path) -> None:
    """Slurm answers for one job at a time; so also of a session that it is not asked about."""
    limited = rehearsal(tmp_path, Refusing({}))
    reports = [*await limited.reports([plan(TWO, 2)]), *await limited.reports([plan(TWO, 2)], until=NOW)]
    without = await replace(limited, clusters={"": replace(limited.clusters[""], limited=False)}).report(
        plan(TWO, 2), ["t0"]
    )

    assert [report.fit_in_words for report in (*reports, without)] == [
        "3 or more fit, by estimate, as far as it is counted",
        "3 or more fit, by estimate, as far as it is counted",
        "3 or more fit, by estimate",
    ]


async def test_each_person_is_asked_about_with_every_profile_of_the_course(tmp_path: Path) -> None:
    """The server that would start first counts, and a profile that Slurm would refuse is named."""

    class OfTwo(Refusing):
        """A Slurm in which the first profile waits for an hour; it refuses ``t1`` the second."""

        async def run(self, command: str, *arguments: str, **how: Any) -> Answer:
            """The answer to one job."""
            answer = await super().run(command, *arguments, **how)
            if "--cpus-per-task=2" in how["stdin"]:
                return replace(answer, stderr=would_start(BEGINS + 3600, "g1", "gpu", 2))
            if how["environment"]["USER"] == "t1":
                raise SubmitRejected("Slurm refused the job: no access to the QOS.", stderr="")
            return answer

    both = replace(plan(TWO, 2), requests=(*plan(TWO, 2).requests, *plan(TWO, 2, cpus=4).requests), on=("", ""))
    answers = [answer async for answer in rehearsal(tmp_path, OfTwo({})).answers(both, ["t0", "t1"], every=0)]
    assert answers == [
        PersonsAnswer("t0", BEGINS),
        PersonsAnswer("t1", None, "Slurm refused the job: no access to the QOS."),
    ]
