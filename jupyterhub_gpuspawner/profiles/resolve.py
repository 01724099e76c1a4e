"""Turns user options into a job request, for form, link and REST alike.

``parse_choice`` reads the flat user options, ``choice_from_form`` makes them from a form, and ``resolve`` checks them
against today's profiles. The result is typed; a refused request raises RequestError, which names the field and says
what is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, timezone
from difflib import get_close_matches
from typing import TypeAlias

from jupyterhub_gpuspawner.errors import Refusal, RefusalKind, RequestError
from jupyterhub_gpuspawner.profiles.offered import Offered
from jupyterhub_gpuspawner.profiles.option import OPTION_LIMIT, UNLISTED, VALUE_LIMIT, put_over
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import (
    Environment,
    PlacementRules,
    ReservationRule,
    Resources,
    over_defaults,
)
from jupyterhub_gpuspawner.profiles.schema import Alone
from jupyterhub_gpuspawner.words import day, moment, some

Defaults: TypeAlias = Mapping[str, Resources]
"""What a job requests on each cluster where neither profile nor user does; the first is that of a job that names none.

Its name is empty in a hub that names no clusters.
"""

# User options: the choices made in a form, a link or a REST request, in one flat format.

NUMBER_LIMIT = 10**12
NAMED_AT_MOST = 12
"""Profiles that a refusal names."""
ALTERNATIVES = "alternatives"
"""The name under which user options have the slugs of profiles that are accepted as well, in one text with commas."""
_SUFFIX = f"--{UNLISTED}"
_PREFIX = "profile-option-"


@dataclass(frozen=True)
class UserChoice:
    """A user's choice: the slug of a profile (empty: the default profile) and values of its options."""

    profile: str = ""
    options: Mapping[str, str | int | float] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()
    """Slugs of profiles that the user accepts as well."""


def parse_choice(user_options: Mapping[str, object]) -> UserChoice:
    """Read flat user options ``{"profile": slug, option: value, "alternatives": "slug,slug"}``; raises RequestError.

    ``option--unlisted-choice``, as sent by KubeSpawner's clients, is the option's value unless a listed one is given.
    """
    if len(user_options) > OPTION_LIMIT:
        raise RequestError(f"Too many options: {len(user_options)}.", hint=f"The limit is {OPTION_LIMIT}.")
    values = {_shown(name): _value(name, value) for name, value in user_options.items()}
    profile = values.pop("profile", "")
    alternatives = values.pop(ALTERNATIVES, "")
    if not isinstance(alternatives, str):
        raise RequestError(f"{ALTERNATIVES} must be text: slugs of profiles with commas.", field=ALTERNATIVES)
    if not isinstance(profile, str):
        raise RequestError("profile must be text: a profile's slug.", field="profile")
    for name in [name for name in values if name.endswith(_SUFFIX)]:
        text, option = values.pop(name), name.removesuffix(_SUFFIX)
        if text != "" and values.get(option, UNLISTED) == UNLISTED:
            values[option] = text
    for name, value in values.items():
        if value == UNLISTED:
            raise RequestError(f"{name}: 'Other' was chosen, but no value was entered.", field=name)
    return UserChoice(profile, values, tuple(dict.fromkeys(filter(None, alternatives.split(",")))))


def _value(name: object, value: object) -> str | int | float:
    shown = _shown(name)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise RequestError(f"{shown} must be text or a number, not {type(value).__name__}.", field=shown)
    if not isinstance(value, str) and not abs(value) < NUMBER_LIMIT:
        raise RequestError(f"{shown} must be a number below {NUMBER_LIMIT}.", field=shown)
    if isinstance(value, str) and (len(value) > VALUE_LIMIT or not value.isprintable()):
        raise RequestError(f"{shown} must be printable text of at most {VALUE_LIMIT} characters.", field=shown)
    return value


def _shown(name: object) -> str:
    if not isinstance(name, str) or not name or len(name) > VALUE_LIMIT or not name.isprintable():
        raise RequestError(f"{str(name)[:40]!r} is not a valid option name.", field="user_options")
    return name


def is_list(name: str) -> bool:
    """Whether a field of a form with this name may have several values: check boxes."""
    return name.rpartition("--")[2] == ALTERNATIVES


def choice_from_form(formdata: Mapping[str, list[str]]) -> dict[str, object]:
    """The flat user options of a form or an ``opt-`` link; raises RequestError.

    Accepts KubeSpawner's names (``profile``, ``profile-option-<slug>--<option>``, ``…--unlisted-choice``), where those
    of other profiles are ignored, and flat names. Empty fields count as not given.
    """
    form_values: dict[str, str] = {}
    for name, values in formdata.items():
        filled = sorted({value for value in values if value})
        if len(filled) > 1 and not is_list(name):
            raise RequestError(f"{_shown(name)} is given twice.", field=_shown(name), hint="Give one value.")
        if filled and name != "_xsrf":
            form_values[name] = ",".join(filled)
    if "profile" in formdata and "profile" not in form_values:
        raise RequestError("No profile is selected.", field="profile", hint="Choose one.")
    own = f"{_PREFIX}{form_values.get('profile', '')}--"
    options: dict[str, object] = {}
    for name, value in form_values.items():
        if not name.startswith(_PREFIX):
            options.setdefault(name, value)
        elif "profile" not in form_values:
            raise RequestError("Options were given without a profile.", field="profile", hint="Choose a profile.")
        elif name.startswith(own):
            options[name.removeprefix(own)] = value
    choice = parse_choice(options)
    alternatives = {ALTERNATIVES: ",".join(choice.alternatives)} if choice.alternatives else {}
    return {**({"profile": choice.profile} if choice.profile else {}), **choice.options, **alternatives}


def queue_limit(requested: int | str | None, site: int | None) -> int | None:
    """Seconds that a job may wait in the queue, None for ever: the profile's (``requested``), else the site's."""
    if requested is None:
        return site
    return requested if isinstance(requested, int) else None


@dataclass(frozen=True)
class JobRequest:
    """One server to start, completely checked."""

    profile: Profile
    """What the choices have set of it is in the fields below."""
    username: str
    server_name: str
    resources: Resources
    """Resolved: see :func:`resolved`."""
    environment: Environment
    placement: PlacementRules
    command: tuple[str, ...] | None = None
    default_url: str | None = None
    offer: Offered | None = None
    """How the profile was offered; None where that is not known."""
    options: Mapping[str, str | int | float] = field(default_factory=dict)
    """The user options to store: the slug under ``profile``, and the user's choices."""

    @property
    def may_have_rival(self) -> bool:
        """While its job waits, another one may be submitted beside it, of which the first to come runs the server."""
        return bool(self.profile.alternatives or (self.offer is not None and self.offer.others))

    @property
    def offered_by(self) -> str:
        """The short name of the occasion for which the profile is offered; empty for one of the hub's own."""
        return self.offer.occasion.name if self.offer is not None and self.offer.occasion is not None else ""

    @property
    def ends_at(self) -> float | None:
        """When the occasion's session ends that was open at the start, in seconds since the epoch."""
        return self.offer.ends_at if self.offer is not None else None


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
        return Refusal(RefusalKind.NOT_YET, f"it is available from {_in_words(first)}", first)
    if allow.until is not None and now >= _end(allow.until):
        last = _zoned(allow.until)
        return Refusal(RefusalKind.ENDED, f"it was available until {_in_words(last)}", last)
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


def _in_words(when: date) -> str:
    return moment(when) if isinstance(when, datetime) else day(when)


def resolve(
    profiles: Sequence[Profile],
    user_options: Mapping[str, object],
    *,
    username: str,
    groups: Collection[str],
    server_name: str,
    now: datetime,
    defaults: Defaults | None = None,
) -> JobRequest:
    """The job that the user's options request under today's profiles; raises RequestError.

    ``{}`` selects the default profile: the first one marked as default that the user may use, else the first that they
    may use. ``now`` is the hub's time, with or without a time zone. ``defaults`` are those of the site, for Slurm jobs.
    The result is complete: form, availability, dry run and batch script read it, and none of them adds to it.
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
    refused = [slug for slug in choice.alternatives if slug not in profile.alternatives]
    if refused:
        names = ", ".join(profile.alternatives)
        raise RequestError(
            f"{refused[0]!r} cannot be accepted in place of {profile.display_name}.",
            field=ALTERNATIVES,
            hint=f"What can be is {names}." if names else "Nothing can be.",
        )
    settings, without_lines = profile, _removes_lines(profile.slurm)
    stored: dict[str, str | int | float] = {"profile": profile.slug}
    if choice.alternatives:
        stored[ALTERNATIVES] = ",".join(choice.alternatives)
    for name, option in profile.profile_options.items():
        value = choice.options.get(name, option.initial(profile.slurm))
        if value is None:
            continue
        try:
            value, over = option.choose(value)
        except ValueError as error:
            label = option.display_name or name
            raise RequestError(f"{label}: {value!r} is not allowed: {str(error).rstrip('.')}.", field=name) from None
        settings = put_over(settings, over)
        without_lines = without_lines or _removes_lines(over.slurm)
        if name in choice.options:
            stored[name] = value
    if profile.kind == "slurm" and defaults is not None:
        if without_lines:
            defaults = {cluster: own.model_copy(update={"extra": None}) for cluster, own in defaults.items()}
        settings = settings.model_copy(update={"slurm": with_defaults(settings.slurm, defaults)})
    return JobRequest(
        profile=profile,
        username=username,
        server_name=server_name,
        resources=resolved(settings.slurm, now.date(), time_unit=_time_unit(profile)),
        environment=settings.environment,
        placement=settings.placement,
        command=settings.command,
        default_url=settings.default_url,
        options=stored,
    )


_OF_THE_OFFER = ("display_name", "slug", "description", "default", "slurm", "allow", "alternatives", "profile_options")
"""Fields of a profile that do not change the job of a request."""


def same_but_partition(one: JobRequest, other: JobRequest) -> bool:
    """Whether the two jobs differ in the partitions that they name, and in nothing else."""
    profile = other.profile.model_copy(update={name: getattr(one.profile, name) for name in _OF_THE_OFFER})
    resources = other.resources.model_copy(update={"partition": one.resources.partition})
    same = replace(other, profile=profile, resources=resources, offer=one.offer, options=one.options)
    return bool(one.resources.partition and other.resources.partition) and same == one


def covers(one: JobRequest, other: JobRequest) -> bool:
    """Whether Slurm may start the first of two jobs wherever it may start the other one, which is the same."""
    return same_but_partition(one, other) and other.resources.partition in str(one.resources.partition).split(",")


def with_partitions_of(request: JobRequest, others: Iterable[JobRequest]) -> JobRequest:
    """The request with the partitions of those others that differ by that alone: Slurm takes the first that is free."""
    same = [other.resources.partition for other in others if same_but_partition(request, other)]
    partition = ",".join(dict.fromkeys(filter(None, [request.resources.partition, *same])))
    return (
        replace(request, resources=request.resources.model_copy(update={"partition": partition})) if same else request
    )


def _removes_lines(slurm: Resources) -> bool:
    """Whether it removes the site's lines, whatever another option adds: by ``extra: null``, or as in wrapspawner."""
    return isinstance(slurm.extra, Alone) or ("extra" in slurm.model_fields_set and slurm.extra is None)


def with_defaults(resources: Resources, defaults: Defaults) -> Resources:
    """The same on its cluster, with the site's defaults there; raises RequestError for a cluster that is not in them.

    Resources that name no cluster are on the first, whose name is empty in a hub that names none.
    """
    name = resources.cluster or next(iter(defaults))
    if name not in defaults:
        named = f"Clusters of this hub are {', '.join(defaults)}."
        if not any(defaults):
            one = f"c.GPUSlurmSpawner.clusters = {{{name!r}: {{'req_cluster': {name!r}}}}}"
            named = f"This hub names no clusters; with one, its configuration has {one}."
        similar = "".join(f"Did you mean {near}? " for near in get_close_matches(name, defaults, 1))
        raise RequestError(f"There is no cluster {name!r}.", field="slurm.cluster", hint=f"{similar}{named}")
    return over_defaults(resources, defaults[name]).model_copy(update={"cluster": name or None})


def _time_unit(profile: Profile) -> str:
    ranges = (option.range for option in profile.profile_options.values())
    return next(
        (range_.unit or "minutes" for range_ in ranges if range_ is not None and range_.sets == "slurm.time"), ""
    )


def _chosen(profiles: Sequence[Profile], slug: str, username: str, groups: Collection[str], now: datetime) -> Profile:
    refusals = {profile.slug: permitted(profile, username, groups, now) for profile in profiles}
    usable = [profile for profile in profiles if refusals[profile.slug] is None]
    names = some([profile.display_name for profile in usable], at_most=NAMED_AT_MOST) or "none"
    if slug:
        named = next((profile for profile in profiles if profile.slug == slug), None)
        if named is None:
            # a program that asked for it, or whoever made a link, needs the slug
            slugs = [f"{profile.display_name} ({profile.slug})" for profile in usable]
            hint = f"You can choose: {some(slugs, at_most=NAMED_AT_MOST) or 'none'}."
            raise RequestError(f"There is no profile {slug!r}.", field="profile", hint=hint)
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
