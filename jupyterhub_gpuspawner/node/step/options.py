"""The command line of ``gpuspawner-run``. Pure; ``gpuspawner run`` offers the same options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Run COMMAND as one job step on the nodes and GPUs of this job, each rank bound to its part of its node."

NODE_TIMEOUT = 60
"""Seconds. A node that only swaps or waits for a file system answers sooner."""
_REDIRECTED = ("--error", "-e", "--output", "-o", "--pty")
"""Options of srun with which the standard error of ranks goes elsewhere."""


@dataclass(frozen=True)
class Word:
    """One option: a flag if it has no metavariable."""

    names: tuple[str, ...]
    field: str
    help: str
    metavar: str = ""
    repeated: bool = False
    least: int | None = None
    """Its value is a whole number from this."""


WORDS = (
    Word(("-N", "--nodes"), "nodes", "Number of the job's nodes to use, the first ones.  [default: all]", "N", least=1),
    Word(("--per-gpu",), "per_gpu", "Start one rank for each GPU. The default, if the job has GPUs."),
    Word(("--per-node",), "per_node", "Start one rank on each node. The default for torchrun, and without GPUs."),
    Word(("-n", "--ntasks"), "ntasks", "Start this many ranks, divided evenly over the nodes.", "N", least=1),
    Word(("--all-gpus",), "all_gpus", "Show each rank all GPUs of its node, for programs that pick one by LOCAL_RANK."),
    Word(("--gpu-bind",), "gpu_bind", "Passed to srun. Slurm then decides which GPUs a rank has.", "TYPE"),
    Word(("--cpu-bind",), "cpu_bind", "Passed to srun. Slurm then decides which CPUs a rank has.", "TYPE"),
    Word(("--mem-bind",), "mem_bind", "Passed to srun. Slurm then decides on the memory policy.", "TYPE"),
    Word(
        ("--srun",),
        "srun",
        "Another option for srun, such as --srun=--mpi=pmix. May be repeated.",
        "OPTION",
        repeated=True,
    ),
    Word(
        ("--logs",),
        "logs",
        "Write each rank's output to rank-R.NODE.log in this folder instead of the screen.",
        "FOLDER",
    ),
    Word(
        ("--node-timeout",),
        "node_timeout",
        f"End the run if a node has not answered for this long; 0: never.  [default: {NODE_TIMEOUT}]",
        "SECONDS",
        least=0,
    ),
    Word(("--no-label",), "no_label", "Do not begin each line of output with the number of its rank."),
    Word(("-v", "--verbose"), "verbose", "Print each rank's binding, and the command of srun, on standard error."),
)
"""All options; one definition for both commands."""


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    command: tuple[str, ...] = ()
    nodes: int | None = None
    per_gpu: bool = False
    per_node: bool = False
    ntasks: int | None = None
    all_gpus: bool = False
    gpu_bind: str | None = None
    cpu_bind: str | None = None
    mem_bind: str | None = None
    srun: tuple[str, ...] = ()
    logs: str | None = None
    node_timeout: int | None = None
    no_label: bool = False
    verbose: bool = False

    def checked(self) -> Options:
        """The same options; raises ValueError if they contradict each other or there is no command."""
        if not self.command:
            raise ValueError("there is no command; it follows --")
        if self.per_gpu + self.per_node + (self.ntasks is not None) > 1:
            raise ValueError("--per-gpu, --per-node and --ntasks exclude each other")
        return self

    @property
    def limit(self) -> int:
        """Seconds of silence after which a node is lost; 0: never, as where the ranks' messages do not arrive."""
        redirected = any(word.startswith(_REDIRECTED) for word in self.srun)
        return 0 if redirected else NODE_TIMEOUT if self.node_timeout is None else self.node_timeout

    @property
    def is_torchrun(self) -> bool:
        """Whether the command is torchrun, which starts a node's ranks itself."""
        words = [os.path.basename(self.command[0]), *self.command[1:3]]
        python = words[0].startswith("python") and words[1:2] == ["-m"]
        return words[0] == "torchrun" or (
            python and words[2:] in (["torch.distributed.run"], ["torch.distributed.launch"])
        )


def parse(arguments: Sequence[str]) -> Options:
    """Parse the command line; prints the help for ``-h``, and exits with status 2 for a wrong one, as argparse does."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="gpuspawner-run",
        description=ABOUT,
        allow_abbrev=False,
        usage="%(prog)s [OPTIONS] -- COMMAND [ARGUMENT...]",
    )
    for word in WORDS:
        if not word.metavar:
            parser.add_argument(*word.names, dest=word.field, help=word.help, action="store_true")
        elif word.repeated:
            parser.add_argument(
                *word.names, dest=word.field, help=word.help, metavar=word.metavar, action="append", default=[]
            )
        else:
            kind = str if word.least is None else partial(_whole, least=word.least)
            parser.add_argument(*word.names, dest=word.field, help=word.help, metavar=word.metavar, type=kind)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    values = vars(parser.parse_args(list(arguments)))
    command = values.pop("command")
    values["srun"] = tuple(values["srun"])
    try:
        return Options(command=tuple(command[1:] if command[:1] == ["--"] else command), **values).checked()
    except ValueError as error:
        parser.error(str(error))


def _whole(text: str, *, least: int) -> int:
    """A whole number from ``least``; raises argparse's error for another text."""
    from argparse import ArgumentTypeError

    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise ArgumentTypeError(f"{text} is not a whole number from {least}")
    return int(text)
