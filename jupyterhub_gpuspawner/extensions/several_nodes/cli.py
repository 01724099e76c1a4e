"""``gpuspawner run``: what ``gpuspawner-run`` does inside a server, where this package is installed."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.extensions.several_nodes.carried import CARRIED
from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import WORDS, Options, Word
from jupyterhub_gpuspawner.extensions.several_nodes.node.step import run as start


def _option(word: Word) -> click.Option:
    if not word.metavar:
        return click.Option(word.names, is_flag=True, help=word.help)
    kind = click.STRING if word.least is None else click.IntRange(min=word.least)
    return click.Option(word.names, type=kind, metavar=word.metavar, multiple=word.repeated, help=word.help)


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...], **values: Any) -> None:
    """Run COMMAND as one job step on the nodes and GPUs of this job, each rank bound to its part of its node.

    Examples: gpuspawner-run -- python train.py; gpuspawner-run -N 2 -- torchrun train.py

    Every server of the hub has this command in its PATH as gpuspawner-run, also where this package is not installed;
    $GPUSPAWNER_RUN has its full path, for terminals whose shell sets its own PATH.

    Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and MASTER_PORT, and the
    interfaces for NCCL and Gloo. torchrun gets its number of nodes and processes, and its rendezvous, unless they are
    given. Ctrl-C ends all ranks. If a rank fails, the others are ended, and the exit code is that of the rank.
    """
    try:
        options = Options(command=command, **values).checked()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(start(options, os.environ, archive=launcher_archive((CARRIED,)), plan="{}"))


run.params += [_option(word) for word in WORDS]
