"""``gpuspawner show``: the batch script of a profile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("profile")
@click.option("--user", required=True, help="User to show the script for; the account must exist on this machine.")
@click.option("--option", "-o", multiple=True, metavar="NAME=VALUE", help="Value of a profile option; may be repeated.")
@click.option("--group", multiple=True, help="JupyterHub group of the user; may be repeated.")
@click.option("--server", default="", help="Name of the server, if it is a named server.")
@CONFIG
def show(
    *, profile: str, user: str, option: tuple[str, ...], group: tuple[str, ...], server: str, config: Path
) -> None:
    """Print the complete batch script for PROFILE, without submitting it.

    For `course-NAME` it is the script of a participant in the course's session, the one that is open or the next.
    """
    from jupyterhub_gpuspawner.check.site import load_site

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
