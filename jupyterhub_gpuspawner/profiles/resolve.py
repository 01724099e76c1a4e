"""Turns user options into a job request, for form, link and REST alike.

``parse_choice`` reads the flat user options, ``choice_from_form`` makes them from a form, and ``resolve`` checks them
against today's profiles. The result is typed; a refused request raises RequestError, which names the field and says
what is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from jupyterhub_gpuspawner.errors import Refusal, RefusalKind, RequestError
from jupyterhub_gpuspawner.profiles.option import Override, put_over
from jupyterhub_gpuspawner.profiles.profile import Application, Profile
from jupyterhub_gpuspawner.profiles.resources import (
    Environment,
    Extend,
    PlacementRules,
    ReservationRule,
    Resources,
    over_defaults,
)
from jupyterhub_gpuspawner.profiles.user_options import UserChoice, choice_from_form, parse_choice
from jupyterhub_gpuspawner.words import day, moment

__all__ = [
    "JobRequest",
    "UserChoice",
    "choice_from_form",
    "parse_choice",
    "permitted",
    "queue_limit",
    "resolve",
    "resolved",
]


def queue_limit(requested: int | str | None, site: int | None) -> int | None:
    """Seconds that a job may wait in the queue, None for ever: a profile's (``asked``), or the site's if it is None."""
    if requested is None:
        return site
    return requested if isinstance(requested, int) else None


@dataclass(frozen=True)
class JobRequest:
    """One server to start, completely checked."""

    profile: str
    """The profile's slug."""
    display_name: str
    kind: str
    """``slurm``, ``local`` or ``other``."""
    username: str
    server_name: str
    resources: Resources
    """Resolved: see :func:`resolved`."""
    environment: Environment
    placement: PlacementRules
    spawner_class: str | None = None
    command: tuple[str, ...] | None = None
    app: Application | None = None
    """None: JupyterLab, or what ``command`` starts."""
    default_url: str | None = None
    port_range: tuple[int, int] | None = None
    start_timeout: int | None = None
    queue_timeout: int | str | None = None
    """Seconds, or UNLIMITED."""
    extend: Extend | None = None
    """How often the user may extend the server; None: not."""
    lab: bool = True
    """Whether the companion may be brought to JupyterLab."""
    course: str = ""
    """The slug of the course whose profile it is; empty for any other profile."""
    traits: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str | int | float] = field(default_factory=dict)
    """The user options to store: the slug under ``profile``, and the user's choices."""


def permitted(profile: Profile, user: str, groups: Collection[str], now: datetime) -> Refusal | None:
    """Why this user may not use the profile now; None if they may.

    A day, and a moment without a UTC offset, are those of the hub's machine; see :func:`moment_of`.
    """
    allow = profile.allow
    if (allow.groups or allow.users) and user not in allow.users and not set(allow.groups) & set(groups):
        if not allow.groups:
            return Refusal(RefusalKind.OTHER_USERS, "it is reserved for other users")
        named = f"group{'s' if len(allow.groups) > 1 else ''} {', '.join(allow.groups)}"
        return Refusal(RefusalKind.OTHER_GROUPS, f"it is reserved for the {named}")
    if allow.from_ is not None and now < moment_of(allow.from_):
        first = _zoned(allow.from_)
        return Refusal(RefusalKind.NOT_YET, f"it is available from {_settings(first)}", first)
    if allow.until is not None and now >= _end(allow.until):
        last = _zoned(allow.until)
        return Refusal(RefusalKind.ENDED, f"it was available until {_settings(last)}", last)
    return None


def moment_of(day: date, at: time = time.min) -> datetime:
    """A moment, or a time of a day, with the UTC offset that the time zone of the hub's machine has then.

    Not with that of today: between the two the clocks may change.
    """
    moment = day if isinstance(day, datetime) else datetime.combine(day, at)
    try:
        return moment if moment.tzinfo is not None else moment.astimezone()
    except (OverflowError, ValueError):  # the first hours of the year 1, the last ones of 9999: always, or no end
        return moment.replace(tzinfo=timezone.utc)


def _zoned(day_or_moment: date) -> date:
    return moment_of(day_or_moment).astimezone() if isinstance(day_or_moment, datetime) else day_or_moment


def _end(moment: date) -> datetime:
    if isinstance(moment, datetime) or moment == date.max:  # which has no next day; means no end
        return moment_of(moment, time.max)
    return moment_of(moment + timedelta(days=1))


def _settings(when: date) -> str:
    return moment(when) if isinstance(when, datetime) else day(when)


def resolve(
    profiles: Sequence[Profile],
    user_options: Mapping[str, object],
    *,
    username: str,
    groups: Collection[str],
    server_name: str,
    now: datetime,
    defaults: Resources | None = None,
) -> JobRequest:
    """The job that the user's options request under today's profiles; raises RequestError.

    ``{}`` selects the default profile: the first one marked as default that the user may use, else the first that they
    may use. ``now`` is the hub's time, with or without a time zone. ``defaults`` are the site's and apply to Slurm jobs
    only. The result is complete: form, availability, dry run and batch script read it, and none of them adds to it.
    """
    choice = parse_choice(user_options)
    profile = _chosen(profiles, choice.profile, username, groups, now if now.tzinfo else now.astimezone())
    unknown = [name for name in choice.options if name not in profile.profile_options]
    if unknown:
        names = ", ".join(profile.profile_options)
        raise RequestError(
            f"{profile.display_name} has no option {unknown[0]!r}.",
            field=unknown[0],
            hint=f"Its options are {names}." if names else "It has no options.",
        )
    settings = untouched = profile.as_override()
    stored: dict[str, str | int | float] = {"profile": profile.slug}
    for name, option in profile.profile_options.items():
        value = choice.options.get(name, option.initial(untouched))
        if value is None:
            continue
        try:
            value, over = option.choose(value)
        except ValueError as error:
            label = option.display_name or name
            raise RequestError(f"{label}: {value!r} is not allowed: {str(error).rstrip('.')}.", field=name) from None
        settings = put_over(settings, over)
        if name in choice.options:
            stored[name] = value
    if profile.kind == "slurm" and defaults is not None:
        settings = settings.model_copy(update={"slurm": over_defaults(settings.slurm, defaults)})
    return _job(profile, settings, stored, username=username, server_name=server_name, now=now)


def _time_unit(profile: Profile) -> str:
    ranges = (option.range for option in profile.profile_options.values())
    return next(
        (range_.unit or "minutes" for range_ in ranges if range_ is not None and range_.sets == "slurm.time"), ""
    )


def _chosen(profiles: Sequence[Profile], slug: str, username: str, groups: Collection[str], now: datetime) -> Profile:
    refusals = {profile.slug: permitted(profile, username, groups, now) for profile in profiles}
    usable = [profile for profile in profiles if refusals[profile.slug] is None]
    names = ", ".join(profile.display_name for profile in usable) or "none"
    if slug:
        named = next((profile for profile in profiles if profile.slug == slug), None)
        if named is None:
            raise RequestError(f"There is no profile {slug!r}.", field="profile", hint=f"You can choose: {names}.")
        refusal = refusals[slug]
        if refusal is not None:
            raise RequestError(
                f"You cannot use {named.display_name} now: {refusal.text}.",
                field="profile",
                hint=f"You can choose: {names}.",
                refusal=refusal,
            )
        return named
    if not usable:
        why = "; ".join(
            f"{profile.display_name}: {refusal.text}"
            for profile in profiles
            if (refusal := refusals[profile.slug]) is not None and refusal.is_shown
        )
        raise RequestError(
            f"No profile is available to you at the moment{f' ({why})' if why else ''}.", field="profile"
        )
    return next((profile for profile in usable if profile.default), usable[0])


def _job(
    profile: Profile,
    settings: Override,
    stored: Mapping[str, str | int | float],
    *,
    username: str,
    server_name: str,
    now: datetime,
) -> JobRequest:
    return JobRequest(
        profile=profile.slug,
        display_name=profile.display_name,
        kind=profile.kind,
        spawner_class=profile.spawner_class,
        username=username,
        server_name=server_name,
        resources=resolved(settings.slurm, now.date(), time_unit=_time_unit(profile)),
        environment=settings.environment,
        placement=settings.placement,
        command=settings.command,
        app=profile.app,
        default_url=settings.default_url,
        port_range=profile.port_range,
        start_timeout=profile.start_timeout,
        queue_timeout=profile.queue_timeout,
        extend=profile.extend,
        lab=profile.lab and profile.app is None,
        traits=profile.traits,
        options=stored,
    )


def resolved(resources: Resources, day: date, *, time_unit: str = "") -> Resources:
    """What a job requests on ``day``: one reservation, and no field left open that another one decides.

    Raises RequestError if there is no reservation for that day.
    """
    try:
        reservation = resources.reservation.on(day) if resources.reservation is not None else None
    except LookupError as error:
        message = str(error.args[0])
        raise RequestError(f"{message[:1].upper()}{message[1:]}.", field="slurm.reservation") from None
    if resources.gpus and resources.shards:
        raise RequestError("GPUs and shards cannot be requested together.", field="slurm.gpus", hint="Choose one.")
    gpus = 1 if resources.gpus is None and resources.gpu_type and not resources.shards else resources.gpus
    update = {
        "reservation": ReservationRule(pattern=reservation) if reservation else None,
        "nodes": resources.node_count,
        "gpus": gpus,
        "gpu_type": resources.gpu_type if gpus or resources.shards else None,
        "exclusive": bool(resources.exclusive),
        "extra": resources.extra or (),
    }
    job = resources.model_copy(update=update)
    job._time_unit = time_unit  # noqa: SLF001 - no field that an author could set
    return job


# The command that a job starts: an application's, or that of a single-user server.


def server_command(request: JobRequest | None, cmd: Sequence[str], args: Sequence[str]) -> list[str]:
    """The server's command: the application's own, or the profile's, or ``cmd``, with JupyterHub's arguments."""
    if request is not None and request.app is not None:
        return list(request.app.launched(cmd[0]))
    return [*((request.command if request is not None else None) or cmd), *args]
