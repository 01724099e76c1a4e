"""The command line: ``gpuspawner`` with its commands."""

from __future__ import annotations

from pathlib import Path

import click

from jupyterhub_gpuspawner import __version__
from jupyterhub_gpuspawner.cli.bandwidth import bandwidth
from jupyterhub_gpuspawner.cli.check import check, migrate, show
from jupyterhub_gpuspawner.cli.course_live import COMMANDS
from jupyterhub_gpuspawner.cli.courses import course
from jupyterhub_gpuspawner.cli.fleet import fleet
from jupyterhub_gpuspawner.cli.idle import idle
from jupyterhub_gpuspawner.cli.message import message
from jupyterhub_gpuspawner.cli.options import fail
from jupyterhub_gpuspawner.cli.place import bind, place, run
from jupyterhub_gpuspawner.cli.sessions import sessions
from jupyterhub_gpuspawner.cli.topology import topology
from jupyterhub_gpuspawner.errors import GPUSpawnerError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuspawner")
def main() -> None:
    """Tools for JupyterHub on Slurm GPU clusters."""


for command in (topology, place, bind, bandwidth, show, check, migrate, message, sessions, idle, fleet, run, course):
    main.add_command(command)
for command in COMMANDS:
    course.add_command(command)


@main.command()
@click.option("--once", is_flag=True, help="Start a server of each profile, print its placement as JSON, and exit.")
@click.option("--port", default=8000, show_default=True, help="Port on 127.0.0.1; 0 picks a free one.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Folder in which to keep the demo's files."
)
def demo(*, once: bool, port: int, folder: Path | None) -> None:
    """Run a hub with a private Slurm of simulated GPU nodes, until Ctrl-C."""
    from jupyterhub_gpuspawner.demo.run import run_demo

    try:
        run_demo(once=once, port=port, folder=folder)
    except GPUSpawnerError as error:
        fail(error)
