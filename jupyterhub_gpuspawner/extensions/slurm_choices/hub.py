"""What a user's own choices add to a hub: lists that are read for all users at once, every five minutes at most."""

from __future__ import annotations

import pwd
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any

from jupyterhub.scopes import needs_scope
from tornado import web

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.extensions.availability.groups import allowed_groups
from jupyterhub_gpuspawner.extensions.slurm_choices import words
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import Accounting, read_accounting
from jupyterhub_gpuspawner.extensions.slurm_choices.fields import sources_of
from jupyterhub_gpuspawner.extensions.slurm_choices.job_size import requested_by
from jupyterhub_gpuspawner.extensions.slurm_choices.personal import (
    OLDEST,
    Known,
    naming_of,
    refused_choices,
    with_choices,
)
from jupyterhub_gpuspawner.extensions.slurm_choices.rules import Combination, Person, Rules
from jupyterhub_gpuspawner.hub.extension import HubExtension, ProfilesOf
from jupyterhub_gpuspawner.hub.site.connection import Cluster, SharedView
from jupyterhub_gpuspawner.hub.spawners.server import with_profiles
from jupyterhub_gpuspawner.hub.web.handlers import RESTHandler
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve, resolved, with_defaults
from jupyterhub_gpuspawner.slurm.job import job_owner
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Reservation
from jupyterhub_gpuspawner.tasks import in_name_thread
from jupyterhub_gpuspawner.words import moment

MAX_AGE = 300.0
"""Seconds after which Slurm is asked anew, in the background of the page that needs it."""
AGE_AT_START = 60.0
"""The same for a start, so that somebody who was added to an account a minute ago is not turned away."""
PATIENCE, FIRST_PATIENCE = 2.0, 4.0
"""Seconds that a page waits for an answer; the second while nothing is known."""
PEOPLE_AT_MOST = 10_000
"""Users of whom names and groups are kept."""


NO_ACCOUNTING, NO_SNAPSHOT = Accounting(), ClusterSnapshot()


class _AccountingView(SharedView[Accounting]):
    without_answer = "Which accounts and QOS users have in Slurm is not known as it is now"


class ClusterChoices:
    """What is kept for all users of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.accounting = _AccountingView(lambda: read_accounting(cluster.client))
        self._people: dict[str, tuple[tuple[str, ...], Mapping[str, bool]]] = {}
        self._rules: dict[str, Rules] = {}

    async def refresh(self, owner: str, *, max_age: float) -> None:
        """Have an answer of this age, or the last one, and look up the owner's names and groups."""
        latest, view = self.accounting.latest, self._cluster.view
        old = latest is None or time.time() - latest.taken_at > max(2 * MAX_AGE, max_age)
        patience = FIRST_PATIENCE if latest is None else PATIENCE if old or max_age < MAX_AGE else 0.0
        await self.accounting.recent(max_age, patience)
        snapshot = await view.recent(AGE_AT_START, FIRST_PATIENCE if view.latest is None else 0.0)
        if not owner:
            return
        names = (owner,) if self._cluster.accounts is not None else await in_name_thread(_names_of, owner)
        while len(self._people) >= PEOPLE_AT_MOST:
            del self._people[next(iter(self._people))]
        self._people[owner] = names, await allowed_groups(snapshot, owner)

    def person(self, owner: str, accounting: Accounting | None) -> Person:
        """The owner as Slurm knows them; nothing is asked."""
        names, groups = self._people.get(owner, ((owner,), {}))
        if accounting is None or not owner:
            return Person(owner, None, groups=groups)
        name = next((name for name in names if name in accounting.associations), owner)
        rows = accounting.associations.get(name, ())
        if not rows and (accounting.hidden or not accounting.exists):
            return Person(owner, None, groups=groups)
        default = accounting.default_accounts.get(name, "")
        return Person(owner, rows, default if any(row.account == default for row in rows) else "", groups)

    def rules_for(self, owner: str, now: float) -> Rules:
        """The rules for the owner, as far as the cluster is known; the same object until something else is known."""
        latest = self.accounting.latest
        accounting = latest if latest is not None and now - latest.taken_at <= OLDEST else None
        snapshot, person = self._cluster.view.latest or NO_SNAPSHOT, self.person(owner, accounting)
        accounting = accounting or NO_ACCOUNTING
        rules = self._rules.get(owner)
        if (
            rules is None
            or rules.accounting is not accounting
            or rules.snapshot is not snapshot
            or rules.person != person
        ):
            while len(self._rules) >= PEOPLE_AT_MOST:
                del self._rules[next(iter(self._rules))]
            rules = self._rules[owner] = Rules(person, accounting, snapshot, now)
        return rules


def _names_of(owner: str) -> tuple[str, ...]:
    """The names under which slurmdbd may list an account: its own, and others that are the same account.

    An account of a domain may have several: ``Ada``, ``ada``, ``ada@example.org``. slurmdbd has the one that slurmctld
    finds for the uid, in lower case unless it is told to preserve it.
    """
    try:
        entry = pwd.getpwnam(owner)
        canonical = pwd.getpwuid(entry.pw_uid).pw_name
    except (KeyError, OSError):
        return (owner,)
    names = dict.fromkeys((owner, entry.pw_name, canonical))
    for name in [name.lower() for name in names]:
        try:
            if pwd.getpwnam(name).pw_uid == entry.pw_uid:
                names[name] = None
        except (KeyError, OSError):  # somebody else's, or nobody's
            continue
    return tuple(names)


def _owner(spawner: Any, cluster: str) -> str:
    return job_owner(spawner.effective(cluster).exec_prefix, spawner.user.name)


def clusters_of(profile: Profile, first: str) -> list[str]:
    """The clusters on which servers of a profile may be; without one of its own, the hub's first."""
    named = [choice.slurm.cluster for option in profile.profile_options.values() for choice in option.choices.values()]
    return list(dict.fromkeys([profile.slurm.cluster or first, *filter(None, named)]))


async def refresh(spawner: Any) -> None:
    """Ask the clusters of profiles that list names of Slurm's, where the last answers are old."""
    profiles: list[Profile] = []
    with suppress(ConfigError):  # said where profiles are offered
        profiles = [profile for profile in spawner.source.profiles() if sources_of(profile)]
    names = {name for profile in profiles for name in clusters_of(profile, spawner.first_cluster)}
    if not names:
        return
    handler = spawner.handler
    starts = handler is not None and handler.request.method == "POST"
    for name, cluster in spawner.connections().items():
        if name in names:
            max_age = AGE_AT_START if starts else MAX_AGE
            await cluster.of(ClusterChoices).refresh(_owner(spawner, name), max_age=max_age)


def choices_of(spawner: Any, profile: Profile) -> Profile:
    """The profile with the choices of the spawner's user, as last read."""
    if not sources_of(profile):
        return profile
    return with_choices(profile, known_for(spawner, profile), about=_when)


def known_for(spawner: Any, profile: Profile) -> Known:
    """What is known of the spawner's user on the clusters of a profile."""
    now, connections = time.time(), spawner.connections()
    named = [name for name in clusters_of(profile, spawner.first_cluster) if name in connections]
    by_cluster = {name: connections[name].of(ClusterChoices) for name in named}
    answers = [choices.accounting.latest for choices in by_cluster.values() if choices.accounting.latest is not None]
    silent = any(choices.accounting.fault is not None for choices in by_cluster.values())
    views = [connections[name].view.latest for name in named if connections[name].silent]
    return Known(
        {
            name: choices.rules_for(_owner(spawner, name), now)
            for name, choices in by_cluster.items()
            if connections[name].view.latest is not None or choices.accounting.latest is not None
        },
        exists=not answers or any(answer.exists for answer in answers),
        hidden=any(answer.hidden for answer in answers) or not all(_owner(spawner, name) for name in named),
        age=now - min(answer.taken_at for answer in answers) if silent and answers else None,
        silent=any(connections[name].silent for name in named),
        age_of_cluster=max((now - view.taken_at for view in views if view is not None), default=None),
    )


def _when(reservation: Reservation) -> str:
    """When a reservation can be used, for the form."""
    if reservation.start is not None and reservation.start > time.time():
        return f"from {moment(datetime.fromtimestamp(reservation.start).astimezone())}"
    if reservation.end is None or reservation.is_repeated:
        return ""
    return f"until {moment(datetime.fromtimestamp(reservation.end).astimezone())}"


def refused(spawner: Any, request: JobRequest) -> dict[str, dict[str, str]]:
    """Why some values of a request's options are refused, in clauses by option and value."""
    profile = request.profile
    if not sources_of(profile):
        return {}
    name = request.resources.cluster or ""
    choices, owner = spawner.connections()[name].of(ClusterChoices), _owner(spawner, name)
    rules = replace(
        choices.rules_for(owner, time.time()),
        naming=naming_of(profile),
        contact=spawner.contact,
        requested=requested_by(request.resources),
    )
    values = {
        key: str(value)
        for key, option in profile.profile_options.items()
        if (value := request.options.get(key, option.initial(profile.slurm))) is not None
    }
    return refused_choices(profile, _base(spawner, profile), values, rules)


def _base(spawner: Any, profile: Profile) -> Combination:
    """What a job of a profile names where no option is chosen."""
    try:
        slurm = with_defaults(profile.slurm, spawner.defaults())
        slurm = resolved(slurm, datetime.now().astimezone().date())
    except RequestError:  # no reservation today, or one of its options names the cluster
        slurm = profile.slurm
    return Combination(slurm.account, slurm.partition, slurm.qos, slurm.reservation_name or None)


class ChoicesHandler(RESTHandler):
    """Which choices of a profile exclude each other, for the user who chooses."""

    @needs_scope("servers")
    async def post(self, user_name: str) -> None:
        """For a body ``{"user_options": {...}}``: ``refused``, clauses by option and choice.

        It is null for a profile that lists nothing of Slurm's.
        """
        user = self.find_user(user_name)
        spawner = with_profiles(user.spawners[""]) if user is not None else None
        if spawner is None:
            raise web.HTTPError(HTTPStatus.NOT_FOUND, "There is no such user, or this hub offers no profiles.")
        body = self.limited_body()
        options = body.get("user_options") if isinstance(body, dict) else None
        if not isinstance(options, dict):
            raise web.HTTPError(HTTPStatus.BAD_REQUEST, 'The body must be {"user_options": {...}}.')
        await spawner.refresh_profiles()
        try:
            request = resolve(
                spawner.offered(),
                options,
                username=user_name,
                groups=spawner.groups_of_user(),
                server_name="",
                now=datetime.now().astimezone(),
                defaults=spawner.defaults(),
            )
            clauses = refused(spawner, request) if sources_of(request.profile) else None
            self.write({"version": 1, "refused": clauses})
        except (RequestError, ConfigError) as error:
            self.refuse(error)


HUB = HubExtension(
    api=((r"/api/gpuspawner/choices/([^/]+)", ChoicesHandler),),
    profiles_of=ProfilesOf(refresh=refresh),
    choices_of=choices_of,
    refused_choices=refused,
    page_tools={"slurm_choices": words},
)
