"""squeue's answer is read completely, and no job's comment can pass for another job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.slurm.snapshot import Unread
from jupyterhub_gpuspawner.slurm.squeue import COLUMNS, columns, parse_squeue
from tests.slurm.recorded import MARK, VERSIONS, recorded, with_owner

FORGED = "x|\n1|FAILED|NonZeroExitCode|1|2|evil|evil|gpu|root|256|forged|0123456789abcdeg\n1|FAILED|y"
"""The comment of job 5 in the recorded answers: it imitates whole lines of job 1, with a nearly correct mark."""


def test_columns_are_those_of_the_recorded_answers() -> None:
    """-O has each field at full width (``:|``), and marks after the comment and after the last field, the name."""
    assert columns(MARK) == (
        "JobID:|,State:|,Reason:|,StartTime:|,EndTime:|,BatchHost:|,NodeList:|,Partition:|,UserName:|,exit_code:|,"
        "Comment:|0123456789abcdef|,UserID:|,Name:|0123456789abcdef"
    )


@pytest.mark.parametrize(
    ("version", "start"),
    [("22.05", 1795262301.0), ("24.11", 1795262305.0), ("26.05", 1795262309.0)],
)
def test_running_failed_and_held_jobs_of_each_version(version: str, start: float) -> None:
    """Every field of a running, a failed, a held and a two-node job is the same in three versions."""
    found = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout), MARK)
    ends = recorded(version, "hub", "squeue_all").stdout
    failed_end = float(ends.split("2|FAILED|NonZeroExitCode|")[1].split("|")[1])
    assert {(job.uid, job.name) for job in found.values()} == {(1000, "a job")}
    assert [replace(found[job_id], uid=None, name="") for job_id in ("1", "2", "3", "6")] == [
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
    found = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout), MARK)
    assert {job_id: status.tag for job_id, status in found.items() if status.tag} == {
        "1": "gpuspawner:hub:alice:",
        "2": "gpuspawner:hub:alice:lab",
        "5": FORGED,
        "8": "later",
    }
    assert (found["1"].state, found["1"].batch_host) == ("RUNNING", "g1")


@pytest.mark.parametrize("version", VERSIONS)
def test_death_by_a_signal_and_cancellation_carry_their_exit_codes(version: str) -> None:
    """22.05 prints the wait status (9), later versions ``0:9``; both are read as exit code and signal."""
    found = parse_squeue(with_owner(recorded(version, "hub", "squeue_all").stdout), MARK)
    assert {job_id: (found[job_id].end, found[job_id].exit_code) for job_id in ("4", "7")} == {
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
    found = parse_squeue(with_owner(f"7|FAILED|None|1|2|g1|g1|gpu|a|{printed}||{MARK}\n"), MARK)
    assert found["7"].exit_code == exit_code


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
    found = parse_squeue(with_owner("".join(lines)), MARK).values()
    assert len(found) == len(lines) > 0
    assert [status for status in found if status.phase is Phase.UNKNOWN] == []
    assert [status for status in found if status.phase is Phase.RUNNING and not status.batch_host] == []
    assert [status for status in found if status.phase is Phase.QUEUED and status.batch_host] == []
    assert [status for status in found if (status.end is None) == (status.phase is Phase.ENDED)] == []


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("7|RUNNING|None", "7|RUNNING|None"),
        (with_owner(f"7|RUNNING|None|{MARK}\n"), "7|RUNNING|None"),
        (with_owner(f"abc{'|x' * 10}|{MARK}\n"), f"abc{'|x' * 10}"),
        (with_owner(f"٣{'|x' * 10}|{MARK}\n"), f"٣{'|x' * 10}"),
        (with_owner(f"7|RUNNING|None|yesterday|N/A|g1|g1|gpu|a|0:0||{MARK}\n"), "yesterday"),
        (f"7{'|x' * 10}|{MARK}\n", f"7{'|x' * 10}"),
        (with_owner(f"7{'|x' * 10}|{MARK}\n", uid="root"), f"7{'|x' * 10}|{MARK}|root|a job"),
    ],
)
def test_odd_answer_is_refused_with_its_text(text: str, raw: str) -> None:
    """A truncated answer, too few columns, no job id, no time or no owner is refused, and the error quotes the text."""
    with pytest.raises(SlurmOutputError) as caught:
        parse_squeue(text, MARK)
    assert caught.value.raw == raw


def test_a_record_that_does_not_fit_is_left_out_and_named() -> None:
    """One job has an invalid time and one no id; the third is read."""
    unread: list[Unread] = []
    good = with_owner(f"8|RUNNING|None|1|2|g1|g1|gpu|a|0:0||{MARK}\n")
    odd = with_owner(f"7|RUNNING|None|yesterday|N/A|g1|g1|gpu|a|0:0||{MARK}\n") + with_owner(f"x|y|{MARK}\n")
    assert parse_squeue(odd + good, MARK, unread.append) == parse_squeue(good, MARK)
    assert unread == [Unread("job", "7", "StartTime"), Unread("job", "", "")]


def test_no_jobs_is_a_good_answer() -> None:
    """Empty output means that there are no jobs."""
    assert parse_squeue("", MARK) == {}


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: MARK not in text)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_any_comment_and_any_name_come_back_as_they_are(jobs: list[tuple[str, str]]) -> None:
    """Whatever users write is read back completely, each text with its own job."""
    row = "|".join(["RUNNING", *["x"] * (len(COLUMNS) - 3)]).replace("x|x|x|", "None|N/A|N/A|", 1)
    text = "".join(f"{n}|{row}|{comment}|{MARK}|{n}|{name}|{MARK}\n" for n, (comment, name) in enumerate(jobs))
    expected = {str(n): ("" if comment == "(null)" else comment, name, n) for n, (comment, name) in enumerate(jobs)}
    found = parse_squeue(text, MARK)
    assert {job_id: (job.tag, job.name, job.uid) for job_id, job in found.items()} == expected
