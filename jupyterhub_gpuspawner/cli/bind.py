"""``gpuspawner bind``: a command on the right GPUs, cores and memory, outside of a notebook too."""

from __future__ import annotations

import os

import click

from jupyterhub_gpuspawner.placement.policies import MEMORY_POLICIES, POLICIES
from jupyterhub_gpuspawner.wire.documents import LaunchPlan


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--gpus", type=click.IntRange(min=0), help="How many GPUs to use, of those granted.  [default: all]")
@click.option("--cpus", type=click.IntRange(min=1), help="How many CPUs to use, of those granted.  [default: all]")
@click.option("--policy", default="best-effort", show_default=True, type=click.Choice(POLICIES), help="As in profiles.")
@click.option(
    "--memory-policy",
    default="preferred",
    show_default=True,
    type=click.Choice(MEMORY_POLICIES),
    help="As in profiles.",
)
@click.option("--topology-file", metavar="FILE", help="A topology file in place of this node; {node} is its name.")
@click.option("--threads/--no-threads", default=True, help="Set OMP_NUM_THREADS and its kin, unless they are set.")
@click.option("--verbose", "-v", is_flag=True, help="Say on standard error what was bound to what.")
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
    """Run COMMAND on this job's GPUs in their best order, on the cores and memory beside them.

    For one: srun --ntasks-per-node=4 gpuspawner bind -v -- python train.py

    Where srun starts several tasks on a node, each gets its own part of the step's GPUs there: neighbours in the best
    ring, in the order of the tasks, with the cores next to them. More tasks than GPUs share them in turn. What Slurm
    has given to each task already (--gpus-per-task, --gpu-bind, --cpu-bind) is kept. Numbers count for each task.

    Nothing is widened: only what this process has is used. What cannot be done is said on standard error, and the
    command runs all the same.

    A server of the hub carries its own copy of this: $GPUSPAWNER_PYTHON $GPUSPAWNER_LAUNCHER --bind -- COMMAND (to
    other nodes of its job it goes with sbcast).
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
