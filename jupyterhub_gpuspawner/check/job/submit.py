"""``gpuspawner check --submit``: one small job in each partition that profiles use, as a user."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.check.hub.address import hub_address
from jupyterhub_gpuspawner.check.job.judgement import judged
from jupyterhub_gpuspawner.check.job.network import listening_hub
from jupyterhub_gpuspawner.check.job.run import follow
from jupyterhub_gpuspawner.check.job.script import START, Trial, Tried, partitions
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub.site.account import refuse_root
from jupyterhub_gpuspawner.hub.start.build import launch_plan, plain_request
from jupyterhub_gpuspawner.jobs import identity
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.snapshot import own_account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.hub.site.account import Account
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan

NO_USER = Code("submit-without-user", "--submit needs --user: jobs belong to users.")
NO_ACCOUNT = Code("submit-without-account", "With --submit: the user has no account, or is root, so there is no job.")


async def check_submit(context: Context) -> list[Finding]:
    """Submit, follow and cancel the jobs, all partitions at the same time."""
    if not context.options.submit or context.snapshot is None:
        return []
    user = context.options.user or ("" if context.slurm_site.exec_prefix.strip() else own_account())
    if not user:
        return [NO_USER.error("--submit", "jobs belong to users, and none is named.", "Name one with --user.")]
    site = _site_of(context, user)
    try:
        if site.exec_prefix.strip():
            await refuse_root(user)
        account = await site.account()
    except ConfigError as error:
        return [NO_ACCOUNT.error(f"user {user}", error.message, error.hint)]
    try:
        hub = hub_address(context)
    except ConfigError:  # which the check of names reports
        return []
    environment = {
        name: value
        for name, value in site.job_environment(account).items()
        if name not in ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN")
    }
    environment["JUPYTERHUB_API_URL"] = hub.told
    prefix = command_prefix(site.exec_prefix, user)
    trials = [
        _trial(site, account, name, profiles, hub.told)
        for name, profiles in partitions(list(_profiles(context, site, user))).items()
    ]
    async with listening_hub(hub) as listens:
        courses = await asyncio.gather(*(follow(site, each, _plan(site, each), prefix, environment) for each in trials))
    at = site.configured_as("exec_prefix")
    return [finding for course in courses for finding in judged(course, hub_listens=listens, prefix_at=at)]


def _site_of(context: Context, user: str) -> GPUSlurmSpawner:
    spawner: GPUSlurmSpawner = context.site.spawner(user, context.options.groups)
    return spawner


def _profiles(context: Context, site: GPUSlurmSpawner, user: str) -> Iterator[Tried]:
    """The Slurm profiles whose job can be written for the user; whether the user may use them is another check's."""
    if not context.profiles:
        request = plain_request(site, username=user, server_name="")
        yield Tried(request.profile, request, site.cmd[0])
    for profile in context.profiles:
        if profile.kind != "slurm" or context.options.profile not in ("", profile.slug):
            continue
        spawner = context.site.spawner(user, (*context.options.groups, *profile.allow.groups))
        try:
            request = spawner.resolve({"profile": profile.slug})
        except (ConfigError, RequestError):
            continue
        yield Tried(profile.slug, request, _command(request, site))


def _command(request: JobRequest, site: GPUSlurmSpawner) -> str:
    return (request.command or tuple(site.cmd))[0]


def _plan(site: GPUSlurmSpawner, trial: Trial) -> LaunchPlan:
    """The launcher's plan: it reports to nobody, promises nothing, and claims no GPU."""
    return replace(launch_plan(site, trial.profiles[0].request), report=False, gpus=None, cpus=None, claim=None)


def _trial(site: GPUSlurmSpawner, account: Account, partition: str, profiles: tuple[Tried, ...], hub: str) -> Trial:
    word = secrets.token_hex(8)
    start = f"{START}-{word}"
    first, last = (map(int, site.port_range.split("-"))) if site.port_range else (0, 0)
    return Trial(
        partition=partition,
        profiles=profiles,
        hub=hub,
        ports=profiles[0].request.port_range or (first, last),
        tag=f"{identity.tag(site.hub_name, account.name, '')}#{start}",
        name=identity.job_name(site.job_name, start),
        word=word,
        log_dir=site.log_dir.replace("{homedir}", account.home).replace("{username}", account.name),
        home=account.home,
        prologue=site.req_prologue,
        gpus_option=site.gpus_option,
        finds_commands=not site.batch_script,
    )
