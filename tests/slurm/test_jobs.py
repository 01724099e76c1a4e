"""All jobs of the cluster are read, and no user text can pass for another job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob, Unread
from jupyterhub_gpuspawner.slurm.squeue import OWN_WORDS, PLAIN, job_columns, parse_jobs
from jupyterhub_gpuspawner.units import Gres
from tests.slurm.recorded import MARK, VERSIONS, recorded


def jobs(version: str) -> dict[str, ClusterJob]:
    """The jobs of the recorded cluster."""
    return {job.job_id: job for job in parse_jobs(recorded(version, "cluster", "squeue").stdout, MARK)}


def test_columns_are_those_of_the_recorded_answers() -> None:
    """Slurm's own fields come first, each at full width; then, between marks, the fields that users write."""
    assert job_columns(MARK) == (
        "JobID:|,State:|,Reason:|,UserName:|,Partition:|,PriorityLong:|,NodeList:|,NumNodes:|,NumCPUs:|,NumTasks:|,"
        "tres-alloc:|,SubmitTime:|,StartTime:|,EndTime:|,TimeLimit:|0123456789abcdef|,"
        "tres-per-job:|0123456789abcdef|,tres-per-node:|0123456789abcdef|,tres-per-socket:|0123456789abcdef|,"
        "tres-per-task:|0123456789abcdef|,Reservation:|0123456789abcdef|,Account:|0123456789abcdef|,"
        "Name:|0123456789abcdef|,Comment:|0123456789abcdef"
    )


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
    found = jobs(version)
    assert found["1"].submitted_at == submitted
    start, estimate, later = found["1"].starts_at or 0, found["14"].starts_at, found["14"].submitted_at
    assert found["1"] == ClusterJob(
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
    assert found["14"] == ClusterJob(
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
    found = {job_id: [str(gres) for gres in job.gpus] for job_id, job in jobs(version).items() if job.nodes}
    assert found == {
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
    found = jobs(version)
    forged = found["20"]
    assert (forged.account, forged.name, forged.tag) == ("a|b", "one\n7|two", "x|\n1|FAILED|y")
    assert (found["1"].state, found["7"].name) == ("RUNNING", "wrap")


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_reservations_and_partitions(version: str) -> None:
    """A job has no end without a limit, may be in a reservation, and may be pending in several partitions."""
    found = jobs(version)
    assert (found["8"].time_limit, found["8"].ends_at) == (None, None)
    assert (found["13"].reservation, found["19"].reservation, found["1"].reservation) == ("ml-hpc-0", "ml-hpc-1", "")
    assert (found["16"].partitions, found["16"].partition, found["17"].priority) == (("gpu", "batch"), "gpu", 0)


def record(**told: str) -> str:
    """One job as squeue prints it."""
    usual = {
        **dict.fromkeys((*PLAIN, *OWN_WORDS), "N/A"),
        "JobID": "7",
        "State": "RUNNING",
        "NumNodes": "2",
        "NumCPUs": "8",
        "NumTasks": "4",
        "PriorityLong": "3",
    }
    told = {**usual, **{name.replace("_", "-"): value for name, value in told.items()}}
    own = f"|{MARK}|".join(told[name] for name in OWN_WORDS)
    return f"{'|'.join(told[name] for name in PLAIN)}|{MARK}|{own}|{MARK}\n"


@pytest.mark.parametrize(
    ("told", "field", "value"),
    [
        ({"tres_alloc": "cpu=8,mem=7.50G,node=2,gres/gpu=4,gres/gpu:a100=4"}, "gpus", (Gres("gpu", "a100", 2),)),
        ({"tres_alloc": "cpu=8,mem=7.50G,node=2"}, "memory_mib", 7680),
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
def test_forms_of_larger_clusters(told: dict[str, str], field: str, value: Any) -> None:
    """These fields come from clusters with accounting, many nodes or round numbers."""
    assert getattr(parse_jobs(record(**told), MARK)[0], field) == value


@pytest.mark.parametrize(
    "text",
    ["7|RUNNING", f"7|RUNNING|{MARK}\n", record(JobID="x"), record(NumCPUs="many"), record(JobID="x") * 2],
)
def test_an_answer_of_which_nothing_is_understood_is_refused(text: str) -> None:
    """A truncated answer, too few columns, no job id or no number is an error, not a cluster without jobs."""
    with pytest.raises(SlurmOutputError):
        parse_jobs(text, MARK)


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
    unread: list[Unread] = []
    odd, plain = parse_jobs(
        record(tres_alloc="cpu=8,mem=7.50G,node=2", **{field: gres}) + record(JobID="8"), MARK, unread.append
    )
    assert (odd.job_id, odd.cpus, odd.memory_mib, odd.gpus, odd.gpus_unknown) == ("7", 8, 7680, (), True)
    assert plain == parse_jobs(record(JobID="8"), MARK)[0]
    assert unread == [Unread("job", "7", field.replace("_", "-"), kept=True)]


@pytest.mark.parametrize(("field", "told"), [("NumCPUs", "many"), ("StartTime", "soon"), ("TimeLimit", "x")])
def test_a_record_that_is_not_understood_is_left_out_and_named(field: str, told: str) -> None:
    """The report has the id and the field but not its text; the other jobs are read."""
    unread: list[Unread] = []
    found = parse_jobs(record(**{field: told}) + record(JobID="8"), MARK, unread.append)
    assert [job.job_id for job in found] == ["8"]
    assert unread == [Unread("job", "7", field)]


owners_text = st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: MARK not in text)


@settings(deadline=None)
@given(st.sampled_from(OWN_WORDS), owners_text)
def test_any_words_of_one_job_leave_the_others_as_they_were(field: str, text: str) -> None:
    """Whichever field a user writes, their job is read with its cores, and both neighbours are unchanged."""
    first, last = record(JobID="6", tres_per_node="gres:gpu:k80:2"), record(JobID="8")
    found = parse_jobs(first + record(**{field.replace("-", "_"): text}) + last, MARK)
    assert [job.job_id for job in found] == ["6", "7", "8"]
    assert (found[0], found[2]) == (*parse_jobs(first, MARK), *parse_jobs(last, MARK))
    assert found[1].cpus == 8


@settings(deadline=None)
@given(st.sampled_from(PLAIN), owners_text.filter(lambda text: "|" not in text))
def test_an_odd_field_of_slurms_own_leaves_the_others_as_they_were(field: str, text: str) -> None:
    """Such a record is read or left out, and never makes the answer fail."""
    first, last = record(JobID="6", tres_per_node="gres:gpu:k80:2"), record(JobID="8")
    found = parse_jobs(first + record(**{field.replace("-", "_"): text}) + last, MARK)
    assert (found[0], found[-1]) == (*parse_jobs(first, MARK), *parse_jobs(last, MARK))
    assert len(found) in (2, 3)


@settings(deadline=None)
@given(st.lists(owners_text, min_size=3))
def test_any_words_come_back_as_they_are(own: list[str]) -> None:
    """Any user text is read back completely, in the right field."""
    account, name, comment = own[:3]
    found = parse_jobs(record(Account=account, Name=name, Comment=comment) + record(JobID="8"), MARK)
    assert [job.job_id for job in found] == ["7", "8"]
    assert (found[0].name, found[0].tag) == (name, "" if comment == "(null)" else comment)


@pytest.mark.parametrize("version", VERSIONS)
def test_bars_in_some_names_change_no_job(version: str) -> None:
    """Among records that are read together, those in which an owner has written bars are found, and read alone."""
    text = recorded(version, "cluster", "squeue").stdout
    plain = parse_jobs(text, MARK)
    records = text.splitlines(keepends=True)
    odd = [
        each.replace(f"|{MARK}|wrap|{MARK}|", f"|{MARK}|{'a|' * (at % 40)}|{MARK}|") if at % 3 else each
        for at, each in enumerate(records)
    ]
    assert any(first != second for first, second in zip(records, odd, strict=True))
    found = parse_jobs("".join(odd), MARK)
    assert [job._replace(name="") for job in found] == [job._replace(name="") for job in plain]


def test_jobs_of_many_batches_stay_in_their_order() -> None:
    """Thousands of jobs, of which some are malformed and some have bars in their names."""
    names = {7: "|", 700: "a|b|", 1501: "|" * 31}
    text = "".join(record(JobID=str(at), Name=names.get(at, "wrap")) for at in range(1, 2001))
    text = text.replace("\n900|", "\n900|odd|")
    unread: list[Unread] = []
    found = parse_jobs(text, MARK, unread.append)
    assert [job.job_id for job in found] == [str(at) for at in range(1, 2001) if at != 900]
    assert {int(job.job_id): job.name for job in found if job.name != "wrap"} == names
    assert unread == [Unread("job", "900", "")]
