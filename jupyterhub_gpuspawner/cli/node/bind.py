"""``gpuspawner bind``: run any command bound to GPUs, cores and memory, as the launcher runs a server."""

from __future__ import annotations

import os

import click

from jupyterhub_gpuspawner.placement.choice import MEMORY_POLICIES, POLICIES
from jupyterhub_gpuspawner.wire.documents import LaunchPlan


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--gpus", type=click.IntRange(min=0), help="Number of granted GPUs to use.  [default: all]")
@click.option("--cpus", type=click.IntRange(min=1), help="Number of granted CPUs to use.  [default: all]")
@click.option("--policy", default="best-effort", show_default=True, type=click.Choice(POLICIES), help="As in profiles.")
@click.option(
    "--memory-policy",
    default="preferred",
    show_default=True,
    type=click.Choice(MEMORY_POLICIES),
    help="As in profiles.",
)
@click.option(
    "--topology-file",
    metavar="FILE",
    help="Topology file to use instead of this node's hardware; {node} is replaced by its name.",
)
@click.option(
    "--threads/--no-threads",
    default=True,
    help="Set OMP_NUM_THREADS and similar variables, unless they are already set.",
)
@click.option("--verbose", "-v", is_flag=True, help="Print the binding on standard error.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def bind(
    *,
    gpus: int | None,
    cpus: int | None,
    policy: str,
    memory_policy: str,
    topology_file: str | None,
    threads: bool,
    verbose: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND on this job's GPUs in their best order, bound to the cores and memory closest to them.

    Example: srun --ntasks-per-node=4 gpuspawner bind -v -- python train.py

    If srun starts several tasks on a node, each gets its own part of the step's GPUs on that node: neighbours in the
    best ring, in the order of the tasks, with the cores closest to them. If there are more tasks than GPUs, the tasks
    share them round-robin. What Slurm has already assigned to each task (--gpus-per-task, --gpu-bind, --cpu-bind) is
    kept. Options count per task.

    Only resources that this process already has are used. What cannot be done is reported on standard error, and the
    command runs anyway.

    A server of the hub carries its own copy of this command: $GPUSPAWNER_PYTHON $GPUSPAWNER_LAUNCHER --bind -- COMMAND.
    To start a program on all its nodes and GPUs, use gpuspawner-run.
    """
    from jupyterhub_gpuspawner.node.launch import VERBOSE, launch

    if verbose:
        os.environ[VERBOSE] = "1"
    plan = LaunchPlan(
        gpus=gpus,
        cpus=cpus,
        policy=policy,
        memory_policy=memory_policy,
        topology_file=topology_file,
        set_threads=threads,
        report=False,
    )
    launch(plan, command, os.environ)
