"""The command line: ``gpuspawner`` with its commands, each of whose modules is imported when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from jupyterhub_gpuspawner import __version__
from jupyterhub_gpuspawner.cli.options import fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError

COMMANDS = {
    "bandwidth": (
        "bandwidth",
        "Measure copies of pinned memory to and from each GPU, bound to each NUMA node and unbound.",
    ),
    "check": ("check", "Check the configuration, each profile with its options, each course, and Slurm."),
    "course": ("course", "Prepare a course, and run it."),
    "failures": (
        "failures",
        "List starts that failed by cluster, cause and profile, with their nodes, and what mends each cause.",
    ),
    "files": (
        "files",
        "Write the files that an admin installs beside a hub into DIR, with the paths of this installation.",
    ),
    "fleet": ("fleet", "Show which nodes differ from their siblings, and how well Slurm places jobs on them."),
    "idle": (
        "records",
        "List servers that were idle for as long as their profile allows, with the GPU-hours that they held unused.",
    ),
    "message": ("hub_api", "Show TEXT to people on the hub's pages and in JupyterLab."),
    "migrate": (
        "check",
        "Convert FILE, a jupyterhub_config.py for batchspawner, wrapspawner, moss or SlurmFormSpawner.",
    ),
    "place": ("place", "Choose GPUs of a node as the launcher does in a job, and explain the choice."),
    "run": (
        "place",
        "Run COMMAND as one job step on the nodes and GPUs of this job, each rank bound to its part of its node.",
    ),
    "sessions": ("records", "Read, export and delete the records of sessions."),
    "show": ("check", "Print the complete batch script for PROFILE, without submitting it."),
    "topology": ("topology", "Show a node's GPUs, the links between them, and the CPUs and memory closest to them."),
    "why": (
        "failures",
        "Say what happened to the last server of USER: how long it waited, where it ran, and why it ended.",
    ),
    "what-if": ("what_if", "Show which servers of a profile would run, and on what: today, and after a change."),
}
"""The module of each command, and the first sentence of its help: without it, ``--help`` would import them all."""


class Commands(click.Group):
    """The commands by their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*COMMANDS, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        # JupyterHub imports jsonschema, which takes a second to compile a grammar of IRIs that no command needs
        sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
        module = import_module(f"jupyterhub_gpuspawner.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        sentences = {name: command.get_short_help_str(120) for name, command in self.commands.items()}
        sentences |= {name: sentence for name, (_, sentence) in COMMANDS.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(sentences.items()))

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


@main.command()
@click.option("--once", is_flag=True, help="Start a server of each profile, print its placement as JSON, and exit.")
@click.option("--port", default=8000, show_default=True, help="Port on 127.0.0.1; 0 picks a free one.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Folder in which to keep the demo's files."
)
def demo(*, once: bool, port: int, folder: Path | None) -> None:
    """Run a hub with a private Slurm of simulated GPU nodes, until Ctrl-C."""
    run = import_module("jupyterhub_gpuspawner.demo.run")
    run.run_demo(once=once, port=port, folder=folder)
