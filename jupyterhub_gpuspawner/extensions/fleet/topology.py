"""``gpuspawner topology --gres-conf``: lines for gres.conf from a node's topology."""

from __future__ import annotations

import copy
import re
from typing import Any

import click

from jupyterhub_gpuspawner.cli.topology import Source, give_up
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import gres_conf as gres_conf_of
from jupyterhub_gpuspawner.extensions.fleet.gres_conf import with_nodes_of_gpus

HELP = """\
With --gres-conf it prints lines for gres.conf instead, with what must be known about them as comments. Run it on
the node outside of jobs, where all GPUs can be seen.

"""
_NODES = re.compile(r"[\w.,\[\]-]+", re.ASCII)
"""A host list as in gres.conf(5)."""


@click.command()
@click.option("--gres-conf", is_flag=True, help="Print lines for Slurm's gres.conf: types, Cores= and Links=.")
@click.option("--node", metavar="NAME", help="With --gres-conf: begin each line with NodeName=NAME.")
@click.option(
    "--numa-node-as-socket", is_flag=True, help="With --gres-conf: for slurmd with the parameter of that name."
)
@click.option(
    "--threads-per-core",
    type=click.IntRange(1, 8),
    metavar="N",
    help="With --gres-conf: hardware threads of a core, where the topology does not contain them.",
)
def gres_conf(
    *,
    gres_conf: bool,
    node: str | None,
    numa_node_as_socket: bool,
    threads_per_core: int | None,
    source: Source,
) -> None:
    """The options, and what is printed with the first of them, for the node that ``source`` describes."""
    if not gres_conf and (node is not None or numa_node_as_socket or threads_per_core is not None):
        raise click.UsageError("--node, --numa-node-as-socket and --threads-per-core belong to --gres-conf.")
    if node is not None and _NODES.fullmatch(node) is None:
        raise click.BadParameter(f"{node!r} is not a list of nodes such as g1 or g[1-4]", param_hint="--node")
    if not gres_conf:
        return
    topology = source.read()
    if not topology.gpus:
        give_up("no GPU was found, so there are no lines for gres.conf")
    lines = gres_conf_of(
        with_nodes_of_gpus(topology), numa_node_as_socket=numa_node_as_socket, threads_per_core=threads_per_core
    )
    click.echo(lines.text(node or ""), nl=False)


def with_gres_conf(topology: click.Command) -> click.Command:
    """``gpuspawner topology`` with the option ``--gres-conf``, and those that belong to it."""
    own = {param.name for param in gres_conf.params}

    @click.pass_context
    def callback(context: click.Context, /, **values: Any) -> None:
        ours = {name: value for name, value in values.items() if name in own}
        others = {name: value for name, value in values.items() if name not in own}
        if context.invoked_subcommand is not None and (ours["gres_conf"] or others["as_json"]):
            raise click.UsageError(f"--json and --gres-conf cannot be used with {context.invoked_subcommand}.")
        if ours["gres_conf"] and others["as_json"]:
            raise click.UsageError("--json and --gres-conf cannot be used together.")
        source = Source(others["text"], others["file"], others["timeout"])
        assert gres_conf.callback is not None
        assert topology.callback is not None
        gres_conf.callback(**ours, source=source)
        if not ours["gres_conf"]:
            topology.callback(**others)

    extended = copy.copy(topology)
    extended.params = [*topology.params, *gres_conf.params]
    extended.callback = callback
    before, json, after = (topology.help or "").partition("JSON: ")
    extended.help = f"{before}{HELP}{json}{after}"
    return extended
