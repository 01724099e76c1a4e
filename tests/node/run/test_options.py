"""The command line of gpuspawner-run."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.node.run.srun import Options, parse


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
