"""``gpuspawner topology``: a node's topology as tables, JSON, a picture or a topology file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.node.source import Source, source_options, write

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.placement.topology import NodeTopology


@click.group(invoke_without_command=True)
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--svg", metavar="FILE", help="Draw the node as an SVG file; - writes to standard output.")
@click.pass_context
def topology(
    context: click.Context, *, text: str | None, file: str | None, timeout: float, as_json: bool, svg: str | None
) -> None:
    """Show a node's GPUs, the links between them, and the CPUs and memory closest to them.

    The node is this one, or the one described by --text or --file. Unknown information is reported as unknown.

    JSON: gpus (names), links (square matrix of link types), cpu_affinity, numa_affinity, gpu_numa_id (one entry for
    each GPU, null if unknown), nics, nic_links (a row for each NIC), warnings.

    Exit code 2: the text contains no usable matrix.
    """
    source = Source(text, file, timeout)
    context.obj = source
    if context.invoked_subcommand is not None:
        if as_json or svg is not None:
            raise click.UsageError(f"--json and --svg cannot be used with {context.invoked_subcommand}.")
        return
    node = source.read()
    if svg is not None:
        from jupyterhub_gpuspawner.picture import node_svg

        write(svg, node_svg.svg(node, title=node.hostname or "Node") + "\n")
    if as_json:
        from jupyterhub_gpuspawner.cli.node.listing import document

        click.echo(json.dumps(document(node), indent=2))
    elif svg is None:
        from jupyterhub_gpuspawner.cli.node.listing import listing

        click.echo(listing(node), nl=False)


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
