"""``gpuspawner migrate``: converts the configuration of an older spawner."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jupyterhub_gpuspawner.cli.options import fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError


@click.command()
@click.argument("config", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--output",
    "-o",
    default="migrated",
    show_default=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the result.",
)
@click.option("--force", is_flag=True, help="Write over files of an earlier result.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def migrate(*, config: Path, output: Path, force: bool, as_json: bool) -> None:
    """Convert FILE, a jupyterhub_config.py for batchspawner, wrapspawner, moss or SlurmFormSpawner.

    FILE is executed, as the hub does, and not changed. The result is a configuration, its profiles as YAML, and a list
    of all differences.
    """
    from jupyterhub_gpuspawner.migrate.difference import Kind
    from jupyterhub_gpuspawner.migrate.migration import migrate as migration_of
    from jupyterhub_gpuspawner.migrate.result_files import CONFIGURATION, TITLES, write

    try:
        migration = migration_of(config)
        written = write(migration, output, source=config, force=force)
    except GPUSpawnerError as error:
        fail(error)
    if as_json:
        click.echo(json.dumps([each.document() for each in migration.differences], indent=2))
        return
    for path in written:
        click.echo(f"written   {path}")
    for kind, title in TITLES.items():
        rows = [each for each in migration.differences if each.kind is kind]
        if rows and kind is not Kind.DECIDE:
            click.echo(f"{len(rows):7}   {title.lower()}")
    for each in migration.differences:
        if each.kind is Kind.DECIDE:
            click.echo(f"decide    {each.where}: {each.why}. {each.todo}")
    click.echo(f"Next: gpuspawner check --config {output / CONFIGURATION}")
