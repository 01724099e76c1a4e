"""The job that a user of a hub would get for a choice on the form. Nothing is submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jupyterhub_gpuspawner.batch.job import BatchJob, batch_job, plain_request
from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.extension import FUNCTION, Extensions, Fault, load_each
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, chosen, report
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.option import ProfileOption
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site
from jupyterhub_gpuspawner.slurm.job import Account


def choice_on(site: Site, choice: Mapping[str, object], cluster: str) -> tuple[Mapping[str, object], str]:
    """The choice with which a profile's servers are on a cluster, and that cluster; without one, where they are anyway.

    A choice of an option that is not among the chosen ones is added where it leads there. Raises ConfigError for an
    unknown cluster, and RequestError for one on which the profile starts no servers.
    """
    spawner = site.spawner(SOMEBODY.name, cluster=cluster)
    offered = spawner.offered() if isinstance(spawner, GPUProfilesSpawner) else ()
    profile = next((profile for profile in offered if profile.slug == choice["profile"]), None)
    if not spawner.clusters or profile is None:
        return choice, cluster
    others = (
        {**choice, name: key}
        for name, option in profile.profile_options.items()
        if name not in choice
        for key in option.choices
    )
    for options in (choice, *others):
        name = cluster_named(profile, options) or spawner.first_cluster
        if name == (cluster or name):
            return options, name
    raise RequestError(
        f"Profile {profile.slug!r} starts no server on {cluster} with this choice.", field="slurm.cluster"
    )


def cluster_named(profile: Profile, options: Mapping[str, Any]) -> str:
    """The cluster that a profile or one of these values of its options names; empty for the hub's first.

    Raises ValueError for a value that an option does not have.
    """
    name = profile.slurm.cluster
    for key, option in profile.profile_options.items():
        value = options.get(key, option.initial(profile.slurm))
        if value is not None:
            name = option.choose(value)[1].slurm.cluster or name
    return name or ""


async def jobs_of(
    site: Site,
    choice: Mapping[str, object],
    *,
    user: str,
    groups: Sequence[str] = (),
    server: str = "",
    account: Account | None = None,
    cluster: str = "",
) -> list[BatchJob]:
    """The job for a user's ``choice``; there may be several where an extension offers the profile.

    ``cluster`` is where the job of a hub without profiles goes, by default to the first one. ``account`` is for where
    the account's home does not matter; the user's own need not exist then. Raises ConfigError or RequestError.
    """
    spawner = site.spawner(user, groups, server, cluster=cluster)
    requests: list[tuple[JobRequest, tuple[str, ...]]]
    if isinstance(spawner, GPUProfilesSpawner):
        with_own = [extension for extension in chosen(spawner.extensions) if extension.option_fields]
        await HubExtensions(Extensions(tuple(with_own)), site.state).refresh_profiles(spawner)
        slug, offered = str(choice["profile"]), [profile.slug for profile in spawner.offered()]
        requests = _beside(spawner, site, choice, user, groups, server) if slug not in offered else []
        requests = requests or [(spawner.resolve(choice), ())]
        if any(request.profile.kind != "slurm" for request, _ in requests):
            raise RequestError(f"Profile {slug!r} is not a Slurm job and has no batch script.", field="profile")
        settings = [spawner.settings_of(request) for request, _ in requests]
    else:
        options = {name: value for name, value in choice.items() if name != "profile"}
        settings = [spawner.plain_settings(options)]
        empty = sorted(name for name in settings[0].options if name not in options)
        notes = tuple(f"{name} is empty: the site's form sends it, as --option {name}=VALUE does." for name in empty)
        requests = [(plain_request(settings[0], username=user, server_name=server), notes)]
    for at, (request, notes) in enumerate(requests):
        requests[at] = request, (*notes, *_lists_of(request.profile))
    jobs = []
    for own, (request, notes) in zip(settings, requests, strict=True):
        job = batch_job(own, request, account or await spawner.account(own), start_id="")
        jobs.append(replace(job, notes=(*notes, *job.notes)))
    return jobs


def _lists_of(profile: Profile) -> Iterator[str]:
    """What the options of a user's profile offer them that is not the same for all, a sentence for each."""
    for name, option in profile.profile_options.items():
        if option.model_fields_set - ProfileOption.model_fields.keys() and option.choices:
            yield f"{name} can be {', '.join(option.choices)}."


def _beside(
    spawner: GPUProfilesSpawner,
    site: Site,
    choice: Mapping[str, object],
    user: str,
    groups: Sequence[str],
    server: str,
) -> list[tuple[JobRequest, tuple[str, ...]]]:
    """What a user requests with a profile that an extension offers; raises ConfigError and RequestError."""
    extensions, requests = chosen(spawner.extensions), list[tuple[JobRequest, tuple[str, ...]]]()
    for extension, requests_of in load_each(extensions, lambda extension: extension.requests, report, FUNCTION):
        try:
            requests += requests_of(site, choice, user, groups, server)
        except GPUSpawnerError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an extension's fault
            report(Fault(extension.name, f"{extension.requests} failed: {type(error).__name__}: {error}", error))
    return requests
