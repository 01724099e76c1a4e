"""``gpuspawner topology --svg``: the picture of a node."""

from __future__ import annotations

import copy
from typing import Any

import click
from click.core import ParameterSource

from jupyterhub_gpuspawner.cli.topology import Source, write
from jupyterhub_gpuspawner.extensions.picture import drawing

SOURCE = {"text", "file", "timeout"}
"""The options that say which node it is."""
SVG = click.Option(["--svg"], metavar="FILE", help="Draw the node as an SVG file; - writes to standard output.")


def with_svg(topology: click.Command) -> click.Command:
    """``gpuspawner topology`` with the option ``--svg``; without another output option it writes the picture alone."""

    @click.pass_context
    def callback(context: click.Context, /, svg: str | None, **values: Any) -> None:
        if svg is not None:
            if context.invoked_subcommand is not None:
                raise click.UsageError(f"--svg cannot be used with {context.invoked_subcommand}.")
            node = Source(values["text"], values["file"], values["timeout"]).read()
            write(svg, drawing.by_itself(drawing.svg(node, title=node.hostname or "Node")) + "\n")
            given = {name for name in values if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
            if given <= SOURCE:
                return
        assert topology.callback is not None
        topology.callback(**values)

    extended = copy.copy(topology)
    extended.params = [*topology.params, SVG]
    extended.callback = callback
    return extended
