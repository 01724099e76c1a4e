"""``scontrol show job -d`` in three versions: one job's details, or an error where user text imitates fields."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.slurm.scontrol import parse_allocations, parse_job
from jupyterhub_gpuspawner.slurm.squeue import parse_squeue
from jupyterhub_gpuspawner.units import Gres, NodeAllocation
from tests.slurm.recorded import MARK, VERSIONS, recorded, with_owner

STARTS = {"22.05": 1795262301.0, "24.11": 1795262305.0, "26.05": 1795262309.0}


@pytest.mark.parametrize("version", VERSIONS)
def test_running_job_with_two_gpus(version: str) -> None:
    """State, times, log and tag are read, and the CPUs, memory and GPU indices on its node."""
    assert parse_job(recorded(version, "hub", "job_running").stdout, "1") == Job(
        "1",
        Phase.RUNNING,
        state="RUNNING",
        nodes="g1",
        batch_host="g1",
        user="ci",
        partition="gpu",
        starts_at=STARTS[version],
        ends_at=STARTS[version] + 86400,
        tag="gpuspawner:hub:alice:",
        name="wrap",
        uid=2001,
        time_limit=86400,
        stdout_path="/cl/jobs/1.log",
        allocations=(NodeAllocation("g1", (0, 1, 2, 3), 100, (Gres("gpu", "k80", 2, (0, 1)),)),),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_failed_job_keeps_its_exit_code_and_what_it_had(version: str) -> None:
    """The job has exit code 3 and no GPU."""
    found = parse_job(recorded(version, "hub", "job_failed").stdout, "2")
    assert found is not None
    assert (found.phase, found.end, found.reason, found.exit_code, found.tag) == (
        Phase.ENDED,
        End.FAILED,
        "NonZeroExitCode",
        "3:0",
        "gpuspawner:hub:alice:lab",
    )
    assert [(one.node, one.memory_mib, one.gres) for one in found.allocations] == [("g1", 100, ())]


def only(version: str, area: str, name: str) -> Job:
    """The job in a recorded answer."""
    text = recorded(version, area, name).stdout
    found = parse_job(text, text.removeprefix("JobId=").split()[0])
    assert found is not None
    return found


K80, V100, A100, MIG = "k80", "v100", "a100", "1g.10gb"


@pytest.mark.parametrize(
    ("version", "name", "allocations"),
    [
        ("22.05", "gpu2", [NodeAllocation("g1", (0, 1, 2, 3), 8000, (Gres("gpu", K80, 2, (0, 1)),))]),
        ("24.11", "gpu2", [NodeAllocation("g1", (0, 1, 2, 3), 8000, (Gres("gpu", K80, 2, (0, 1)),))]),
        ("26.05", "gpu2", []),  # was pending there
        ("22.05", "a100", [NodeAllocation("m1", (1,), 500, (Gres("gpu", A100, 0),))]),  # 22.05 allocated none
        ("24.11", "a100", [NodeAllocation("m1", (1,), 500, (Gres("gpu", A100, 1, (4,)),))]),
        ("26.05", "mig", [NodeAllocation("m1", (0,), 500, (Gres("gpu", MIG, 1, (0,)),))]),
        ("22.05", "shard", [NodeAllocation("s1", (0,), 500, (Gres("shard", None, 3, (0,)),))]),
        ("24.11", "shard", [NodeAllocation("s1", (0,), 500, (Gres("shard", None, 3, (0,)),))]),
        ("26.05", "shard", [NodeAllocation("s1", (1,), 500, (Gres("shard", None, 3, (1,)),))]),
        ("24.11", "shard_b", [NodeAllocation("s1", (1,), 500, (Gres("shard", None, 2, (1,)),))]),
        ("26.05", "gpus", [NodeAllocation("d1", (20,), 500, (Gres("gpu", V100, 2, (4, 5)),))]),
        ("22.05", "untyped", [NodeAllocation("u1", (0,), 500, (Gres("gpu", None, 1, (0,)),))]),
        ("24.11", "ht", [NodeAllocation("h1", (0, 1, 2, 3), 2000)]),
        ("22.05", "suspended", [NodeAllocation("c3", (12,), 500)]),
        (
            "24.11",
            "gpu_multi",
            [
                NodeAllocation("g1", (12,), 1000, (Gres("gpu", K80, 1, (2,)),)),
                NodeAllocation("g2", (0,), 1000, (Gres("gpu", K80, 1, (0,)),)),
            ],
        ),
    ],
)
def test_what_a_running_job_holds(version: str, name: str, allocations: list[NodeAllocation]) -> None:
    """CPUs, MiB and GPUs of each node: typed and untyped GPUs, MIG, shards, hardware threads, two nodes."""
    assert list(only(version, "scontrol", f"job_run_{name}").allocations) == allocations


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("area", "name", "state", "reason", "end", "exit_codes"),
    [
        ("scontrol", "job_completed", "COMPLETED", "", End.FINISHED, {"0:0"}),
        ("scontrol", "job_failed", "FAILED", "NonZeroExitCode", End.FAILED, {"3:0"}),
        ("scontrol", "late_timeout", "TIMEOUT", "TimeLimit", End.TIME_LIMIT, {"0:15"}),
        ("scontrol", "job_dl2", "DEADLINE", "DeadLine", End.TIME_LIMIT, {"0:1"}),
        ("scontrol", "job_cancel_running", "CANCELLED", "", End.CANCELLED, {"0:15"}),
        ("scontrol", "job_node_fail", "NODE_FAIL", "NodeDown", End.NODE_FAILED, {"0:0", "0:1"}),
        ("scontrol", "late_preempt_can", "PREEMPTED", "", End.PREEMPTED, {"0:0", "0:15"}),
        ("cgroup_v1", "oom_job", "OUT_OF_MEMORY", "OutOfMemory", End.OUT_OF_MEMORY, {"0:125"}),
    ],
)
def test_how_jobs_ended(
    version: str,
    area: str,
    name: str,
    state: str,
    reason: str,
    end: End,
    exit_codes: set[str],
) -> None:
    """Each recorded end is read in three versions, which differ in a few exit codes."""
    found = only(version, area, name)
    assert (found.state, found.reason, found.end) == (state, reason, end)
    assert found.exit_code in exit_codes


@pytest.mark.parametrize(
    ("name", "phase", "reason"),
    [
        ("job_pend_resources", Phase.QUEUED, None),
        ("job_requeued_hold", Phase.QUEUED, "job requeued in held state"),
        ("job_special", Phase.QUEUED, "job requeued in held state"),
        ("job_cloud", Phase.STARTING, ""),
        ("job_completing_now", Phase.ENDING, ""),
        ("job_run_suspended", Phase.RUNNING, ""),
        ("job_prolog_fail", Phase.QUEUED, "launch failed requeued held"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_on_their_way(version: str, name: str, phase: Phase, reason: str | None) -> None:
    """Phases before and after running are read; underscores in a reason become blanks."""
    found = only(version, "scontrol", name)
    assert found.phase is phase
    assert reason is None or found.reason == reason


def test_job_without_time_limit_has_none() -> None:
    """UNLIMITED becomes None, and so does the end of such a job."""
    found = only("24.11", "scontrol", "job_run_unlimited")
    assert (found.time_limit, found.ends_at, found.ends_at_iso) == (None, None, None)


def test_a_deadline_says_when_the_job_must_have_started() -> None:
    """The deadline less the time limit, or less the shortest time with which the job may run."""
    text = recorded("24.11", "hub", "job_running").stdout
    limit = only("24.11", "hub", "job_running").time_limit
    at = re.sub(r" Deadline=\S+", " Deadline=1800000000", text)
    shorter = re.sub(r" TimeMin=\S+", " TimeMin=00:05:00", at)

    assert limit is not None
    assert [found.latest_start for each in (text, at, shorter) if (found := parse_job(each, "1"))] == [
        None,
        1800000000.0 - limit,
        1800000000.0 - 300,
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_array_answers_with_all_its_tasks_and_one_is_picked(version: str) -> None:
    """``show job 50`` prints jobs 50, 107 and 108: the requested one is returned, or None if it is absent."""
    text = recorded(version, "scontrol", "job_array").stdout
    ids = re.findall(r"^JobId=(\d+)", text, re.MULTILINE)
    assert len(ids) > 1
    found = [parse_job(text, job_id) for job_id in ids]
    assert [one.job_id for one in found if one] == ids
    assert parse_job(text, "5") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_job_on_two_nodes_has_two_allocations(version: str) -> None:
    """Each node has its own allocation, even where Slurm folds two of them into one line."""
    found = only(version, "hub", "job_two_nodes")
    assert (found.nodes, found.batch_host) == ("g[1-2]", "g1")
    assert {one.node: [(g.name, g.type, g.count, len(g.indices)) for g in one.gres] for one in found.allocations} == {
        "g1": [("gpu", "k80", 1, 1)],
        "g2": [("gpu", "k80", 1, 1)],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_name_that_imitates_a_field_is_refused(version: str) -> None:
    """A job named ``x JobState=FAILED`` is ambiguous, and the error names the field."""
    with pytest.raises(SlurmOutputError, match="Job 5 has JobState twice"):
        parse_job(recorded(version, "hub", "job_forged").stdout, "5")


def test_name_that_imitates_a_whole_job_is_refused() -> None:
    """A newline and a forged record in a name give two records for one job, which is an error."""
    text = recorded("24.11", "hub", "job_running").stdout
    forged = (
        text.replace("JobId=1 JobName=wrap", "JobId=9 JobName=x\n" + text.replace("g1", "evil").rstrip("\n"), 1) + text
    )
    with pytest.raises(SlurmOutputError, match="listed job 1 twice"):
        parse_job(forged, "1")


@pytest.mark.parametrize("field", ["JobState", "ExitCode", "NodeList", "EndTime"])
def test_missing_field_is_named(field: str) -> None:
    """An answer without a required field is refused with an error that names it."""
    text = recorded("24.11", "hub", "job_running").stdout.replace(f" {field}=", f" Other{field}=", 1)
    with pytest.raises(SlurmOutputError, match=f"did not report {field} of job 1"):
        parse_job(text, "1")


@pytest.mark.parametrize("version", VERSIONS)
def test_comment_with_newline_and_blanks_is_read_to_its_end(version: str) -> None:
    """The comment is the text between ``Comment=`` and ``StdErr=``."""
    assert only(version, "scontrol", "job_name2").tag == "new\nline"
    assert only(version, "scontrol", "job_run_gpu2").tag == "hub=a|b c"


def records(text: str) -> list[str]:
    """The records of an answer, one for each job."""
    return [record for record in re.split(r"^(?=JobId=\d+ )", text, flags=re.MULTILINE) if record.startswith("JobId=")]


EVERY = [("22.05", "jobs_late_d_o"), ("24.11", "jobs_late_d_o"), ("26.05", "jobs_all_o")]


@pytest.mark.parametrize(("version", "name"), EVERY)
@pytest.mark.usefixtures("utc")
def test_every_recorded_job_is_read(version: str, name: str) -> None:
    """Over a hundred jobs of each version have a known state; running ones have host and start, ended ones an end."""
    found = [
        parse_job(record, record.removeprefix("JobId=").split()[0])
        for record in records(recorded(version, "scontrol", name).stdout)
    ]
    assert len(found) > 80
    assert [one for one in found if one is None or one.phase is Phase.UNKNOWN] == []
    assert [one for one in found if one and one.phase is Phase.RUNNING and not (one.batch_host and one.starts_at)] == []
    assert [one for one in found if one and one.end and one.ends_at is None] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_both_commands_tell_the_same(version: str) -> None:
    """squeue and scontrol give the same status for a job."""
    squeue = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout, "2001", "wrap"), MARK)
    for job_id, name in (("1", "job_running"), ("2", "job_failed"), ("6", "job_two_nodes"), ("7", "job_cancelled")):
        detail = parse_job(recorded(version, "hub", name).stdout, job_id)
        assert detail is not None
        in_squeue = replace(detail, time_limit=None, latest_start=None, stdout_path="", allocations=())
        assert in_squeue == squeue[job_id]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_what_every_job_has_in_one_answer(version: str) -> None:
    """One answer gives the GPUs of all jobs: on two nodes, a shard, a MIG device, several on one node."""
    found = parse_allocations(recorded(version, "scontrol", "jobs_late_d_o").stdout)
    gpus = {job: {part.node: tuple(map(str, part.gres)) for part in parts} for job, parts in found.items()}
    assert {job: gpus[job] for job in ("38", "39", "41", "45", "54")} == {
        "38": {"g1": ("gpu:k80:1",), "g2": ("gpu:k80:1",)},
        "39": {"s1": ("shard:3",)},
        "41": {"m1": ("gpu:1g.10gb:1",)},
        "45": {"d1": ("gpu:v100:3",)},
        "54": {"c3": ()},
    }
    assert found["45"][0].gres[0].indices == (4, 5, 6)


def test_a_job_whose_name_imitates_another_gives_neither() -> None:
    """If a name imitates a whole job, neither of the two is reported; a job with fields in its name is left out."""
    text = recorded("22.05", "scontrol", "jobs_late_d_o").stdout
    (real,) = (line for line in text.splitlines() if line.startswith("JobId=37 "))
    forged = real.replace("JobId=37 ", "JobId=45 ").replace("(IDX:0-1)", "(IDX:0-7)")
    named = real.replace("JobId=37 ", "JobId=900 ").replace("JobName=plain", "JobName=CoreSpec=* MinCPUsNode=1")
    found = parse_allocations(text + forged + "\n" + named + "\n")
    assert "37" in found
    assert not {"45", "900"} & set(found)


def test_a_job_with_threads_set_aside_is_read() -> None:
    """With --thread-spec, scontrol prints ThreadSpec= in the place of CoreSpec=."""
    text = recorded("24.11", "hub", "job_running").stdout
    threads = text.replace(" CoreSpec=*", " ThreadSpec=2")

    assert threads != text
    assert parse_job(threads, "1") == parse_job(text, "1")
    assert parse_allocations(threads) == parse_allocations(text) != {}


def test_no_jobs_have_nothing() -> None:
    """Slurm prints a sentence for an empty cluster."""
    assert parse_allocations("No jobs in the system\n") == {}
