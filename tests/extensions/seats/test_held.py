"""Which jobs of a site hold resources, from squeue's answer and the details of scontrol."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.seats.held import (
    JOBS,
    JOBS_EXCLUSIVE,
    HeldJob,
    WaitingJob,
    holders,
    read_jobs,
    with_details,
)
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.slurm.snapshot import ClusterJob
from jupyterhub_gpuspawner.slurm.squeue import Question
from jupyterhub_gpuspawner.units import Gres, NodeAllocation

MARK = "0123456789abcdef"
DETAILS = "JobId={} JobName={} UserId=ada(1) CoreSpec=* {} MinCPUsNode=1 Command=x\n"
ON = "Nodes={} CPU_IDs={} Mem={} GRES={} "
SPLIT = ON.format("g1", "0-3", 300, "gpu:k80:2(IDX:0-1)") + ON.format("g2", "0-1", 100, "gpu:k80:2(IDX:2-3)")


def line(job_id: str = "7", question: Question = JOBS, /, **changed: str) -> str:
    """A record of squeue: six CPUs and four GPUs on two nodes, until 5,000, with these fields changed."""
    values = {
        **dict.fromkeys((*question.slurms, *question.owners), ""),
        "JobID": job_id,
        "State": "RUNNING",
        "UserName": "ada",
        "Partition": "gpu",
        "NodeList": "g[1-2]",
        "NumNodes": "2",
        "NumCPUs": "6",
        "tres-alloc": "cpu=6,mem=400M,node=2,gres/gpu=4,gres/gpu:k80=4",
        "StartTime": "1000",
        "EndTime": "5000",
        "TimeLimit": "1:06:40",
        "OverSubscribe": "OK",
        "Licenses": "(null)",
        **changed,
    }
    trusted, written = (
        "|".join(values[name] for name in question.slurms),
        [values[name] for name in question.owners],
    )
    return f"|{MARK}|".join([trusted, *written]) + f"|{MARK}\n"


def held(**changed: object) -> HeldJob:
    """That job, as it is read."""
    job = ClusterJob(
        "7",
        Phase.RUNNING,
        "RUNNING",
        user="ada",
        partitions=("gpu",),
        nodes=("g1", "g2"),
        node_count=2,
        cpus=6,
        memory_mib=400,
        gpus=(Gres("gpu", "k80", 2),),
        starts_at=1000.0,
        ends_at=5000.0,
        time_limit=4000,
    )
    of_job = {name: changed.pop(name) for name in list(changed) if name in ClusterJob._fields}
    tres = {"cpu": 6.0, "mem": 400.0, "node": 2.0, "gres/gpu": 4.0, "gres/gpu:k80": 4.0}
    return HeldJob(job._replace(**of_job), tres=tres, **changed)  # type: ignore[arg-type]


PARTS = (
    NodeAllocation("g1", (0, 1, 2, 3), 300, (Gres("gpu", "k80", 2, (0, 1)),)),
    NodeAllocation("g2", (0, 1), 100, (Gres("gpu", "k80", 2, (2, 3)),)),
)
CASES = {
    "details": (line(), DETAILS.format("7", "x", SPLIT), held(allocations=PARTS)),
    "no details": (line(), "No jobs in the system\n", held()),
    "twice": (line(), DETAILS.format("7", "x", SPLIT) * 2, held()),
    "other nodes": (line(), DETAILS.format("7", "x", SPLIT.replace("g2", "g3")), held()),
    "a node more": (line(), DETAILS.format("7", "x", SPLIT + ON.format("g3", "0", 1, "")), held()),
    "a name with fields": (line(), DETAILS.format("7", "CoreSpec=* MinCPUsNode=1", SPLIT), held()),
    "a job that squeue does not list": (
        line(),
        DETAILS.format("7", "x", SPLIT) + DETAILS.format("8", "x", SPLIT),
        held(allocations=PARTS),
    ),
    "no limit": (line(TimeLimit="UNLIMITED", EndTime="NONE"), "", held(ends_at=None, time_limit=None)),
    "a node alone": (line(OverSubscribe="NO"), "", held(exclusive=True)),
    "suspended": (line(State="SUSPENDED"), "", held(state="SUSPENDED")),
    "licences": (line(Licenses="matlab:2,a@b"), "", held(licenses=(Gres("matlab", None, 2), Gres("a_b")))),
    "licences that nobody reads": (line(Licenses="\n|,;="), "", held()),
    "a comment with a job": (line(Comment=f"x|\n{line('9')[:40]}"), "", held(tag=f"x|\n{line('9')[:40]}")),
    "an account with a blank": (line(UserName="DOM\\john doe"), "", held(user="DOM\\john doe")),
    "waiting": (line() + line("8", State="PENDING", NodeList=""), "", held()),
    "ending": (line() + line("8", State="COMPLETING"), "", held()),
}


@pytest.mark.parametrize(("queue", "details", "job"), CASES.values(), ids=CASES)
def test_jobs_are_those_of_squeue_and_only_their_shares_are_those_of_scontrol(
    queue: str, details: str, job: HeldJob
) -> None:
    assert with_details(read_jobs(queue, MARK)[0], details) == (job,)


SHARING = {
    "OK": (False, False),
    "NO": (True, False),
    "NODE": (False, True),
    "USER": (True, True),
    "TOPO": (False, True),
}


@pytest.mark.parametrize(("word", "whole"), SHARING.items())
def test_whole_nodes_are_told_by_what_the_version_prints(word: str, whole: tuple[bool, bool]) -> None:
    """Slurm 26.05 prints ``OverSubscribe=NO`` of each job, and ``Exclusive=NODE`` of those that have whole nodes."""
    older, newer = line(OverSubscribe=word), line("7", JOBS_EXCLUSIVE, Exclusive=word)
    ((of_older,), _), ((of_newer,), _) = read_jobs(older, MARK), read_jobs(newer, MARK, JOBS_EXCLUSIVE)
    assert (of_older.exclusive, of_newer.exclusive) == whole


WAITS = {"State": "PENDING", "NodeList": "", "NumNodes": "1", "NumCPUs": "2", "NumTasks": "1"}
REQUESTS = {
    "of a node": (
        {"tres-per-node": "gres:gpu:k80:2", "Feature": "k80|p100", "OverSubscribe": "NO", "Reservation": "a b"},
        ("--gres=gpu:k80:2", "--constraint=k80|p100", "--reservation=a b", "--exclusive"),
    ),
    "of the job": ({"tres-per-job": "gres/gpu:3"}, ("--gpus=3",)),
    "of each task": (
        {"tres-per-task": "gres/gpu=1", "NumTasks": "2", "NumCPUs": "4", "ReqNodes": "g1"},
        ("--gpus-per-task=1", "--nodelist=g1"),
    ),
    "of nothing else": ({"tres-per-node": "N/A", "Licenses": "(null)"}, ()),
}


@pytest.mark.parametrize(("changed", "options"), REQUESTS.values(), ids=REQUESTS)
def test_a_job_that_waits_requests_in_the_twin_what_it_requests_at_the_site(
    changed: dict[str, str], options: tuple[str, ...]
) -> None:
    """Whatever form the version of Slurm has for it."""
    text = line(**{**WAITS, "tres-alloc": "cpu=2,mem=1G,node=1,billing=2", "QOS": "long", **changed})
    ((waits,),) = read_jobs(text, MARK)[1:]
    first = (
        "--partition=gpu",
        "--nodes=1",
        f"--ntasks={changed.get('NumTasks', 1)}",
        "--cpus-per-task=2",
        "--mem=1024",
    )

    assert isinstance(waits, WaitingJob)
    assert (waits.options, waits.qos) == ((*first, *options, "--time=66"), "long")


def test_a_job_whose_shares_are_not_known_holds_as_much_on_each_node() -> None:
    """What it has in all is held in any case."""
    at = {"g1": 1, "g2": 1}
    shape = ("--partition=gpu", "--cpus-per-task=3", "--mem=200", "--gres=gpu:k80:2")

    assert holders([held()], at, 2000.0) == [[*shape, "--nodes=2", "--nodelist=g[1-2]", "--time=50"]]
    assert [options[1] for options in holders([held(allocations=PARTS)], at, 2000.0)] == [
        "--cpus-per-task=4",
        "--cpus-per-task=2",
    ]
