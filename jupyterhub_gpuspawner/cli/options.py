"""What several commands share: the option that names the configuration, and how an error ends a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from jupyterhub_gpuspawner.errors import SlurmUnavailable

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.errors import GPUSpawnerError

CONFIG = click.option(
    "--config",
    "-f",
    default="jupyterhub_config.py",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The hub's configuration file.",
)
EXIT_CONFIG, EXIT_SLURM = 1, 3


def fail(error: GPUSpawnerError) -> NoReturn:
    """Print the error and exit: with 3 where Slurm does not answer, else with 1."""
    click.echo(f"gpuspawner: {error}", err=True)
    raise SystemExit(EXIT_SLURM if isinstance(error, SlurmUnavailable) else EXIT_CONFIG)
