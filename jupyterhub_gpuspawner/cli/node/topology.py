"""``gpuspawner topology``: a node's topology as tables, JSON, a picture or a topology file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.node.source import Source, give_up, source_options, write

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.placement.topology import NodeTopology

_NODES = re.compile(r"[\w.,\[\]-]+", re.ASCII)
"""A host list as in gres.conf(5)."""


@click.group(invoke_without_command=True)
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--svg", metavar="FILE", help="Draw the node as an SVG file; - writes to standard output.")
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
@click.pass_context
def topology(
    context: click.Context,
    *,
    text: str | None,
    file: str | None,
    timeout: float,
    as_json: bool,
    svg: str | None,
    gres_conf: bool,
    node: str | None,
    numa_node_as_socket: bool,
    threads_per_core: int | None,
) -> None:
    """Show a node's GPUs, the links between them, and the CPUs and memory closest to them.

    The node is this one, or the one described by --text or --file. Unknown information is reported as unknown.

    With --gres-conf it prints lines for gres.conf instead, with what must be known about them as comments. Run it on
    the node outside of jobs, where all GPUs can be seen.

    JSON: gpus (names), links (square matrix of link types), cpu_affinity, numa_affinity, gpu_numa_id (one entry for
    each GPU, null if unknown), nics, nic_links (a row for each NIC), warnings.

    Exit code 2: the text contains no usable matrix.
    """
    source = Source(text, file, timeout)
    context.obj = source
    if context.invoked_subcommand is not None:
        if as_json or svg is not None or gres_conf:
            raise click.UsageError(f"--json, --svg and --gres-conf cannot be used with {context.invoked_subcommand}.")
        return
    if gres_conf and as_json:
        raise click.UsageError("--json and --gres-conf cannot be used together.")
    if not gres_conf and (node is not None or numa_node_as_socket or threads_per_core is not None):
        raise click.UsageError("--node, --numa-node-as-socket and --threads-per-core belong to --gres-conf.")
    if node is not None and _NODES.fullmatch(node) is None:
        raise click.BadParameter(f"{node!r} is not a list of nodes such as g1 or g[1-4]", param_hint="--node")
    found = source.read()
    if svg is not None:
        from jupyterhub_gpuspawner.picture import drawing

        write(svg, drawing.svg(found, title=found.hostname or "Node") + "\n")
    if gres_conf:
        _print_gres_conf(found, node or "", numa_node_as_socket=numa_node_as_socket, threads=threads_per_core)
    elif as_json:
        from jupyterhub_gpuspawner.cli.node.listing import document

        click.echo(json.dumps(document(found), indent=2))
    elif svg is None:
        from jupyterhub_gpuspawner.cli.node.listing import listing

        click.echo(listing(found), nl=False)


def _print_gres_conf(node: NodeTopology, name: str, *, numa_node_as_socket: bool, threads: int | None) -> None:
    """Print the lines; ends the program with exit code 2 if the node has no GPU."""
    from jupyterhub_gpuspawner.fleet.gres_conf import gres_conf, with_nodes_of_gpus

    if not node.gpus:
        give_up("no GPU was found, so there are no lines for gres.conf")
    found = gres_conf(with_nodes_of_gpus(node), numa_node_as_socket=numa_node_as_socket, threads_per_core=threads)
    click.echo(found.text(name), nl=False)


@topology.command()
@click.argument("destination", metavar="FILE")
@click.option("--hostname", is_flag=True, help="Include this node's name in the file.")
@click.option("--simulated", is_flag=True, help="Mark the node as simulated, which pages then show.")
@click.pass_obj
def record(source: Source, destination: str, *, hostname: bool, simulated: bool) -> None:
    """Write the topology to FILE (- writes to standard output).

    The file can replace discovery (topology_file in the hub's configuration), be passed to --file of other commands, or
    be attached to a bug report. It contains GPUs, their UUIDs and PCI bus ids, links, NICs, NUMA nodes, CPUs and the
    driver's version, but no user and no process, and the host name only with --hostname.
    """
    from jupyterhub_gpuspawner.placement.topology import to_document

    node = source.read()
    kept = replace(node, simulated=simulated or node.simulated)
    write(destination, json.dumps(to_document(kept if hostname else _nameless(kept)), indent=1) + "\n")
    click.echo(f"{destination}: {_contents(node)}.", err=True)


def _nameless(node: NodeTopology) -> NodeTopology:
    """The topology without the node's name, which is also removed from its problems."""
    if not node.hostname:
        return node
    problems = tuple(problem.replace(node.hostname, "this node") for problem in node.problems)
    return replace(node, hostname="", problems=problems)


def _contents(node: NodeTopology) -> str:
    found = {"GPUs": node.gpus, "NICs": node.nics, "NUMA nodes": node.numa_nodes, "warnings": node.problems}
    return ", ".join(f"{len(items)} {what}" for what, items in found.items())
