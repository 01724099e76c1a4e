"""squeue's answers are read completely, and no text that a user writes can pass for another job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.slurm.squeue import CLUSTER, JOBS, Question, parse_jobs, parse_squeue
from jupyterhub_gpuspawner.slurm.text import UnparsedField
from jupyterhub_gpuspawner.units import Gres
from tests.slurm.recorded import MARK, VERSIONS, recorded, with_array_tasks, with_owner

FORGED = "x|\n1|FAILED|NonZeroExitCode|1|2|evil|evil|gpu|root|256|forged|0123456789abcdeg\n1|FAILED|y"
"""The comment of job 5 in the recorded answers: it imitates whole lines of job 1, with a nearly correct mark."""


def test_columns_are_those_of_the_recorded_answers() -> None:
    """Slurm's own fields come first, each at full width; then, between marks, the fields that users write."""
    assert JOBS.columns("m1") == (
        "JobID:|,State:|,Reason:|,StartTime:|,EndTime:|,BatchHost:|,NodeList:|,Partition:|,UserName:|,exit_code:|,"
        "UserID:|m1|,Comment:|m1|,Name:|m1"
    )
    assert CLUSTER.columns("m1") == (
        "JobID:|,ArrayTaskID:|,State:|,Reason:|,UserName:|,Partition:|,PriorityLong:|,NodeList:|,NumNodes:|,NumCPUs:|,NumTasks:|,"
        "tres-alloc:|,SubmitTime:|,StartTime:|,EndTime:|,TimeLimit:|m1|,tres-per-job:|m1|,tres-per-node:|m1|,"
        "tres-per-socket:|m1|,tres-per-task:|m1|,Reservation:|m1|,Account:|m1|,Name:|m1|,Comment:|m1"
    )


@pytest.mark.parametrize(
    ("version", "start"),
    [("22.05", 1795262301.0), ("24.11", 1795262305.0), ("26.05", 1795262309.0)],
)
def test_running_failed_and_held_jobs_of_each_version(version: str, start: float) -> None:
    """Every field of a running, a failed, a held and a two-node job is the same in three versions."""
    job_by_id = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout), MARK)
    ends = recorded(version, "hub", "squeue_all").stdout
    failed_end = float(ends.split("2|FAILED|NonZeroExitCode|")[1].split("|")[1])
    assert {(job.uid, job.name) for job in job_by_id.values()} == {(1000, "a job")}
    assert [replace(job_by_id[job_id], uid=None, name="") for job_id in ("1", "2", "3", "6")] == [
        Job(
            "1",
            Phase.RUNNING,
            state="RUNNING",
            nodes="g1",
            batch_host="g1",
            user="ci",
            partition="gpu",
            starts_at=start,
            ends_at=start + 86400,
            tag="gpuspawner:hub:alice:",
        ),
        Job(
            "2",
            Phase.ENDED,
            state="FAILED",
            reason="NonZeroExitCode",
            nodes="g1",
            batch_host="g1",
            user="ci",
            partition="gpu",
            starts_at=start,
            ends_at=failed_end,
            exit_code="3:0",
            end=End.FAILED,
            tag="gpuspawner:hub:alice:lab",
        ),
        Job("3", Phase.QUEUED, state="PENDING", reason="JobHeldUser", user="ci", partition="gpu"),
        Job(
            "6",
            Phase.RUNNING,
            state="RUNNING",
            nodes="g[1-2]",
            batch_host="g1",
            user="ci",
            partition="gpu",
            starts_at=start,
            ends_at=start + 86400,
        ),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_comment_cannot_imitate_another_job(version: str) -> None:
    """A comment with newlines, bars and forged lines stays one job's comment; job 1 keeps running on g1."""
    job_by_id = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout), MARK)
    assert {job_id: status.tag for job_id, status in job_by_id.items() if status.tag} == {
        "1": "gpuspawner:hub:alice:",
        "2": "gpuspawner:hub:alice:lab",
        "5": FORGED,
        "8": "later",
    }
    assert (job_by_id["1"].state, job_by_id["1"].batch_host) == ("RUNNING", "g1")


@pytest.mark.parametrize("version", VERSIONS)
def test_death_by_a_signal_and_cancellation_carry_their_exit_codes(version: str) -> None:
    """22.05 prints the wait status (9), later versions ``0:9``; both are read as exit code and signal."""
    job_by_id = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout), MARK)
    assert {job_id: (job_by_id[job_id].end, job_by_id[job_id].exit_code) for job_id in ("4", "7")} == {
        "4": (End.FAILED, "0:9"),
        "7": (End.CANCELLED, "0:0"),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_question_for_some_ids_holds_only_the_known_ones(version: str) -> None:
    """Ids that Slurm does not know are absent."""
    assert set(parse_squeue(with_owner(recorded(version, "hub", "squeue_j").stdout), MARK)) == {"1", "2"}
    assert set(parse_squeue(with_owner(recorded(version, "hub", "squeue_j_one").stdout), MARK)) == {"2"}


@pytest.mark.parametrize(
    ("printed", "exit_code"),
    [("0", "0:0"), ("768", "3:0"), ("9", "0:9"), ("3893", "0:53"), ("0:15", "0:15"), ("N/A", "")],
)
def test_exit_code_reads_as_scontrol_writes_it(printed: str, exit_code: str) -> None:
    """22.05 prints wait statuses (the last one means no log folder), and later versions pairs."""
    job_by_id = parse_squeue(with_owner(f"7|FAILED|None|1|2|g1|g1|gpu|a|{printed}||{MARK}\n"), MARK)
    assert job_by_id["7"].exit_code == exit_code


def ours(line: str) -> str | None:
    """Convert a recorded line of another format (``%i|%T|%r|%S|%e|%L|%B|%N|%Q|%P|%u|%j|%k``) to our columns."""
    values = line.split("|")
    if len(values) != 13 or not values[0].isdigit():
        return None  # an array task, or a name with bars or newlines in it
    job_id, state, reason, start, end, _, host, nodes, _, partition, user, _, comment = values
    return f"{job_id}|{state}|{reason}|{start}|{end}|{host}|{nodes}|{partition}|{user}|0:0|{comment}|{MARK}\n"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["o_main_all_states", "o_late_all_states", "preempted", "j_finished_t_all"])
def test_every_recorded_job_is_read(version: str, name: str) -> None:
    """The state is known; running jobs have a host, pending ones have none, and ended ones have an end."""
    lines = [line for line in map(ours, recorded(version, "squeue", name).stdout.splitlines()) if line]
    statuses = parse_squeue(with_owner("".join(lines)), MARK).values()
    assert len(statuses) == len(lines) > 0
    assert [status for status in statuses if status.phase is Phase.UNKNOWN] == []
    assert [status for status in statuses if status.phase is Phase.RUNNING and not status.batch_host] == []
    assert [status for status in statuses if status.phase is Phase.QUEUED and status.batch_host] == []
    assert [status for status in statuses if (status.end is None) == (status.phase is Phase.ENDED)] == []


RUNNING_JOB = {
    "JobID": "8",
    "State": "RUNNING",
    "Reason": "None",
    "StartTime": "1",
    "EndTime": "2",
    "UserID": "1000",
    **dict.fromkeys(("NumNodes", "NumCPUs", "NumTasks", "PriorityLong"), "4"),
}


def record(question: Question, **fields: str) -> str:
    """One job as squeue prints it: a good one but for ``fields``."""
    values = {**dict.fromkeys((*question.slurms, *question.owners), "N/A"), **RUNNING_JOB}
    values |= {name.replace("_", "-"): value for name, value in fields.items()}
    head = "|".join(values[name] for name in question.slurms)
    return f"|{MARK}|".join([head, *(values[name] for name in question.owners)]) + f"|{MARK}\n"


READERS = [pytest.param(JOBS, lambda *answer: list(parse_squeue(*answer).values()), id="the hub's jobs")]
READERS += [pytest.param(CLUSTER, lambda *answer: list(parse_jobs(*answer)), id="the cluster's jobs")]
both_questions = pytest.mark.parametrize(("question", "parse"), READERS)


@both_questions
def test_an_answer_of_which_nothing_is_understood_is_refused(question: Question, parse: Any) -> None:
    """A truncated answer, too few columns, no job id, no time: an error that quotes it, not a cluster without jobs."""
    raw = {
        "7|RUNNING": "7|RUNNING",
        f"7|RUNNING|{MARK}\n": "7|RUNNING",
        **{record(question, JobID=odd): record(question, JobID=odd)[: -len(MARK) - 2] for odd in ("x", "٣")},
        record(question, StartTime="yesterday"): "yesterday",
    }
    for text, quoted in raw.items():
        with pytest.raises(SlurmOutputError) as caught:
            parse(text, MARK)
        assert caught.value.raw == quoted
    assert parse("", MARK) == []


@both_questions
def test_a_record_that_is_not_understood_is_left_out_and_named(question: Question, parse: Any) -> None:
    """The report has the id and the field but not its text; the other jobs are read."""
    unread: list[UnparsedField] = []
    odd = record(question, JobID="7", StartTime="yesterday") + f"x|y|{MARK}\n" + f"900|odd|{MARK}\n"
    assert parse(odd + record(question), MARK, unread.append) == parse(record(question), MARK)
    assert unread == [
        UnparsedField("job", "7", "StartTime"),
        UnparsedField("job", "", ""),
        UnparsedField("job", "900", ""),
    ]


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: MARK not in text)


@both_questions
@settings(deadline=None)
@given(comment=TEXTS, name=TEXTS)
def test_what_users_write_comes_back_as_it_is(question: Question, parse: Any, comment: str, name: str) -> None:
    """Whatever an owner writes is read completely, and both neighbours are unchanged."""
    first, last = record(question, JobID="6"), record(question, JobID="9")
    before, job, after = parse(first + record(question, Comment=comment, Name=name) + last, MARK)
    assert (job.tag, job.name) == ("" if comment == "(null)" else comment, name)
    assert [before, after] == parse(first + last, MARK)


# All jobs of the cluster.


def jobs(version: str) -> dict[str, ClusterJob]:
    """The jobs of the recorded cluster."""
    answer = with_array_tasks(recorded(version, "cluster", "squeue").stdout)
    return {job.job_id: job for job in parse_jobs(answer, MARK)}


@pytest.mark.parametrize(
    ("version", "submitted", "priorities"),
    [
        ("22.05", 1795272928.0, (4294901759, 4294901746)),
        ("24.11", 1795272951.0, (1, 1)),
        ("26.05", 1795272974.0, (1, 1)),
    ],
)
def test_running_and_waiting_job_of_each_version(version: str, submitted: float, priorities: tuple[int, int]) -> None:
    """Every field of a running and of a pending job is read."""
    job_by_id = jobs(version)
    assert job_by_id["1"].submitted_at == submitted
    start, estimate, later = job_by_id["1"].starts_at or 0, job_by_id["14"].starts_at, job_by_id["14"].submitted_at
    assert job_by_id["1"] == ClusterJob(
        "1",
        Phase.RUNNING,
        state="RUNNING",
        user="alice",
        partitions=("gpu",),
        priority=priorities[0],
        nodes=("g1",),
        cpus=4,
        memory_mib=500,
        gpus=(Gres("gpu", "k80", 2),),
        submitted_at=submitted,
        starts_at=start,
        ends_at=start + 600,
        time_limit=600,
        name="wrap",
    )
    assert job_by_id["14"] == ClusterJob(
        "14",
        Phase.QUEUED,
        state="PENDING",
        reason="Resources",
        user="alice",
        partitions=("gpu",),
        priority=priorities[1],
        cpus=1,
        memory_mib=500,
        gpus=(Gres("gpu", "k80", 4),),
        submitted_at=later,
        starts_at=estimate,
        time_limit=900,
        name="wrap",
    )
    assert 0 < (estimate or 0) - (later or 0) < 3600


@pytest.mark.parametrize("version", VERSIONS)
def test_gpus_however_they_were_asked_for(version: str) -> None:
    """GPUs are read per node, job, task or socket, with MIG, shards, untyped or none, as the number on one node."""
    gpus_by_job = {job_id: [str(gres) for gres in job.gpus] for job_id, job in jobs(version).items() if job.nodes}
    assert gpus_by_job == {
        "1": ["gpu:k80:2"],
        "2": ["gpu:2"],
        "3": ["gpu:3"],
        "4": ["gpu:a100:1"],
        "5": ["gpu:1g.10gb:1"],
        "6": ["shard:3"],
        "7": ["gpu:1"],
        "8": [],
        "9": [],
        "10": ["gpu:v100:2"],
        "12": ["gpu:v100:1"],
        "13": ["gpu:k80:1"],
        "20": [],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_owners_words_stay_their_own(version: str) -> None:
    """Account, name and comment with bars, newlines and a forged line affect only their own job."""
    job_by_id = jobs(version)
    forged = job_by_id["20"]
    assert (forged.account, forged.name, forged.tag) == ("a|b", "one\n7|two", "x|\n1|FAILED|y")
    assert (job_by_id["1"].state, job_by_id["7"].name) == ("RUNNING", "wrap")


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_reservations_and_partitions(version: str) -> None:
    """A job has no end without a limit, may be in a reservation, and may be pending in several partitions."""
    job_by_id = jobs(version)
    assert (job_by_id["8"].time_limit, job_by_id["8"].ends_at) == (None, None)
    assert (job_by_id["13"].reservation, job_by_id["19"].reservation, job_by_id["1"].reservation) == (
        "ml-hpc-0",
        "ml-hpc-1",
        "",
    )
    assert (job_by_id["16"].partitions, job_by_id["16"].partition, job_by_id["17"].priority) == (
        ("gpu", "batch"),
        "gpu",
        0,
    )


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"tres_alloc": "cpu=8,mem=7.50G,node=2,gres/gpu=4,gres/gpu:a100=4"}, "gpus", (Gres("gpu", "a100", 2),)),
        ({"tres_alloc": "cpu=8,mem=7.50G,node=2"}, "memory_mib", 7680),
        ({"tres_alloc": "cpu=8,mem=1P,node=1024"}, "memory_mib", 1 << 30),
        ({"tres_per_job": "gres/gpu:3"}, "gpus", (Gres("gpu", None, 2),)),
        ({"tres_per_task": "cpu=2,gres/gpu:a100=1"}, "gpus", (Gres("gpu", "a100", 2),)),
        ({"tres_per_node": "gres/tpu:1"}, "gpus", ()),
        ({"NumCPUs": "1K"}, "cpus", 1024),
        ({"NumNodes": "2-4", "State": "PENDING"}, "node_count", 2),
        ({"TimeLimit": "1-00:00:00"}, "time_limit", 86400),
        ({"TimeLimit": "Partition_Limit"}, "time_limit", None),
        ({"NodeList": "g[1-2]"}, "nodes", ("g1", "g2")),
        ({"State": "STOPPED"}, "phase", Phase.RUNNING),
    ],
)
def test_forms_of_larger_clusters(fields: dict[str, str], field: str, value: Any) -> None:
    """These fields come from clusters with accounting, many nodes or round numbers."""
    assert getattr(parse_jobs(record(CLUSTER, **{"NumNodes": "2", "NumCPUs": "8", **fields}), MARK)[0], field) == value


ODD_GRES = (
    "gres:gpu:k80|x:1",
    "gres:gpu:k 80:1",
    'gres:gpu:k"80:1',
    "gres:gpu:k(80):1",
    "gres:gpu:k\n80:1",
    "gres:gpu:k\\80:1",
    "gres:gpu:a:b:c",
    f"gres:gpu:x|\n8|RUNNING|None|{'|' * 30}\n:1",
)


@pytest.mark.parametrize("field", ["tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"])
@pytest.mark.parametrize("gres", ODD_GRES)
def test_a_job_of_odd_resources_is_kept_without_them(field: str, gres: str) -> None:
    """The job keeps its cores and memory, its GPUs are marked as unknown, and its neighbour is read as before."""
    unread: list[UnparsedField] = []
    odd, plain = parse_jobs(
        record(CLUSTER, JobID="7", tres_alloc="cpu=8,mem=7.50G,node=2", **{field: gres}) + record(CLUSTER),
        MARK,
        unread.append,
    )
    assert (odd.job_id, odd.cpus, odd.memory_mib, odd.gpus, odd.gpus_unknown) == ("7", 4, 7680, (), True)
    assert plain == parse_jobs(record(CLUSTER), MARK)[0]
    assert unread == [UnparsedField("job", "7", field.replace("_", "-"), partial=True)]


@pytest.mark.parametrize(
    ("printed", "tasks"),
    [
        ("N/A", 1),
        ("5", 1),
        ("4-99", 96),
        ("4-99%4", 4),
        ("5-6%4", 2),
        ("0-298:2", 150),
        ("1,3,5,7,9,20,23,26-29", 11),
        ("1,3,5,7,9,20,23,26,...", 8),
        ("9-1", 1),
        ("9" * 5000, 1),
    ],
)
def test_the_pending_tasks_of_a_job_array_are_counted(printed: str, tasks: int) -> None:
    """Slurm shows them as one job, and a long list of them not to its end; a limit says how many may run at once."""
    (job,) = parse_jobs(record(CLUSTER, State="PENDING", ArrayTaskID=printed), MARK)
    assert job.array_tasks == tasks


@settings(deadline=None)
@given(st.sampled_from(CLUSTER.owners), TEXTS)
def test_any_words_of_one_job_leave_the_others_as_they_were(field: str, text: str) -> None:
    """Whichever field a user writes, their job is read with its cores, and both neighbours are unchanged."""
    first = record(CLUSTER, JobID="6", tres_per_node="gres:gpu:k80:2")
    last = record(CLUSTER, JobID="9")
    cluster_jobs = parse_jobs(first + record(CLUSTER, **{field.replace("-", "_"): text}) + last, MARK)
    assert [job.job_id for job in cluster_jobs] == ["6", "8", "9"]
    assert (cluster_jobs[0], cluster_jobs[2]) == (*parse_jobs(first, MARK), *parse_jobs(last, MARK))
    assert cluster_jobs[1].cpus == 4


@settings(deadline=None)
@given(st.sampled_from(CLUSTER.slurms), TEXTS.filter(lambda text: "|" not in text))
def test_an_odd_field_of_slurms_own_leaves_the_others_as_they_were(field: str, text: str) -> None:
    """Such a record is read or left out, and never makes the answer fail."""
    first = record(CLUSTER, JobID="6", tres_per_node="gres:gpu:k80:2")
    last = record(CLUSTER, JobID="9")
    cluster_jobs = parse_jobs(first + record(CLUSTER, **{field.replace("-", "_"): text}) + last, MARK)
    assert (cluster_jobs[0], cluster_jobs[-1]) == (*parse_jobs(first, MARK), *parse_jobs(last, MARK))
    assert len(cluster_jobs) in (2, 3)
