"""The command line: ``gpuspawner`` with its commands, each of whose modules is imported when it is called."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import click

from jupyterhub_gpuspawner import __version__
from jupyterhub_gpuspawner.cli.options import fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.extension import Command, Extension, installed

OWN = {
    "check": Command(
        "jupyterhub_gpuspawner.cli.check:check",
        "Check the configuration, each profile with its options, and Slurm.",
    ),
    "demo": Command(
        "jupyterhub_gpuspawner.demo.run:demo",
        "Run a hub with a private Slurm of simulated GPU nodes, until Ctrl-C.",
    ),
    "extensions": Command(
        "jupyterhub_gpuspawner.cli.extensions:extensions",
        "List the extensions that are installed, with what each adds.",
    ),
    "files": Command(
        "jupyterhub_gpuspawner.cli.files:files",
        "Write the files that an admin installs beside a hub into DIR, with the paths of this installation.",
    ),
    "migrate": Command(
        "jupyterhub_gpuspawner.cli.check:migrate",
        "Convert FILE, a jupyterhub_config.py for batchspawner, wrapspawner, moss or SlurmFormSpawner.",
    ),
    "place": Command(
        "jupyterhub_gpuspawner.cli.place:place",
        "Choose GPUs of a node as the launcher does in a job, and explain the choice.",
    ),
    "show": Command(
        "jupyterhub_gpuspawner.cli.check:show", "Print the complete batch script for PROFILE, without submitting it."
    ),
    "topology": Command(
        "jupyterhub_gpuspawner.cli.topology:topology",
        "Show a node's GPUs, the links between them, and the CPUs and memory closest to them.",
    ),
}
"""The commands that are no extension's. The sentences stand here: without them, ``--help`` would import them all."""


@cache
def commands() -> dict[str, tuple[Extension, Command]]:
    """All commands by their names, each with what declares it; one of ours is not replaced by an extension's."""
    own = Extension("cli", "The command line.")
    of_extensions = {name: (each, command) for each in installed() for name, command in each.commands.items()}
    return {**of_extensions, **{name: (own, command) for name, command in OWN.items()}}


class Commands(click.Group):
    """The commands by their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in commands():
            return None
        # JupyterHub imports jsonschema, which takes a second to compile a grammar of IRIs that no command needs
        sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
        extension, named = commands()[cmd_name]
        try:
            command: click.Command = extension.load(named.target)
            for other in installed():
                if cmd_name in other.command_options:
                    command = other.load(other.command_options[cmd_name])(command)
        except (Exception, SystemExit) as error:
            if extension.package:
                raise GPUSpawnerError(f"The command {cmd_name} of the extension {extension.name}: {error}") from error
            raise
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.sentence) for name, (_, command) in sorted(commands().items())])

    def invoke(self, ctx: click.Context) -> Any:
        """Run one; an error of this package is printed, and ends it with 3 where Slurm does not answer, else with 1."""
        try:
            return super().invoke(ctx)
        except GPUSpawnerError as error:
            fail(error)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuspawner")
def main() -> None:
    """Tools for JupyterHub on Slurm GPU clusters."""
