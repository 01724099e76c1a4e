"""``gpuspawner topology``: what a node is made of, as a table, JSON or picture; and a file to keep it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.source import Source, source_options, write

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.placement.topology import NodeTopology


@click.group(invoke_without_command=True)
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
@click.option("--svg", metavar="FILE", help="Draw the node into an SVG file; - writes to standard output.")
@click.pass_context
def topology(
    context: click.Context, *, text: str | None, file: str | None, timeout: float, as_json: bool, svg: str | None
) -> None:
    """Show a node's GPUs, the links between them, and the CPUs and memory beside them.

    The node is this one, or that of a text or file. What is not known is said, never guessed.

    JSON: gpus (names), links (square matrix of link words), cpu_affinity, numa_affinity, gpu_numa_id (one entry for
    each GPU, null where unknown), nics, nic_links (a row for each NIC), warnings.

    Exit code 2: the text holds no usable matrix.
    """
    source = Source(text, file, timeout)
    context.obj = source
    if context.invoked_subcommand is not None:
        if as_json or svg is not None:
            raise click.UsageError(f"--json and --svg do not go with {context.invoked_subcommand}.")
        return
    node = source.read()
    if svg is not None:
        from jupyterhub_gpuspawner.picture import node_svg

        write(svg, node_svg.svg(node, title=node.hostname or "Node") + "\n")
    if as_json:
        from jupyterhub_gpuspawner.cli.listing import document

        click.echo(json.dumps(document(node), indent=2))
    elif svg is None:
        from jupyterhub_gpuspawner.cli.listing import listing

        click.echo(listing(node), nl=False)


@topology.command()
@click.argument("destination", metavar="FILE")
@click.option("--hostname", is_flag=True, help="Write this node's name into the file too.")
@click.option("--simulated", is_flag=True, help="Mark it as the stand-in of a node that does not exist: pages say so.")
@click.pass_obj
def record(source: Source, destination: str, *, hostname: bool, simulated: bool) -> None:
    """Write the node into a topology FILE (- writes to standard output).

    It can stand in for discovery (topology_file in the hub's configuration), be given to --file of other commands, or
    be sent to the authors with a report. It names GPUs, their UUIDs and PCI bus ids, links, NICs, NUMA nodes, CPUs and
    the driver's version; no user, no process, and no host unless you say --hostname.
    """
    from jupyterhub_gpuspawner.placement.topology import to_document

    node = source.read()
    kept = replace(node, simulated=simulated or node.simulated)
    write(destination, json.dumps(to_document(kept if hostname else _nameless(kept)), indent=1) + "\n")
    click.echo(f"{destination}: {_contents(node)}.", err=True)


def _nameless(node: NodeTopology) -> NodeTopology:
    """The node without its name, in what could not be learned too."""
    if not node.hostname:
        return node
    problems = tuple(problem.replace(node.hostname, "this node") for problem in node.problems)
    return replace(node, hostname="", problems=problems)


def _contents(node: NodeTopology) -> str:
    found = {"GPUs": node.gpus, "NICs": node.nics, "NUMA nodes": node.numa_nodes, "warnings": node.problems}
    return ", ".join(f"{len(items)} {what}" for what, items in found.items())
