"""``gpuspawner check``: what would go wrong, before a user finds out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from jupyterhub_gpuspawner.cli.options import CONFIG, fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jupyterhub_gpuspawner.check.finding import Finding


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@CONFIG
def check(*, as_json: bool, config: Path) -> None:
    """Check the configuration, the profiles, and whether Slurm answers.

    A line that begins with warn names something because of which nothing fails. Exit code 0: no errors, possibly
    warnings; 1: the configuration or a profile is wrong; 3: Slurm does not answer, and nothing else is wrong.
    """
    from jupyterhub_gpuspawner.check import run
    from jupyterhub_gpuspawner.check.site import load_site

    async def look() -> Sequence[Finding]:
        return await run.findings(await run.context_of(load_site(config)))

    try:
        findings = asyncio.run(look())
    except GPUSpawnerError as error:
        fail(error)
    click.echo(run.document(findings) if as_json else "\n".join(map(run.line, findings)))
    if code := run.exit_code(findings):
        raise SystemExit(code)
