"""What if: a site after a change, and what its jobs get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.seats.outcome import JobOutcome, Share, SiteOutcome, near_cpus, outcome
from jupyterhub_gpuspawner.extensions.seats.site import Site, question_of
from jupyterhub_gpuspawner.extensions.seats.twin import Answer, Answers
from jupyterhub_gpuspawner.extensions.seats.what_if import with_gres_conf, with_nodes, with_parameter
from jupyterhub_gpuspawner.units import NodeAllocation, expand_nodelist, parse_cpulist, parse_gres
from tests.extensions.seats.site_answers import NOW, config, node, partition, site

GRES_CONF = """\
AutoDetect=off
NodeName=g[1-2] Name=gpu Type=k80 File=/dev/nvidia[0-1] Cores=0-11
NodeName=g[1-2] Name=gpu Type=k80 File=/dev/nvidia[2-3] Cores=12-23  # the second socket
"""
TODAY = site(
    [node("g1", "gpu:k80:4"), node("g2", "gpu:k80:4", state="DOWN"), node("c1")],
    [partition("gpu", "g[1-2]"), partition("all", "c1,g[1-2]", default=False)],
    gres_conf=GRES_CONF,
)


def twin_of(of: Site) -> tuple[list[str], dict[str, str], list[str], str]:
    """The nodes, partitions, devices and drained nodes of its twin."""
    document = question_of(of, [], at=NOW).document
    gres = ({**line, "NodeName": names(line["NodeName"])} for line in document["gres"])
    return (
        [line["NodeName"] for line in document["nodes"]],
        {line["PartitionName"]: names(line["Nodes"]) for line in document["partitions"]},
        [" ".join(f"{key}={value}" for key, value in line.items()) for line in gres],
        names(document["drained"]),
    )


def names(host_list: str) -> str:
    """The nodes of a host list, one by one."""
    return ",".join(sorted(expand_nodelist(host_list)))


K80 = "Name=gpu Type=k80 File=/dev/nvidia"
CHANGES: dict[str, tuple[Callable[[Site], Site], tuple[list[str], dict[str, str], list[str], str]]] = {
    "none": (
        lambda of: of,
        (
            ["g1", "g2", "c1"],
            {"gpu": "g1,g2", "all": "c1,g1,g2"},
            [f"NodeName=g1,g2 {K80}[0-1] Cores=0-11", f"NodeName=g1,g2 {K80}[2-3] Cores=12-23"],
            "g2",
        ),
    ),
    "nodes like one that is down are idle": (
        lambda of: with_nodes(of, "g[3-4]=g2"),
        (
            ["g1", "g2", "c1", "g3", "g4"],
            {"gpu": "g1,g2,g3,g4", "all": "c1,g1,g2,g3,g4"},
            [f"NodeName=g1,g2,g3,g4 {K80}[0-1] Cores=0-11", f"NodeName=g1,g2,g3,g4 {K80}[2-3] Cores=12-23"],
            "g2",
        ),
    ),
    "a node like one of a single partition": (
        lambda of: with_nodes(of, "c2=c1"),
        (
            ["g1", "g2", "c1", "c2"],
            {"gpu": "g1,g2", "all": "c1,c2,g1,g2"},
            [f"NodeName=g1,g2 {K80}[0-1] Cores=0-11", f"NodeName=g1,g2 {K80}[2-3] Cores=12-23"],
            "g2",
        ),
    ),
    "lines for one node": (
        lambda of: with_gres_conf(of, f"NodeName=g2 {K80}[0-3]"),
        (
            ["g1", "g2", "c1"],
            {"gpu": "g1,g2", "all": "c1,g1,g2"},
            [
                f"NodeName=g1 {K80}[0-1] Cores=0-11",
                f"NodeName=g1 {K80}[2-3] Cores=12-23",
                f"NodeName=g2 {K80}[0-3]",
            ],
            "g2",
        ),
    ),
    "lines for all nodes": (
        lambda of: with_gres_conf(of, f"name=gpu type=k80 file=/dev/nvidia[0-3]  # {K80}"),
        (["g1", "g2", "c1"], {"gpu": "g1,g2", "all": "c1,g1,g2"}, [f"NodeName=g1,g2 {K80}[0-3]"], "g2"),
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_one_of_the_nodes_partitions_and_devices_that_it_names(
    change: Callable[[Site], Site], expected: tuple[list[str], dict[str, str], list[str], str]
) -> None:
    """New nodes are in the partitions of the one they are like; lines replace all those of the nodes that they name."""
    assert twin_of(change(TODAY)) == expected


PARAMETERS = {
    "SelectTypeParameters=CR_Core": {"SelectTypeParameters": "CR_Core"},
    "selecttypeparameters=CR_CPU_Memory": {"SelectTypeParameters": "CR_CPU_Memory"},
    "SelectType=select/linear": {"SelectType": "select/linear"},
    "DefMemPerNode=4000": {"DefMemPerCPU": None, "DefMemPerNode": "4000"},
    "JobDefaults=DefCpuPerGPU=4": {"DefCpuPerGPU": "4"},
}


@pytest.mark.parametrize(("setting", "changed"), PARAMETERS.items())
def test_a_parameter_is_in_the_place_of_the_sites(setting: str, changed: dict[str, str | None]) -> None:
    """Memory by CPU and by node exclude each other (slurm.conf(5))."""
    today = site([node("g1")], [partition("gpu", "g1")], config=config(DefMemPerCPU="1000"))
    before, after = (question_of(of, [], at=NOW).document["config"] for of in (today, with_parameter(today, setting)))
    assert {key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)} == changed


ALLOWED = (
    "DefMemPerCPU, DefMemPerNode, EnforcePartLimits, JobDefaults, MaxMemPerCPU, MaxMemPerNode, MaxTasksPerNode, "
    "SelectType, SelectTypeParameters"
)
FAULTS: dict[str, tuple[Callable[[Site], Site], str]] = {
    "a parameter of others": (
        lambda of: with_parameter(of, "Prolog=/bin/true"),
        f"--set: 'Prolog' is no parameter that can be set. These can: {ALLOWED}.",
    ),
    "no value": (lambda of: with_parameter(of, "SelectType"), "--set: 'SelectType' is not NAME=VALUE, in one word."),
    "two lines": (
        lambda of: with_parameter(of, "SelectTypeParameters=CR_Core\nProlog=/x"),
        "--set: 'SelectTypeParameters=CR_Core\\nProlog=/x' is not NAME=VALUE, in one word.",
    ),
    "a plugin that would be another one": (
        lambda of: with_parameter(of, "SelectType=select/cons_res"),
        "--set: 'select/cons_res' cannot be tried. Use select/cons_tres or select/linear.",
    ),
    "nodes like nothing": (lambda of: with_nodes(of, "g9"), "--add-nodes: 'g9' is not NEW=LIKE, such as g[4-5]=g1."),
    "nodes like an unknown one": (
        lambda of: with_nodes(of, "g9=g8"),
        "--add-nodes: Slurm has no node 'g8' that they could be like.",
    ),
    "a node that is there": (
        lambda of: with_nodes(of, "g[2-3]=g1"),
        "--add-nodes: Slurm has node 'g2' already. Use names that are new.",
    ),
    "no host list": (
        lambda of: with_nodes(of, "g[3=g1"),
        "--add-nodes: 'g[3' is not a host list: use names such as g1 or g[1-4,07-12].",
    ),
    "an empty gres.conf": (
        lambda of: with_gres_conf(of, "# nothing\nAutoDetect=off\n"),
        "--gres-conf: there is no line with Name= in it.",
    ),
    "nodes of another site": (
        lambda of: with_gres_conf(of, "NodeName=x[1-2] Name=gpu File=/dev/nvidia0"),
        "--gres-conf: Slurm has none of the nodes x1, x2.",
    ),
}


@pytest.mark.parametrize(("change", "sentence"), FAULTS.values(), ids=FAULTS.keys())
def test_a_change_that_cannot_be_tried_is_an_error_that_says_what_can(
    change: Callable[[Site], Site], sentence: str
) -> None:
    """The option, the fault, and what would be right."""
    with pytest.raises(ConfigError) as caught:
        change(TODAY)
    assert str(caught.value) == sentence


THREADS = site(
    [node("g1", "gpu:k80:4"), node("h1", "gpu:2", sockets=2, cores=4, threads=2), node("u1", "gpu:1")],
    [partition("gpu", "g1,h1,u1")],
    gres_conf=GRES_CONF + "NodeName=h1 Name=gpu File=/dev/nvidia0 Cores=0-3\n"
    "NodeName=h1 Name=gpu File=/dev/nvidia1 Cores=4-7\nNodeName=u1 Name=gpu File=/dev/nvidia0\n",
)
GOT: dict[str, tuple[tuple[tuple[str, str, str], ...], tuple[Share, ...], bool | None]] = {
    "beside": ((("g1", "0-3", "gpu:k80:1(IDX:1)"),), (Share("g1", (1,), (0, 1, 2, 3), True),), True),
    "a core of the other socket": ((("g1", "11-12", "gpu:1(IDX:1)"),), (Share("g1", (1,), (11, 12), False),), False),
    "a GPU without a core": ((("g1", "0-1", "gpu:2(IDX:1-2)"),), (Share("g1", (1, 2), (0, 1), False),), False),
    "GPUs and cores of both": ((("g1", "0,12", "gpu:2(IDX:1-2)"),), (Share("g1", (1, 2), (0, 12), True),), True),
    "threads of whole cores": ((("h1", "8-11", "gpu:1(IDX:1)"),), (Share("h1", (1,), (4, 5), True),), True),
    "shards of one GPU": ((("g1", "0", "shard:2(0/4,2/4,0/4)"),), (Share("g1", (1,), (0,), True),), True),
    "no Cores= of the node": ((("u1", "0", "gpu:1(IDX:0)"),), (Share("u1", (0,), (0,), None),), None),
    "no GPU": ((("g1", "0", ""),), (Share("g1", (), (0,), None),), None),
    "two nodes, one of them well": (
        (("g1", "0", "gpu:1(IDX:0)"), ("h1", "8", "gpu:1(IDX:0)")),
        (Share("g1", (0,), (0,), True), Share("h1", (0,), (4,), False)),
        False,
    ),
}


@pytest.mark.parametrize(("parts", "shares", "beside"), GOT.values(), ids=GOT.keys())
def test_cores_are_beside_gpus_if_each_has_one_of_the_others(
    parts: tuple[tuple[str, str, str], ...], shares: tuple[Share, ...], beside: bool | None
) -> None:
    """As a server's card has it; not known where gres.conf does not say it."""
    allocations = tuple(NodeAllocation(name, parse_cpulist(cpus), gres=parse_gres(gres)) for name, cpus, gres in parts)
    answers = Answers((Answer("1", allocations),), "22.05.8")
    expected = JobOutcome(shares)
    assert (outcome(answers, THREADS, near_cpus(THREADS)), expected.beside) == (
        SiteOutcome(1, int(beside is True), (expected,)),
        beside,
    )


def test_cores_have_their_own_numbers_where_slurm_counts_a_core_of_two_threads_as_one_cpu() -> None:
    """CPU_IDs are those of threads all the same (slurm.conf(5), CPUs)."""
    whole_cores = replace(
        THREADS,
        nodes=[node._replace(hardware=tuple({**dict(node.hardware), "CPUTot": "8"}.items())) for node in THREADS.nodes],
    )
    allocation = NodeAllocation("h1", parse_cpulist("8-11"), gres=parse_gres("gpu:1(IDX:1)"))
    (job,) = outcome(Answers((Answer("1", (allocation,)),), ""), whole_cores, near_cpus(whole_cores)).jobs
    assert job == JobOutcome((Share("h1", (1,), (4, 5), beside=True),))


def test_what_does_not_run_has_slurms_reason_or_its_refusal() -> None:
    """Without what Slurm adds to a reason for one job."""
    refused = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    answers = Answers((Answer("1", reason="ReqNodeNotAvail, UnavailableNodes:g1"), Answer("2", refusal=refused)), "")
    waits, refused_job = outcome(answers, TODAY, {}).jobs
    assert (waits, refused_job.shares, refused_job.reason) == (JobOutcome(reason="ReqNodeNotAvail"), (), "")
    assert refused_job.refusal.startswith("no node")


def test_cores_beside_a_gpu_that_gres_conf_does_not_name_are_those_of_the_next_site() -> None:
    """So that today's placement is judged by the lines that somebody would like to have."""
    without = with_gres_conf(TODAY, f"NodeName=g1 {K80}[0-3]")
    first, second = frozenset(range(12)), frozenset(range(12, 24))
    assert (near_cpus(without), near_cpus(without, TODAY)) == (
        {"g2": (first, first, second, second)},
        dict.fromkeys(("g1", "g2"), (first, first, second, second)),
    )
