"""The node that a command describes: this one, the output of ``nvidia-smi topo -m``, or a topology file."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyterhub_gpuspawner.placement.topology import NodeTopology

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
    from jupyterhub_gpuspawner.node.observation import observe

    try:
        return observe(node=os.uname().nodename, topology_file=None, deadline=timeout, network=True)
    except OSError as error:
        give_up(f"this node's hardware cannot be read: {error.strerror}")


def _from_text(name: str) -> NodeTopology:
    from jupyterhub_gpuspawner.placement.nvidia_smi_matrix import TopoTextError, parse

    try:
        return parse(_content(name))
    except TopoTextError as error:
        give_up(f"{_words(name)}: {error}")


def _from_file(name: str) -> NodeTopology:
    from jupyterhub_gpuspawner.placement.topology import from_document

    try:
        return replace(from_document(json.loads(_content(name))), source="file")
    except (ValueError, RecursionError) as error:
        give_up(f"{_words(name)} is not a topology file: {error}")


def _content(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        give_up(f"{name} cannot be read: {error.strerror}")
    return data.decode("utf-8", errors="replace")


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
