"""``gpuspawner migrate``: converts the configuration of an older spawner."""

from __future__ import annotations

import json
from pathlib import Path

import click

from jupyterhub_gpuspawner.cli.options import fail
from jupyterhub_gpuspawner.errors import GPUSpawnerError


@click.command()
@click.argument("config", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--only",
    type=click.Choice(["settings", "profiles", "differences"]),
    help="Print this part alone, such as for a file of its own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all parts as one JSON object.")
def migrate(*, config: Path, only: str | None, as_json: bool) -> None:
    """Convert FILE, a jupyterhub_config.py for batchspawner, wrapspawner, moss or SlurmFormSpawner.

    FILE is executed, as the hub does, and not changed. Printed are the settings to write in place of the older ones,
    the profiles as YAML, and a list of all differences: those that you have to decide about come first.
    """
    from jupyterhub_gpuspawner.migrate.migration import migrate as migration_of
    from jupyterhub_gpuspawner.migrate.result import differences_tables, profiles_yaml, settings_text

    try:
        migration = migration_of(config)
    except GPUSpawnerError as error:
        fail(error)
    parts = {
        "settings": settings_text(migration),
        "profiles": profiles_yaml(migration.in_files),
        "differences": differences_tables(migration.differences, "##"),
    }
    if as_json:
        differences = [difference.document() for difference in migration.differences]
        click.echo(json.dumps({**parts, "differences": differences}, indent=2))
    elif only is not None:
        click.echo(parts[only].strip("\n"))
    else:
        headings = {"settings": "jupyterhub_config.py", "profiles": "profiles.yaml", "differences": "Differences"}
        click.echo("\n\n".join(f"# {heading}\n\n{parts[name].strip()}" for name, heading in headings.items()))
