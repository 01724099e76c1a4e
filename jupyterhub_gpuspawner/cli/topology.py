"""``gpuspawner topology``: a node's topology as tables, JSON, a picture or a topology file."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from jupyterhub_gpuspawner.cli.nvidia_smi_matrix import TopoTextError, parse
from jupyterhub_gpuspawner.cli.options import JSON, JSON_VERSION, table
from jupyterhub_gpuspawner.extension import installed, load_each
from jupyterhub_gpuspawner.node.hardware import observe
from jupyterhub_gpuspawner.node.placing import entry
from jupyterhub_gpuspawner.placement.topology import NodeTopology, from_document, link_count, to_document
from jupyterhub_gpuspawner.units import format_cpulist

# The node that a command describes: this one, the output of ``nvidia-smi topo -m``, or a topology file.

EXIT_NO_DATA = 2
"""Exit code if there is no usable input: no matrix, no such file, no GPU."""

Command = TypeVar("Command", bound="Callable[..., Any]")


@dataclass(frozen=True)
class Source:
    """Where the topology comes from; ``-`` as the name of ``text`` or ``file`` is standard input."""

    text: str | None = None
    file: str | None = None
    timeout: float = 10.0
    """Time limit for reading this node's hardware, in seconds."""

    def read(self) -> NodeTopology:
        """The topology; ends the program with exit code 2 and a message if there is none."""
        if self.text is not None and self.file is not None:
            give_up("--text and --file cannot be used together")
        if self.text is not None:
            return _from_text(self.text)
        return this_node(self.timeout) if self.file is None else _from_file(self.file)


def source_options(command: Command) -> Command:
    """Add the options ``--text``, ``--file`` and ``--timeout`` to a command."""
    for option in (
        click.option(
            "--timeout",
            default=10.0,
            show_default=True,
            type=click.FloatRange(min=0, min_open=True, max=600),
            metavar="SECONDS",
            help="Time limit for reading this node's hardware.",
        ),
        click.option(
            "--file", metavar="FILE", help="Use a topology file instead of this node; - reads standard input."
        ),
        click.option(
            "--text",
            metavar="FILE",
            help="Use the output of nvidia-smi topo -m instead of this node; - reads standard input.",
        ),
    ):
        command = option(command)
    return command


def this_node(timeout: float) -> NodeTopology:
    """The topology of this node, as far as it is known after ``timeout`` seconds."""
    loaded = load_each(installed(), lambda extension: extension.launcher, lambda fault: click.echo(fault, err=True))
    environ = {**os.environ, "SLURM_JOB_NUM_NODES": ""}  # all of this node, whatever job this is in
    readers = [entry(carried.reader)(environ) for _, carried in loaded if carried.reader]
    try:
        return observe(node=os.uname().nodename, topology_file=None, deadline=timeout, readers=readers)
    except OSError as error:
        give_up(f"this node's hardware cannot be read: {error.strerror}")


def _from_text(name: str) -> NodeTopology:
    try:
        return parse(_content(name))
    except TopoTextError as error:
        give_up(f"{_words(name)}: {error}")


def _from_file(name: str) -> NodeTopology:
    try:
        return replace(from_document(json.loads(_content(name))), source="file")
    except (ValueError, RecursionError) as error:
        give_up(f"{_words(name)} is not a topology file: {error}")


def _content(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        give_up(f"{name} cannot be read: {error.strerror}")
    return decoded(data)


def decoded(data: bytes) -> str:
    """The text of a file: UTF-8, or UTF-16 as Windows PowerShell writes it, with or without a byte order mark."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:2]:  # no text of ours begins with a NUL character
        return data.decode("utf-16-be" if data[:1] == b"\0" else "utf-16-le", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def _words(name: str) -> str:
    return "standard input" if name == "-" else name


def write(name: str, text: str) -> None:
    """Write to the file, or to standard output for ``-``; ends the program with exit code 2 on failure."""
    if name == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        give_up(f"{name} cannot be written: {error.strerror}")


def give_up(sentence: str) -> NoReturn:
    """End the program with exit code 2 and a message on standard error."""
    click.echo(f"gpuspawner: {' '.join(sentence.split())}", err=True)
    raise SystemExit(EXIT_NO_DATA)


# A node's topology as JSON and as tables.

UNKNOWN = "?"
_MEANINGS = {
    "PIX": "one PCIe switch, or one board",
    "PXB": "several PCIe switches",
    "PHB": "a PCIe host bridge (the CPU)",
    "NODE": "the PCIe host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes or sockets",
    "SOC": "the link between sockets (SYS in newer drivers)",
    "PKG": "partitions of one package (AMD)",
    "XGMI": "XGMI by way of another GPU (AMD)",
    "?": "unknown",
}


def gpu_names(topology: NodeTopology) -> tuple[str, ...]:
    """``GPU0``, ``GPU1`` and so on by NVML index; the MIG devices of GPU 2 are ``GPU2/MIG0``, ``GPU2/MIG1``."""
    names: list[str] = []
    parts: dict[int, int] = {}
    for gpu in topology.gpus:
        name = f"GPU{gpu.index}"
        if gpu.mig is not None:
            part = parts[gpu.index] = parts.get(gpu.index, -1) + 1
            name += f"/MIG{part}"
        names.append(name)
    return tuple(names)


def document(topology: NodeTopology) -> dict[str, Any]:
    """The JSON of ``gpuspawner topology --json``.

    ``links`` is a square matrix in the order of ``gpus``; ``nic_links[n][g]`` is the link between ``nics[n]`` and
    ``gpus[g]``; it is empty if none is known. Affinities have one entry for each GPU, null if unknown: CPU and NUMA
    lists are strings such as ``0-11,24-35``, the GPU's own NUMA node is a number.
    """
    return {
        "version": JSON_VERSION,
        "gpus": list(gpu_names(topology)),
        "links": [[topology.link(a, b) for b in range(len(topology.gpus))] for a in range(len(topology.gpus))],
        "cpu_affinity": [format_cpulist(gpu.cpus) or None for gpu in topology.gpus],
        "numa_affinity": [
            format_cpulist(gpu.numa_affinity or (() if gpu.numa_node is None else (gpu.numa_node,))) or None
            for gpu in topology.gpus
        ],
        "gpu_numa_id": [gpu.gpu_numa_id for gpu in topology.gpus],
        "nics": list(topology.nics),
        "nic_links": [list(row) for row in topology.nic_links],
        "warnings": [*topology.problems, *topology.notes],
    }


def listing(topology: NodeTopology) -> str:
    """The node as tables: GPUs, links, NUMA nodes, and what is unknown."""
    parts = [_headline(topology)]
    if topology.gpus:
        parts += [_gpus(topology), _links(topology)]
    if topology.numa_nodes:
        parts.append(_numa_nodes(topology))
    sentences = (*topology.problems, *topology.notes)
    if sentences:
        parts.append("\n".join(["Unknown or uncertain:", *(f"  {sentence}" for sentence in sentences)]))
    return "\n\n".join(parts) + "\n"


def _headline(topology: NodeTopology) -> str:
    counts = [_count(len(topology.gpus), "GPU")]
    if topology.nics:
        counts.append(_count(len(topology.nics), "NIC"))
    if topology.numa_nodes:
        counts.append(_count(len(topology.numa_nodes), "NUMA node"))
        counts.append(_count(len({cpu for node in topology.numa_nodes for cpu in node.cpus}), "CPU"))
    name = f"{topology.hostname}: " if topology.hostname else ""
    driver = f", driver {topology.driver}" if topology.driver else ""
    simulated = "; a simulated node" if topology.simulated else ""
    return f"{name}{', '.join(counts)}{driver} (from {topology.source or 'nothing'}{simulated})"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _gpus(topology: NodeTopology) -> str:
    columns: dict[str, list[str]] = {
        "": list(gpu_names(topology)),
        "name": [gpu.name for gpu in topology.gpus],
        "memory": ["" if gpu.memory_mib is None else f"{gpu.memory_mib} MiB" for gpu in topology.gpus],
        "NUMA node": [
            str(gpu.numa_node) if gpu.numa_node is not None else format_cpulist(gpu.numa_affinity)
            for gpu in topology.gpus
        ],
        "CPUs": [format_cpulist(gpu.cpus) for gpu in topology.gpus],
        "own NUMA node": ["" if gpu.gpu_numa_id is None else str(gpu.gpu_numa_id) for gpu in topology.gpus],
        "bus id": [gpu.pci for gpu in topology.gpus],
        "UUID": [gpu.uuid for gpu in topology.gpus],
    }
    filled = [[name, *(value or UNKNOWN for value in values)] for name, values in columns.items() if any(values)]
    return table(zip(*filled, strict=True))


def _links(topology: NodeTopology) -> str:
    names = gpu_names(topology)
    rows = [[name, *(topology.link(a, b) for b in range(len(names)))] for a, name in enumerate(names)]
    if topology.nic_links:
        rows += [[nic, *row] for nic, row in zip(topology.nics, topology.nic_links, strict=True)]
    links = {word for row in rows for word in row[1:]}
    meanings = [f"  {word:<5} {meaning}" for word, meaning in _MEANINGS.items() if word in links]
    for maker, meaning in (("X", "  XGMI# # XGMI links"), ("N", "  NV#   # NVLinks")):
        if any(link_count(word) and word[0] == maker for word in links):
            meanings.insert(0, meaning)
    matrix = table([["", *names], *rows])
    return "\n".join([matrix, "", *meanings]) if meanings else matrix


def _numa_nodes(topology: NodeTopology) -> str:
    distances = any(node.distances for node in topology.numa_nodes)
    rows = [
        [
            str(node.id),
            format_cpulist(node.cpus) or "none",
            UNKNOWN if node.memory_mib is None else f"{node.memory_mib} MiB",
            *([" ".join(map(str, node.distances)) or UNKNOWN] if distances else []),
        ]
        for node in topology.numa_nodes
    ]
    return table([["NUMA node", "CPUs", "memory", *(["distances"] if distances else [])], *rows])


@click.group(invoke_without_command=True)
@source_options
@JSON
@click.pass_context
def topology(
    context: click.Context,
    *,
    text: str | None,
    file: str | None,
    timeout: float,
    as_json: bool,
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
        if as_json:
            raise click.UsageError(f"--json cannot be used with {context.invoked_subcommand}.")
        return
    source_topology = source.read()
    if as_json:
        click.echo(json.dumps(document(source_topology), indent=2))
    else:
        click.echo(listing(source_topology), nl=False)


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
    node = source.read()
    recorded = replace(node, simulated=simulated or node.simulated)
    write(destination, json.dumps(to_document(recorded if hostname else _nameless(recorded)), indent=1) + "\n")
    click.echo(f"{destination}: {_contents(node)}.", err=True)


def _nameless(node: NodeTopology) -> NodeTopology:
    """The topology without the node's name, which is also removed from its problems."""
    if not node.hostname:
        return node
    problems = tuple(problem.replace(node.hostname, "this node") for problem in node.problems)
    return replace(node, hostname="", problems=problems)


def _contents(node: NodeTopology) -> str:
    contents = {"GPUs": node.gpus, "NICs": node.nics, "NUMA nodes": node.numa_nodes, "warnings": node.problems}
    return ", ".join(f"{len(items)} {what}" for what, items in contents.items())
