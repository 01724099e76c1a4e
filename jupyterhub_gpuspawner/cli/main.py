"""``gpuspawner``: try it, check it, look at what would be submitted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import click

from jupyterhub_gpuspawner import __version__
from jupyterhub_gpuspawner.cli.bandwidth import bandwidth
from jupyterhub_gpuspawner.cli.bind import bind
from jupyterhub_gpuspawner.cli.place import place
from jupyterhub_gpuspawner.cli.topology import topology
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable

CONFIG = click.option(
    "--config",
    "-f",
    default="jupyterhub_config.py",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The hub's configuration file.",
)
EXIT_CONFIG, EXIT_SLURM = 1, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuspawner")
def main() -> None:
    """JupyterHub on the GPUs of a Slurm cluster."""


for command in (topology, place, bind, bandwidth):
    main.add_command(command)


@main.command()
@click.option("--once", is_flag=True, help="Without a person: spawn each profile, print each placement as JSON, stop.")
@click.option("--port", default=8000, show_default=True, help="Port of 127.0.0.1 to serve at; 0 takes a free one.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep the demo's files here.")
def demo(*, once: bool, port: int, folder: Path | None) -> None:
    """Run a hub in front of a private Slurm of simulated GPU nodes, until Ctrl-C."""
    from jupyterhub_gpuspawner.demo.run import run_demo

    try:
        run_demo(once=once, port=port, folder=folder)
    except GPUSpawnerError as error:
        _fail(error)


@main.command()
@click.argument("profile")
@click.option("--user", required=True, help="For whom; the account must exist on this machine.")
@click.option("--option", "-o", multiple=True, metavar="NAME=VALUE", help="A choice, as in the form.")
@click.option("--group", multiple=True, help="A JupyterHub group of the user.")
@click.option("--server", default="", help="Name of a named server.")
@CONFIG
def show(
    *, profile: str, user: str, option: tuple[str, ...], group: tuple[str, ...], server: str, config: Path
) -> None:
    """Print the batch script that PROFILE would submit, whole. Nothing is submitted."""
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
        _fail(error)
    for note in job.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(job.script, nl=False)


@main.command()
@CONFIG
def check(config: Path) -> None:
    """Read the configuration and the profiles, and ask Slurm whether it is there.

    A line that begins with warn names a setting that has no effect, and what to do instead. Exit code 0: all is well,
    whatever is warned of; 1: configuration or a profile is wrong; 3: Slurm does not answer.
    """
    from jupyterhub_gpuspawner.cli.site import SLURM, load_site

    try:
        findings = asyncio.run(load_site(config).findings())
    except GPUSpawnerError as error:
        _fail(error)
    for finding in findings:
        state = "WRONG" if not finding.ok else "warn " if finding.warning else "ok   "
        click.echo(f"{state} {finding.subject}: {finding.text}")
    wrong = {finding.subject for finding in findings if not finding.ok}
    if wrong:
        raise SystemExit(EXIT_SLURM if wrong == {SLURM} else EXIT_CONFIG)


def _fail(error: GPUSpawnerError) -> NoReturn:
    click.echo(f"gpuspawner: {error}", err=True)
    raise SystemExit(EXIT_SLURM if isinstance(error, SlurmUnavailable) else EXIT_CONFIG)
