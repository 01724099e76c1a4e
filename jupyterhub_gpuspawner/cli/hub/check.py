"""``gpuspawner check``: what would go wrong, before a user finds out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, EXIT_CONFIG, EXIT_SLURM, fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@CONFIG
def check(config: Path) -> None:
    """Check the configuration, the profiles, and whether Slurm answers.

    A line that begins with warn names a setting that has no effect, and what to use instead. Exit code 0: no errors,
    possibly warnings; 1: the configuration or a profile is wrong; 3: Slurm does not answer.
    """
    from jupyterhub_gpuspawner.check.site import SLURM, load_site

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
