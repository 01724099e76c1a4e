"""The command line of gpuspawner-run, and its srun: ranks on nodes, command line and environment."""

from __future__ import annotations

import base64

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.node import srun
from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import (
    RANK,
    Job,
    Node,
    Options,
    command,
    environment,
    gpus_of_step,
    keeps,
    layout,
    parse,
)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("python train.py --nodes 3", Options(command=("python", "train.py", "--nodes", "3"))),
        ("-N 2 --per-node -- torchrun a.py", Options(command=("torchrun", "a.py"), nodes=2, per_node=True)),
        (
            "-n 5 --srun=--mpi=pmix --srun=--exact --logs out -v -- ./a.out -v",
            Options(command=("./a.out", "-v"), ntasks=5, srun=("--mpi=pmix", "--exact"), logs="out", verbose=True),
        ),
        ("--gpu-bind=none --cpu-bind cores -- a", Options(command=("a",), gpu_bind="none", cpu_bind="cores")),
    ],
)
def test_options_end_at_the_command(line: str, options: Options) -> None:
    """What follows the command is its own."""
    assert parse(line.split()) == options


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "there is no command; it follows --"),
        ("--per-node", "there is no command; it follows --"),
        ("--per-gpu -n 3 -- a", "--per-gpu, --per-node and --ntasks exclude each other"),
        ("-N 0 -- a", "argument -N/--nodes: 0 is not a whole number from 1"),
        ("-N -- a", "expected one argument"),
    ],
)
def test_a_wrong_line_is_refused(line: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of argparse, and the fault."""
    with pytest.raises(SystemExit) as stop:
        parse(line.split())
    assert (stop.value.code, fault in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(
    ("command", "torchrun"),
    [
        ("torchrun a.py", True),
        ("/opt/env/bin/torchrun a.py", True),
        ("python3 -m torch.distributed.run a.py", True),
        ("python a.py torchrun", False),
        ("python -m torch a.py", False),
    ],
)
def test_torchrun_is_recognized(command: str, torchrun: bool) -> None:
    """By its name, or as a module."""
    assert Options(command=tuple(command.split())).is_torchrun is torchrun


def job(name: str, gpus: tuple[int, ...], cpus: tuple[int | None, ...] = (), *, in_all: bool = False) -> Job:
    """A job with so many GPUs and CPUs on each of its nodes."""
    counts = enumerate(zip(gpus, cpus or [None] * len(gpus), strict=True), 1)
    nodes = tuple(Node(f"{name}{n}", *count) for n, count in counts)
    return Job("7", nodes, f"{name}1", step_asks_for_gpus=in_all)


FOUR, UNEVEN, WITHOUT = job("g", (4, 4, 4, 4)), job("g", (4, 2)), job("c", (0, 0))
PYTHON = ("python", "train.py")
DETAIL = """JobId=7 JobName=a
   NodeList=g[1-3]
     Nodes=g[1-2] CPU_IDs=0-7 Mem=4000 GRES=gpu:k80:4(IDX:0-3)
     Nodes=g3 CPU_IDs=0-3 Mem=4000 GRES=gpu:k80:1(IDX:2),shard:2(IDX:0,1)
"""
THREE = (Node("g1", 4, 8), Node("g2", 4, 8), Node("g3", 3, 4))


@pytest.mark.parametrize(
    ("environ", "answer", "nodes", "here"),
    [
        ({"SLURM_JOB_NODELIST": "g[1-3]", "SLURMD_NODENAME": "g1"}, DETAIL, THREE, "g1"),
        ({"SLURMD_NODENAME": "login"}, DETAIL, THREE, ""),
        ({"SLURM_JOB_NODELIST": "g[1-2]", "SLURM_GPUS_ON_NODE": "2"}, "", (Node("g1", 2), Node("g2", 2)), ""),
        ({"SLURM_JOB_NODELIST": "g1", "CUDA_VISIBLE_DEVICES": "1,3"}, "", (Node("g1", 2),), ""),
        ({"SLURM_JOB_NODELIST": "g1", "CUDA_VISIBLE_DEVICES": ""}, "", (Node("g1", 0),), ""),
    ],
)
def test_the_job_s_nodes(environ: dict[str, str], answer: str, nodes: tuple[Node, ...], here: str) -> None:
    """With their GPUs and CPUs from slurmctld's answer, or, without one, with the GPUs of the environment."""
    mine = srun.read({"SLURM_JOB_ID": "7", **environ}, answer)
    assert (mine.nodes, mine.here) == (nodes, here)


@pytest.mark.parametrize(
    ("tres", "in_all"),
    [
        ("TresPerNode=gres:gpu:4", False),
        ("TresPerNode=gres/gpu:4\n   TresPerTask=cpu=4", False),
        ("TresPerTask=gres:gpu:4", True),
        ("TresPerTask=cpu=4,gres/gpu=4", True),
        ("TresPerJob=gres:gpu:9", True),
        ("TresPerJob=gres/gpu:9\n   TresPerTask=cpu=4", True),
    ],
)
def test_how_the_job_asked_for_its_gpus(tres: str, in_all: bool) -> None:
    """For each node or for all together, as Slurm 22.05 and 26.05 write it."""
    assert srun.read({"SLURM_JOB_ID": "7"}, f"{DETAIL}   {tres}\n").step_asks_for_gpus is in_all


def test_without_a_job() -> None:
    """There is nothing to run a step in."""
    with pytest.raises(ValueError, match="there is no Slurm job here: SLURM_JOB_ID is not set"):
        srun.read({}, "")


@pytest.mark.parametrize(
    ("mine", "options", "ranks"),
    [
        (FOUR, Options(PYTHON), {"g1": 4, "g2": 4, "g3": 4, "g4": 4}),
        (FOUR, Options(PYTHON, nodes=2), {"g1": 4, "g2": 4}),
        (FOUR, Options(("torchrun", "a.py")), {"g1": 1, "g2": 1, "g3": 1, "g4": 1}),
        (FOUR, Options(("torchrun", "a.py"), nodes=1, per_gpu=True), {"g1": 4}),
        (FOUR, Options(PYTHON, ntasks=6), {"g1": 2, "g2": 2, "g3": 1, "g4": 1}),
        (FOUR, Options(PYTHON, ntasks=3), {"g1": 1, "g2": 1, "g3": 1}),
        (UNEVEN, Options(PYTHON), {"g1": 4, "g2": 2}),
        (WITHOUT, Options(PYTHON), {"c1": 1, "c2": 1}),
    ],
)
def test_ranks_on_each_node(mine: Job, options: Options, ranks: dict[str, int]) -> None:
    """One for each GPU, one for each node for torchrun and without GPUs, or as many as are asked for."""
    assert {node.name: node.ranks for node in layout(mine, options)} == ranks


@pytest.mark.parametrize(
    ("mine", "options", "fault"),
    [
        (FOUR, Options(PYTHON, nodes=5), "--nodes: 5 nodes were asked for; job 7 has 4"),
        (WITHOUT, Options(PYTHON, per_gpu=True), "--per-gpu: this job has no GPU; use --per-node or --ntasks"),
        (
            job("g", (4, 2), in_all=True),
            Options(("torchrun", "a.py")),
            r"this job's nodes have different numbers of GPUs \(g1 4, g2 2\); .*: use --per-gpu",
        ),
    ],
)
def test_a_job_with_too_little(mine: Job, options: Options, fault: str) -> None:
    """What is missing is named."""
    with pytest.raises(ValueError, match=fault):
        gpus_of_step(mine, layout(mine, options), ())


@pytest.mark.parametrize(
    ("mine", "options", "words"),
    [
        (FOUR, Options(PYTHON), "--ntasks=16 --nodes=4 --ntasks-per-node=4 --distribution=block --label"),
        (
            FOUR,
            Options(PYTHON, nodes=2, no_label=True, gpu_bind="single:1", srun=("--mpi=pmix",)),
            "--ntasks=8 --nodes=2 --ntasks-per-node=4 --distribution=block --nodelist=g1,g2 --gpu-bind=single:1 "
            "--mpi=pmix",
        ),
        (UNEVEN, Options(PYTHON), "--ntasks=6 --distribution=arbitrary --nodelist=g1,g1,g1,g1,g2,g2 --label"),
        (
            job("g", (4, 2), in_all=True),
            Options(PYTHON),
            "--ntasks=6 --distribution=arbitrary --nodelist=g1,g1,g1,g1,g2,g2 --gpus-per-task=1 --label",
        ),
        (
            job("g", (4,) * 4, in_all=True),
            Options(("torchrun", "a.py")),
            "--ntasks=4 --nodes=4 --ntasks-per-node=1 --distribution=block --gpus-per-node=4 --label",
        ),
        (
            job("g", (4, 2), in_all=True),
            Options(PYTHON, nodes=1, per_node=True),
            "--ntasks=1 --nodes=1 --ntasks-per-node=1 --distribution=block --nodelist=g1 --gpus=4",
        ),
        (
            job("g", (4,) * 4, (4, 3, 4, 4)),
            Options(PYTHON),
            "--ntasks=16 --nodes=4 --ntasks-per-node=4 --distribution=block --overcommit --label",
        ),
        (
            job("c", (0, 0), (1, 1), in_all=True),
            Options(PYTHON),
            "--ntasks=2 --nodes=2 --ntasks-per-node=1 --distribution=block --label",
        ),
    ],
)
def test_the_command_line(mine: Job, options: Options, words: str) -> None:
    """srun gets the node of each rank if their numbers differ, and options only for what it does not do by itself."""
    line = command(options, mine, layout(mine, options))
    first = "srun --cpu-bind=none --overlap --export=ALL --kill-on-bad-exit=1 --input=none"
    assert line[: line.index("/bin/sh")] == f"{first} {words}".split()
    assert line[-4:] == ["gpuspawner-run", RANK, *options.command]


BATCH = {
    "SLURM_CPU_BIND": "quiet,mask_cpu:0xFF",
    "SLURM_CPU_BIND_VERBOSE": "quiet",
    "SLURM_CPU_BIND_TYPE": "mask_cpu:",
    "SLURM_CPU_BIND_LIST": "0xFF",
}
"""What task/affinity sets for the batch step."""


@pytest.mark.parametrize(
    ("options", "environ", "bindings"),
    [
        (Options(PYTHON), {}, ()),
        (Options(PYTHON), BATCH, ()),
        (Options(PYTHON), {**BATCH, "SLURM_CPU_BIND": "cores"}, ("cpu",)),
        (Options(PYTHON), {"SLURM_GPU_BIND": "closest"}, ("gpu",)),
        (Options(PYTHON), {"SLURM_TRES_BIND": "gres/gpu:single:2"}, ("gpu",)),
        (Options(PYTHON), {"SLURM_TRES_PER_TASK": "gres/gpu=4", "SLURM_TRES_BIND": "gres/gpu:per_task:4"}, ()),
        (Options(PYTHON, gpu_bind="none", cpu_bind="none", mem_bind="local"), BATCH, ("gpu", "cpu", "mem")),
        (Options(PYTHON, srun=("--gpus-per-task=1",)), {}, ("gpu",)),
    ],
)
def test_what_slurm_binds_by_the_user_s_choice(
    options: Options, environ: dict[str, str], bindings: tuple[str, ...]
) -> None:
    """By an option, or by a variable; what Slurm has set for the batch step is nobody's choice."""
    assert keeps(options, environ) == bindings
    line = command(options, FOUR, layout(FOUR, options), bindings=bindings)
    assert line[:2] == ["srun", "--overlap" if "cpu" in bindings else "--cpu-bind=none"]


def test_the_environment_has_nothing_of_the_batch_step() -> None:
    """srun gets the job's id, the user's own variables, and the launcher; never the server's token."""
    environ = {
        **BATCH,
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": "4",
        "SLURM_CPUS_PER_TASK": "24",
        "SRUN_CPUS_PER_TASK": "24",
        "SLURMD_NODENAME": "g1",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_GPU_BIND": "closest",
        "JUPYTERHUB_API_TOKEN": "secret",
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
    }
    archive = bytes(range(256)) * 500
    step_environ = environment(environ, FOUR, spec="{}", archive=archive)
    pieces = [step_environ.pop(f"GPUSPAWNER_ARCHIVE_0{n}") for n in range(2)]
    assert base64.b64decode("".join(pieces)) == archive
    assert max(map(len, pieces)) < 128 * 1024
    assert step_environ == {
        "SLURM_JOB_ID": "7",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_GPU_BIND": "closest",
        "GPUSPAWNER_STEP": "{}",
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
    }
