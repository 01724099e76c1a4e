"""The command line: ``gpuspawner`` with its commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from jupyterhub_gpuspawner import __version__
from jupyterhub_gpuspawner.cli.bandwidth import bandwidth
from jupyterhub_gpuspawner.cli.bind import bind
from jupyterhub_gpuspawner.cli.course import course
from jupyterhub_gpuspawner.cli.course_live import COMMANDS
from jupyterhub_gpuspawner.cli.options import CONFIG, EXIT_CONFIG, EXIT_SLURM, fail
from jupyterhub_gpuspawner.cli.place import place
from jupyterhub_gpuspawner.cli.topology import topology
from jupyterhub_gpuspawner.errors import GPUSpawnerError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuspawner")
def main() -> None:
    """Tools for JupyterHub on Slurm GPU clusters."""


for command in (topology, place, bind, bandwidth, course):
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


@main.command()
@click.argument("profile")
@click.option("--user", required=True, help="User to show the script for; the account must exist on this machine.")
@click.option("--option", "-o", multiple=True, metavar="NAME=VALUE", help="Value of a profile option; may be repeated.")
@click.option("--group", multiple=True, help="JupyterHub group of the user; may be repeated.")
@click.option("--server", default="", help="Name of the server, if it is a named server.")
@CONFIG
def show(
    *, profile: str, user: str, option: tuple[str, ...], group: tuple[str, ...], server: str, config: Path
) -> None:
    """Print the complete batch script for PROFILE, without submitting it."""
    from jupyterhub_gpuspawner.cli.site import load_site

    try:
        choice: dict[str, object] = {"profile": profile}
        for pair in option:
            name, equals, value = pair.partition("=")
            if not equals:
                raise click.BadParameter(f"{pair!r} must be NAME=VALUE", param_hint="--option")
            choice[name] = value
        job = asyncio.run(load_site(config).job(choice, user=user, groups=group, server=server))
    except GPUSpawnerError as error:
        fail(error)
    for note in job.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(job.script, nl=False)


@main.command()
@CONFIG
def check(config: Path) -> None:
    """Check the configuration, the profiles, and whether Slurm answers.

    A line that begins with warn names a setting that has no effect, and what to use instead. Exit code 0: no errors,
    possibly warnings; 1: the configuration or a profile is wrong; 3: Slurm does not answer.
    """
    from jupyterhub_gpuspawner.cli.site import SLURM, load_site

    try:
        findings = asyncio.run(load_site(config).findings())
    except GPUSpawnerError as error:
        fail(error)
    for finding in findings:
        state = "WRONG" if not finding.ok else "warn " if finding.warning else "ok   "
        click.echo(f"{state} {finding.subject}: {finding.text}")
    wrong = {finding.subject for finding in findings if not finding.ok}
    if wrong:
        raise SystemExit(EXIT_SLURM if wrong == {SLURM} else EXIT_CONFIG)
