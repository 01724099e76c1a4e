"""``gpuspawner check``, ``show`` and ``migrate``: commands that read a hub's configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jupyterhub_gpuspawner.check import run
from jupyterhub_gpuspawner.check.finding import Finding, Options
from jupyterhub_gpuspawner.cli.options import CLUSTER, CONFIG, EXIT_CONFIG, JSON_VERSION, OPTION, choice_of
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.migrate.compare import comparisons
from jupyterhub_gpuspawner.migrate.migration import migrate as migration_of
from jupyterhub_gpuspawner.migrate.result import differences_tables, profiles_yaml, settings_text
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.site.jobs import choice_on, jobs_of
from jupyterhub_gpuspawner.slurm.accounts import account_of, refuse_root


@click.command()
@click.option("--user", default="", help="Ask Slurm, as this user, what it would do with each profile's job.")
@click.option(
    "--group",
    multiple=True,
    help="Group to assume for --user; may be repeated. Default: those in JupyterHub's database.",
)
@click.option("--profile", default="", metavar="SLUG", help="Try only this profile. Default: all.")
@click.option("--cluster", default="", metavar="NAME", help="Look at this cluster alone. Default: each of the hub's.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option(
    "--submit",
    is_flag=True,
    help="Submit one small job in each partition of each cluster, as the user of --user, look at its node, and cancel "
    "it.",
)
@CONFIG
def check(
    *,
    user: str,
    group: tuple[str, ...],
    profile: str,
    cluster: str,
    submit: bool,
    as_json: bool,
    config: Path,
    **added: Any,
) -> None:
    """Check the configuration, each profile with its options, and Slurm.

    Nothing is submitted or changed, unless --submit is given. In a hub with several clusters each of them is asked, and
    what is found of one names it.

    warn: it works, but look at it. WRONG: starts will fail. Exit code 0: no errors, possibly warnings; 1: the
    configuration or a profile is wrong; 3: Slurm does not answer, of several clusters one of them, and nothing else is
    wrong.
    """
    if group and not user:
        raise click.UsageError("--group needs --user.")
    given = {name: value for name, value in added.items() if value}
    if profile and not (user or given or submit):
        raise click.UsageError(
            f"--profile needs {', '.join(['--user', *(f'--{name}' for name in added)])} or --submit."
        )

    async def run_checks() -> Sequence[Finding]:
        options = Options(user, group, profile, submit, cluster, given)
        return await run.findings_of_all(await run.contexts_of(load_site(config), options))

    try:
        findings = asyncio.run(run_checks())
    except GPUSpawnerError as error:
        faults = run.fatal(error, config)
        if as_json:
            click.echo(run.document(faults))
        else:
            click.echo("\n".join(f"gpuspawner: {run.sentence(fault)}" for fault in faults), err=True)
        raise SystemExit(EXIT_CONFIG) from None
    click.echo(run.document(findings) if as_json else "\n".join(map(run.line, findings)))
    if code := run.exit_code(findings):
        raise SystemExit(code)


# ``gpuspawner show``: the batch script of a profile.


@click.command()
@click.argument("profile")
@click.option("--user", required=True, help="User to show the script for; the account must exist on this machine.")
@OPTION
@CLUSTER
@click.option("--group", multiple=True, help="JupyterHub group of the user; may be repeated.")
@click.option("--server", default="", help="Name of the server, if it is a named server.")
@CONFIG
def show(
    *,
    profile: str,
    user: str,
    options: tuple[str, ...],
    cluster: str,
    group: tuple[str, ...],
    server: str,
    config: Path,
) -> None:
    """Print the complete batch script for PROFILE, without submitting it."""
    site = load_site(config)
    choice, cluster = choice_on(site, choice_of(profile, options), cluster)
    jobs = asyncio.run(jobs_of(site, choice, user=user, groups=group, server=server, cluster=cluster))
    try:
        asyncio.run(refuse_root(user))
    except ConfigError as error:
        click.echo(f"note: no hub submits this: {error}", err=True)
    for job in jobs:
        for note in job.notes:
            click.echo(f"note: {note}", err=True)
        click.echo(job.script, nl=False)


# ``gpuspawner migrate``: converts the configuration of an older spawner.


@click.command()
@click.argument("config", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--only",
    type=click.Choice(["settings", "profiles", "differences"]),
    help="Print this part alone, such as for a file of its own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all parts as one JSON object.")
@click.option(
    "--compare",
    "user",
    default="",
    metavar="USER",
    help="Print the script of this user's job as batchspawner makes it beside the new one, for each profile.",
)
def migrate(*, config: Path, only: str | None, as_json: bool, user: str) -> None:
    """Convert FILE, a jupyterhub_config.py for batchspawner, wrapspawner, moss or SlurmFormSpawner.

    FILE is executed, as the hub does, and not changed. Printed are the settings to write in place of the older ones,
    the profiles as YAML, and a list of all differences: those that you have to decide about come first. A hub of
    batchspawner's with a form of its own keeps that and gets no profiles; this part is empty then.

    With --compare nothing is submitted. A line begins with ! where the two scripts of a profile differ, and with ~
    where every job of this package does. Exit code 0: the jobs are the same; 1: one of them differs, or there is no
    result.
    """
    migration = migration_of(config)
    if user:
        compared = [*comparisons(migration, asyncio.run(account_of(user)))]
        click.echo("\n\n".join(comparison.text() for comparison in compared))
        if not all(comparison.same for comparison in compared):
            raise SystemExit(EXIT_CONFIG)
        return
    parts = {
        "settings": settings_text(migration),
        "profiles": profiles_yaml(migration.in_files),
        "differences": differences_tables(migration.differences, "##"),
    }
    if as_json:
        differences = [difference.document() for difference in migration.differences]
        click.echo(json.dumps({"version": JSON_VERSION, **parts, "differences": differences}, indent=2))
    elif only is not None:
        click.echo(parts[only].strip("\n"))
    else:
        headings = {"settings": "jupyterhub_config.py", "profiles": "profiles.yaml", "differences": "Differences"}
        said = (f"# {heading}\n\n{parts[name].strip()}" for name, heading in headings.items() if parts[name])
        click.echo("\n\n".join(said))
