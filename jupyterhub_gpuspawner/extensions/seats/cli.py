"""``gpuspawner what-if``: which servers would run, and on what, before anybody changes anything."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from jupyterhub_gpuspawner.cli.options import CLUSTER, CONFIG, JSON, OPTION, choice_of, table
from jupyterhub_gpuspawner.extensions.seats.outcome import JobOutcome, SiteOutcome, near_cpus, outcome
from jupyterhub_gpuspawner.extensions.seats.site import PLACEMENT_OPTIONS, Request
from jupyterhub_gpuspawner.extensions.seats.site import Site as SlurmSite
from jupyterhub_gpuspawner.extensions.seats.twin import read_site, what_runs
from jupyterhub_gpuspawner.extensions.seats.what_if import WhatIfDocument, with_gres_conf, with_nodes, with_parameter
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site, load_site
from jupyterhub_gpuspawner.site.jobs import choice_on, jobs_of
from jupyterhub_gpuspawner.slurm.job import job_owner
from jupyterhub_gpuspawner.slurm.sbatch_options import directives, options_of
from jupyterhub_gpuspawner.units import format_cpulist


@click.command("what-if")
@click.option("--profile", default="", metavar="SLUG", help="The profile; in a hub without profiles there is none.")
@click.option("--people", type=click.IntRange(1, 5000), default=1, show_default=True, help="How many people start it.")
@OPTION
@CLUSTER
@click.option("--user", default="", help="One of these people. Default: somebody who may use the profile.")
@click.option("--group", multiple=True, help="JupyterHub group of the people; may be repeated.")
@click.option(
    "--gres-conf",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Change: lines of gres.conf, in the place of all lines of the nodes that they name.",
)
@click.option("--add-nodes", multiple=True, metavar="NEW=LIKE", help="Change: more nodes like one, as in g[4-5]=g1.")
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change: a parameter of slurm.conf; may be repeated.",
)
@click.option("--empty", is_flag=True, help="On a cluster without jobs. Default: with those that run now.")
@JSON
@CONFIG
def what_if(
    *,
    profile: str,
    people: int,
    options: tuple[str, ...],
    cluster: str,
    user: str,
    group: tuple[str, ...],
    gres_conf: Path | None,
    add_nodes: tuple[str, ...],
    parameters: tuple[str, ...],
    empty: bool,
    as_json: bool,
    config: Path,
) -> None:
    """Show which servers of a profile would run, and on what: today, and after a change.

    Nothing is submitted or changed. A slurmctld without nodes is given the site's configuration and jobs; it runs for
    some seconds on this machine, or where Slurm is asked. Jobs of others that wait now come first. Limits of accounts
    and QOS count where --user says whose.

    For each person: the node, Slurm's numbers of GPUs and cores, and whether the cores are beside the GPUs. Exit code
    0: an answer, also where not all run; 1: the configuration, the choice or a change is wrong; 3: Slurm or its
    slurmctld cannot be asked.
    """
    choice = choice_of(profile, options)
    lines = None if gres_conf is None else gres_conf.read_text("utf-8", "replace")

    async def ask() -> WhatIfDocument:
        site = load_site(config)
        if not profile and issubclass(site.spawner_class, GPUProfilesSpawner):
            raise click.UsageError("Name a profile with --profile.")
        chosen, name = choice_on(site, choice, cluster)
        requests, notes = await _requests(site, chosen, people, user, group, cluster=name)
        slurm = site.spawner("nobody", cluster=name).connection().client.installation
        today = await read_site(slurm)
        if empty:
            today = replace(today, jobs=(), waiting=())
        then = _changed(today, parameters, add_nodes, lines)
        sites, at = (today,) if then is today else (today, then), time.time()
        answers = await asyncio.gather(*(what_runs(state, requests, at=at, slurm=slurm) for state in sites))
        # where gres.conf does not say it today, the cores beside a GPU are those of the changed one
        near = near_cpus(*reversed(sites))
        outcomes = [outcome(of, state, near) for of, state in zip(answers, sites, strict=True)]
        texts = [*notes, *(note for of in answers for note in (*of.not_counted, *of.notes))]
        return WhatIfDocument(
            slurm=answers[0].version,
            options=requests[0].options,
            today=outcomes[0],
            then=outcomes[1] if len(outcomes) > 1 else None,
            notes=tuple(dict.fromkeys(texts)),
        )

    document = asyncio.run(ask())
    if as_json:
        click.echo(json.dumps(asdict(document), indent=2))
        return
    for note in document.notes:
        click.echo(f"note: {note}", err=True)
    click.echo("\n".join(listing(document)))


def _changed(site: SlurmSite, parameters: Sequence[str], add_nodes: Sequence[str], lines: str | None) -> SlurmSite:
    """The site with the changes, the site itself without any; raises ConfigError."""
    for parameter in parameters:
        site = with_parameter(site, parameter)
    for addition in add_nodes:
        site = with_nodes(site, addition)
    return site if lines is None else with_gres_conf(site, lines)


async def _requests(
    site: Site, choice: Mapping[str, object], people: int, user: str, groups: Sequence[str], *, cluster: str
) -> tuple[list[Request], Sequence[str]]:
    """The jobs of so many people who make this choice, and what is worth a note; raises ConfigError or RequestError."""
    spawner = site.spawner("nobody")
    if not user and isinstance(spawner, GPUProfilesSpawner):
        allow = next((profile.allow for profile in spawner.offered() if profile.slug == choice["profile"]), None)
        if allow is not None and not groups:
            user, groups = next(iter(allow.users), ""), allow.groups
    owner = user or SOMEBODY.name
    job, *_ = await jobs_of(site, choice, user=owner, groups=groups, account=SOMEBODY, cluster=cluster)
    lines = (line.removeprefix("#SBATCH").strip() for line in directives(job.script))
    counted = PLACEMENT_OPTIONS | {"account", "qos"}
    options = tuple(line for line in lines if any(name in counted for name, _ in options_of(line)))
    account = job_owner(str(site.spawner("nobody", cluster=cluster).exec_prefix), user) if user else ""
    return [Request(str(number), options, account, number - 1) for number in range(1, people + 1)], job.notes


def listing(document: WhatIfDocument) -> list[str]:
    """The document as a table, and a line on how many run."""
    sites = {"TODAY": document.today} | ({"THEN": document.then} if document.then is not None else {})
    rows = [["PERSON", *(cell for name in sites for cell in (name, "GPUS", "CORES", "BESIDE"))]]
    for number, jobs in enumerate(zip(*(site.jobs for site in sites.values()), strict=True), 1):
        rows.append([str(number), *(cell for job in jobs for cell in _cells(job))])
    totals = (_total(name, site) for name, site in sites.items())
    return [*table(rows).splitlines(), *totals]


def _cells(job: JobOutcome) -> Iterator[str]:
    if not job.shares:
        yield from (f"refused: {job.refusal}" if job.refusal else f"waits: {job.reason}", "", "", "")
        return
    yield " + ".join(share.node for share in job.shares)
    yield " + ".join(format_cpulist(share.gpus) for share in job.shares).strip(" +")
    yield " + ".join(format_cpulist(share.cores) for share in job.shares)
    no_gpus = not any(share.gpus for share in job.shares)
    yield "" if no_gpus else {True: "yes", False: "no", None: "not known"}[job.beside]


def _total(name: str, site: SiteOutcome) -> str:
    with_gpus = sum(job.beside is not None for job in site.jobs)
    beside = f", {site.beside} of {with_gpus} with their cores beside their GPUs" if with_gpus else ""
    return f"{name.capitalize()}: {site.running} of {len(site.jobs)} run{beside}"
