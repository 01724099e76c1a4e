"""A profile as the page offers it: its resources, its options, and whether it is available."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from itertools import islice
from types import MappingProxyType
from urllib.parse import urlencode

from jupyterhub_gpuspawner.errors import GPUSpawnerError, Refusal, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.choose import words
from jupyterhub_gpuspawner.hub.choose.gets import Gets, resources_in_words, what_a_job_gets
from jupyterhub_gpuspawner.hub.choose.likeness import closest
from jupyterhub_gpuspawner.hub.extension import Forecast
from jupyterhub_gpuspawner.hub.extensions import extensions_for
from jupyterhub_gpuspawner.hub.spawners.offers import refuse_choices
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.offered import Offered
from jupyterhub_gpuspawner.profiles.option import UNLISTED, ProfileOption
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import (
    ALTERNATIVES,
    Defaults,
    JobRequest,
    choice_from_form,
    is_list,
    permitted,
    resolve,
)
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN, Availability, Chance
from jupyterhub_gpuspawner.words import sentence

Check = Callable[[Mapping[str, object]], object]
"""Raises RequestError for user options that are not allowed."""


@dataclass(frozen=True)
class FilledIn:
    """The choice that the form shows, valid or not."""

    profile: str = ""
    """A slug; empty: the default profile."""
    values: Mapping[str, object] = field(default_factory=dict)
    """By the option's name, as they were given."""
    fault: str = ""
    """The error, in a sentence."""
    field: str = ""
    """Where it is: an option's name, ``profile``, or a field such as ``slurm.gpus``; empty: nowhere in the form."""
    chance: Chance = Chance.NEVER
    """What a fault leaves of the choice: UNKNOWN where Slurm was only silent."""
    note: str = ""
    """What the user should know about where these values come from."""

    @property
    def fault_at_value(self) -> bool:
        """The fault is a value that is not allowed, so that there is no job to describe."""
        return bool(self.fault) and bool(self.field) and not self.field.startswith("slurm.")


def as_typed(fields: Mapping[str, Sequence[str]]) -> FilledIn:
    """The fields of a form or a link, unchecked."""
    filled = {name: [value for value in values if value] or [""] for name, values in fields.items() if values}
    options = {name: ",".join(values if is_list(name) else values[:1]) for name, values in filled.items()}
    options.pop("_xsrf", None)
    slug = options.pop("profile", "")
    prefix = f"profile-option-{slug}--"
    values = {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix) or not name.startswith("profile-option-")
    }
    for name in [name for name in values if name.endswith(f"--{UNLISTED}")]:
        text, option = values.pop(name), name.removesuffix(f"--{UNLISTED}")
        if values.get(option, UNLISTED) == UNLISTED:
            values[option] = text
    return FilledIn(slug, values)


def of_a_link(fields: Mapping[str, Sequence[str]], check: Check) -> FilledIn:
    """A link's choice, with the error where it is not allowed."""
    options = as_typed(fields)
    try:
        check(choice_from_form({name: list(values) for name, values in fields.items()}))
    except RequestError as error:
        return with_fault(options, error)
    return replace(options, note=words.FROM_A_LINK)


def of_a_form(fields: Mapping[str, Sequence[str]], refusal: BaseException | None) -> FilledIn:
    """The values that were sent with a start that was refused, with the reason."""
    options = as_typed(fields)
    try:
        choice_from_form({name: list(values) for name, values in fields.items()})
    except RequestError as error:
        refusal = refusal or error
    return with_fault(options, refusal) if refusal is not None else options


def with_fault(filled_in: FilledIn, error: BaseException) -> FilledIn:
    """The same with the message of ``error``, where it or its cause is one of our errors."""
    ours = error if isinstance(error, GPUSpawnerError) else error.__cause__
    if not isinstance(ours, GPUSpawnerError):
        return filled_in
    chance = Chance.UNKNOWN if isinstance(ours, SlurmUnavailable) else Chance.NEVER
    field = str(getattr(ours, "field", ""))
    # the hint about a profile lists the others, which the form does itself
    fault = ours.message if field == "profile" else ours.for_user
    return replace(filled_in, fault=fault, field=field, chance=chance)


def of_the_last_time(stored: Mapping[str, object], check: Check) -> FilledIn:
    """The last choice, without the parts that are no longer allowed; a note says which."""
    options, note = dict(stored), ""
    while options:
        try:
            check(options)
        except RequestError as error:
            note = note or words.NO_LONGER.format(reason=error)
            if error.field == "profile" or error.field not in options:
                return FilledIn(note=note)
            del options[error.field]
        else:
            break
    values = {name: value for name, value in options.items() if name != "profile"}
    return FilledIn(str(options.get("profile", "")), values, note=note)


def statuses_of(
    spawner: GPUProfilesSpawner,
    offered: Sequence[Profile],
    forecast: Forecast,
    choice: Mapping[str, object] = MappingProxyType({}),
) -> tuple[ProfileStatus, ...]:
    """The status of each of these profiles for the spawner's user now; see :func:`profile_statuses`.

    Raises ConfigError.
    """
    return profile_statuses(
        offered,
        username=spawner.user.name,
        groups=spawner.groups_of_user(),
        forecast=forecast,
        now=datetime.now().astimezone(),
        defaults=spawner.defaults() if any(profile.kind == "slurm" for profile in offered) else None,
        choice=choice,
        refused=partial(extensions_for(spawner).refused_choices, spawner),
    )


AT_MOST = 2
"""Profiles that are offered instead of one that does not start now."""
WHERE = frozenset(
    {"slurm.cluster", "slurm.partition", "slurm.reservation", "slurm.constraint", "slurm.gpu_type", "slurm.nodes"}
)
"""Fields that decide which nodes are considered: another value may change whether any other field can be met."""


@dataclass(frozen=True)
class OptionField:
    """One option of a profile as a field of the form, with KubeSpawner's field name."""

    name: str
    label: str
    option: ProfileOption
    value: object
    fault: str = ""
    choices: Mapping[str, Availability] = field(default_factory=dict)
    """When a job with each choice would start."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why some cannot be chosen beside the other options' values, in clauses."""
    kept: str = ""
    """What of the job does not grow with a number of GPUs, in words; empty for other numbers."""

    @property
    def unlisted(self) -> bool:
        """The value is free text, not one of the choices."""
        return self.value is not None and bool(self.option.choices) and str(self.value) not in self.option.choices

    @property
    def described_by(self) -> str:
        """Ids of the elements that describe the field to screen readers."""
        parts = (("bounds", self.option.range), ("help", self.option.description), ("fault", self.fault))
        return " ".join(f"{self.name}-{part}" for part, is_there in parts if is_there)

    @property
    def sets(self) -> str:
        """The fields of the profile that it changes, such as ``slurm.gpus slurm.memory``."""
        return " ".join(sorted(fields_set(self.option)))


@dataclass(frozen=True)
class Offer:
    """One profile of the page."""

    profile: Profile
    usual: Gets
    """What its jobs get, whatever is chosen."""
    gets: Gets
    """What a job with the values of its fields gets."""
    fields: tuple[OptionField, ...]
    availability: Availability | None = None
    """None for a profile that does not use Slurm."""
    closed: str = ""
    """Why it cannot be chosen, with ``{time}`` for :attr:`opens`; empty if it can."""
    opens: date | None = None
    """The first day or moment at which it can be chosen, where that is to come."""
    checked: bool = False
    link: str = ""
    """The address of the form with the current choice."""
    offered: Offered | None = None
    """How the profile is offered, if for an occasion."""
    alternatives: Mapping[str, str] = field(default_factory=dict)
    """The names of the profiles that may be accepted as well, by slug."""
    accepted: tuple[str, ...] = ()
    """The slugs of those that are."""
    seconds: int | None = None
    """How long that job runs at most; None without a limit."""
    instead: tuple[Offer, ...] = ()
    """Others that could start now where it could not, the most like it first."""

    @property
    def id(self) -> str:
        """The id of its radio button."""
        return f"profile-{self.profile.slug}"


def option_fields(
    profile: Profile,
    values: Mapping[str, object],
    *,
    fault: str = "",
    at: str = "",
    choices: Mapping[str, Mapping[str, Availability]] = MappingProxyType({}),
    refused: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> tuple[OptionField, ...]:
    """The options with ``values``, else with the profile's defaults; ``fault`` is shown at the option ``at``.

    ``choices``: when a job with each choice of each option would start; ``refused``: why some cannot be chosen.
    An option that has no value at all is left out.
    """
    return tuple(
        OptionField(
            name=f"profile-option-{profile.slug}--{name}",
            label=option.display_name or name,
            option=option,
            value=values.get(name, option.initial(profile.slurm)),
            fault=fault if name == at else "",
            choices=choices.get(name, {}),
            refused=refused.get(name, {}),
            kept=_kept(profile, option),
        )
        for name, option in profile.profile_options.items()
        if option.choices or option.range or option.free_text
    )


def _kept(profile: Profile, option: ProfileOption) -> str:
    """Such as ``cores and memory stay the same``, of a range for the number of GPUs that changes nothing else."""
    if option.range is None or option.range.sets != "slurm.gpus":
        return ""
    changed = frozenset().union(*map(fields_set, profile.profile_options.values()))
    cores, memory = (
        bool(getattr(profile.slurm, field)) and f"slurm.{field}" not in changed for field in ("cpus", "memory")
    )
    return words.STAY.get((cores, memory), "")


def option_for(profile: Profile, field: str) -> str | None:
    """The option that changes ``field``, which is an option's name or such as ``slurm.gpus``; None if there is none."""
    if field in profile.profile_options:
        return field
    return next((key for key, option in profile.profile_options.items() if field in fields_set(option)), None)


def fields_set(option: ProfileOption) -> frozenset[str]:
    """The fields of a profile that an option changes, such as ``slurm.gpus``."""
    fields = {part.sets for part in (option.range, option.free_text) if part is not None}
    for choice in option.choices.values():
        fields.update(f"slurm.{name}" for name in choice.slurm.model_fields_set)
    return frozenset(fields)


def closed_by(status: ProfileStatus) -> str:
    """Why a profile cannot be chosen, in a sentence; empty if it can. ``{time}`` is the refusal's.

    It begins later, or its job can never run and no option could change that.
    """
    if status.refusal is not None:
        return words.NOT_YET
    profile, availability = status.profile, status.availability
    if availability is None or availability.chance is not Chance.NEVER:
        return ""
    options = profile.profile_options.values()
    if option_for(profile, availability.field) is not None or any(WHERE & fields_set(option) for option in options):
        return ""
    return sentence(availability.sentence)


def filled_in_with_fault(statuses: Sequence[ProfileStatus], filled_in: FilledIn, *, linked: bool) -> FilledIn:
    """``filled_in``, with the reason where its job can never run; ``linked``: it comes from a link.

    A link's profile that cannot be chosen is a fault of the link, and of the last choice a note.
    """
    status = next((status for status in statuses if status.profile.slug == filled_in.profile), None)
    availability = status.availability if status is not None else None
    if status is None or availability is None or filled_in.fault or availability.chance is not Chance.NEVER:
        return filled_in
    closed = closed_by(status)
    if linked:
        name, why = status.profile.display_name, availability.sentence
        if closed:
            return replace(
                filled_in,
                fault=words.CANNOT_START.format(profile=name, reason=why.rstrip(".")),
                field="profile",
                note="",
            )
        return replace(filled_in, fault=sentence(why), field=availability.field, note="")
    return FilledIn(note=filled_in.note or words.NO_LONGER.format(reason=closed)) if closed else filled_in


def offers(statuses: Sequence[ProfileStatus], filled_in: FilledIn, *, base_url: str) -> list[Offer]:
    """The page's offers; one of them is selected where any can be chosen."""
    names = {status.profile.slug: status.profile.display_name for status in statuses if status.resources is not None}
    plain = {status.profile.slug: _offer(status, base_url, names) for status in statuses if status.is_shown}
    shown = [
        replace(plain[status.profile.slug], instead=tuple(plain[slug] for slug in _instead(status, statuses)))
        for status in statuses
        if status.is_shown
    ]
    one = chosen(shown, filled_in)
    if one is None:
        return shown
    status = next(status for status in statuses if status.profile == one.profile)
    selected = _with_choice(status, one, filled_in, base_url)
    if filled_in.fault_at_value:
        selected = replace(selected, gets=one.usual)
    return [selected if offer is one else offer for offer in shown]


def _instead(status: ProfileStatus, statuses: Sequence[ProfileStatus]) -> Sequence[str]:
    """The slugs of profiles that start now where this one starts later, the most like it first."""
    if status.resources is None or status.availability is None or status.availability.chance is not Chance.LATER:
        return ()
    return closest(status.resources, {other.profile.slug: resources for other, resources in free(statuses)})[:AT_MOST]


def free(statuses: Sequence[ProfileStatus]) -> list[tuple[ProfileStatus, Resources]]:
    """The profiles that start now, each with what its job requests."""
    return [
        (status, status.resources)
        for status in statuses
        if status.resources is not None and status.availability is not None and status.availability.chance is Chance.NOW
    ]


def _offer(status: ProfileStatus, base_url: str, names: Mapping[str, str]) -> Offer:
    profile = status.profile
    time = status.resources.time if status.resources is not None else None
    return Offer(
        profile,
        usual=status.may_get or resources_in_words(profile, None),
        gets=status.gets or status.may_get or resources_in_words(profile, None),
        seconds=time if isinstance(time, int) else None,
        fields=option_fields(profile, {}, choices=status.choices, refused=status.refused),
        availability=status.availability,
        closed=closed_by(status),
        opens=status.refusal.when if status.refusal is not None else None,
        link=link_to(base_url, profile.slug, {}),
        alternatives={slug: names[slug] for slug in profile.alternatives if slug in names},
    )


def chosen(profile_offers: Sequence[Offer], filled_in: FilledIn) -> Offer | None:
    """The selected offer: as filled in, else the first default profile, else the first that can be chosen.

    None where what is filled in asks for a profile that cannot be had: another one is the user's to choose.
    """
    if filled_in.fault and filled_in.field == "profile":
        return None
    open_ones = [offer for offer in profile_offers if not offer.closed]
    wanted = [offer for offer in open_ones if offer.profile.slug == filled_in.profile]
    usual = [offer for offer in open_ones if offer.profile.default]
    return next(iter([*wanted, *usual, *open_ones]), None)


def _with_choice(status: ProfileStatus, offer: Offer, filled_in: FilledIn, base_url: str) -> Offer:
    profile, choices = offer.profile, status.choices
    mine = filled_in.profile in ("", profile.slug)
    known = {*profile.profile_options, *([ALTERNATIVES] if profile.alternatives else [])}
    values = {name: value for name, value in filled_in.values.items() if mine and name in known}
    at = option_for(profile, filled_in.field) if mine and filled_in.fault else None
    refused = replace(
        offer.availability or Availability(filled_in.chance, ""),
        chance=filled_in.chance,
        sentence=words.AT_THE_FIELD if at else filled_in.fault,
        estimate=UNKNOWN,
        taken_at=None,
    )
    return replace(
        offer,
        checked=True,
        availability=refused if mine and filled_in.fault else offer.availability,
        fields=option_fields(
            profile, values, fault=filled_in.fault, at=at or "", choices=choices, refused=status.refused
        ),
        link=link_to(base_url, profile.slug, values),
        accepted=tuple(str(values.get(ALTERNATIVES, "")).split(",")),
    )


def link_to(base_url: str, profile: str, values: Mapping[str, object]) -> str:
    """The form's address with this choice; the same for every user."""
    query = {"opt-profile": profile, **{f"opt-{name}": str(value) for name, value in values.items()}}
    return f"{base_url}spawn?{urlencode(query)}"


# The cards of occasions on the form: first, and selected while a session is open.


def occasions_first(profile_offers: Sequence[Offer], offered: Sequence[Offered], filled_in: FilledIn) -> list[Offer]:
    """The same offers, those for an occasion first.

    One whose session is open is selected, unless the form is filled in with something else. A server that is started
    without a form keeps the admin's default.
    """
    of = {one.profile.slug: one for one in offered if one.occasion is not None}
    cards = [replace(offer, offered=of.get(offer.profile.slug)) for offer in profile_offers]
    cards.sort(key=lambda card: card.offered is None)
    now = next((card for card in cards if card.offered is not None and card.offered.is_open and not card.closed), None)
    if now is None or filled_in.profile or filled_in.fault:
        return cards
    return [replace(card, checked=card is now) for card in cards]


# One request of the page on which a server is chosen: what page and form tell each other.


@dataclass
class FormRequest:
    """Set by the page's handler, read by the form; the form adds what the page shows above it."""

    linked: Mapping[str, list[str]] = field(default_factory=dict)
    """The ``opt-`` options of the address, without the prefix."""
    posted: Mapping[str, list[str]] | None = None
    """The fields that were sent with *Start*; None for a GET."""
    refusal: BaseException | None = None
    """Why that request did not start a server."""
    hint: str = ""
    """What administrators read about it."""
    filled_in: FilledIn | None = None
    """The form's values; None for a form that is not ours."""
    closed: str = ""
    """Why no server can be started, whatever is chosen; *Start* is disabled then."""
    fault_at: str = ""
    """The id of the field at which the error is shown."""


FORM_REQUEST: ContextVar[FormRequest | None] = ContextVar("gpuspawner_form_request", default=None)
"""That of this request; after a failed start JupyterHub passes no request to the form."""


# The availability of each profile for one user now, as the form and REST show it. Pure.


CHOICES_AT_MOST = 60
"""Choices of options on one page that have a start of their own: it may have dozens of profiles."""


@dataclass(frozen=True)
class ProfileStatus:
    """One profile, and whether a user can start it now."""

    profile: Profile
    refusal: Refusal | None
    """Why the user may not use it now, from :func:`permitted`; None if they may."""
    availability: Availability | None
    """Whether its job could start now; None if the profile is refused or is not a Slurm job."""
    resources: Resources | None = None
    """What that job requests, with the site's defaults; None without a job."""
    choices: Mapping[str, Mapping[str, Availability]] = field(default_factory=dict)
    """The same for each choice of each option, with the others as they are."""
    refused: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Why some of these cannot be chosen beside the others."""
    gets: Gets | None = None
    """What that job gets, in a few words each; see :func:`what_a_job_gets`."""
    may_get: Gets | None = None
    """The same whatever is chosen; see :func:`resources_in_words`."""

    @property
    def is_shown(self) -> bool:
        """Whether the user sees the profile, on the form and over REST."""
        return self.refusal is None or self.refusal.is_shown


def profile_statuses(
    offered: Sequence[Profile],
    *,
    username: str,
    groups: Collection[str],
    now: datetime,
    forecast: Forecast = Forecast(),  # noqa: B008 - it knows nothing
    defaults: Defaults | None = None,
    choice: Mapping[str, object] = MappingProxyType({}),
    refused: Callable[[JobRequest], Mapping[str, Mapping[str, str]]] = lambda _request: {},
) -> tuple[ProfileStatus, ...]:
    """Return the status of every profile, in the given order, with each option at its default.

    For the profile of ``choice`` (user options) its options count, if they are allowed.

    ``now`` has a time zone; ``defaults`` are the site's, ``forecast`` says when jobs would start, and ``refused`` which
    values of their options are refused, and why.
    """
    choices_left = [CHOICES_AT_MOST]

    def status(profile: Profile) -> ProfileStatus:
        refusal = permitted(profile, username, groups, now)
        if refusal is not None or profile.kind != "slurm":
            return ProfileStatus(profile, refusal, None)
        query = partial(
            resolve, (profile,), username=username, groups=groups, server_name="", now=now, defaults=defaults
        )

        chosen_options: Mapping[str, object] = {"profile": profile.slug}
        try:
            request = None
            if choice.get("profile") == profile.slug:
                with suppress(RequestError):
                    request, chosen_options = query(choice), choice
            request = request or query(chosen_options)
        except RequestError as error:  # no reservation today
            return ProfileStatus(profile, None, _refused(error))
        reasons = refused(request)
        try:
            refuse_choices(request, reasons)
            answer = forecast.of(request)
        except RequestError as error:
            answer = _refused(error)
        choices: dict[str, dict[str, Availability]] = {}
        for name, option in profile.profile_options.items() if answer is not None else ():
            for key in islice(option.choices, choices_left[0]):
                choices_left[0] -= 1
                with suppress(RequestError):
                    start = forecast.of(query({**chosen_options, name: key}))
                    choices.setdefault(name, {}).update({key: start} if start is not None else {})
        for name, clauses in reasons.items():
            starts = {key: Availability(Chance.NEVER, clause, field=name) for key, clause in clauses.items()}
            choices.setdefault(name, {}).update(starts)
        gets = what_a_job_gets(request.resources, forecast.hardware(request.resources))
        may_get = resources_in_words(profile, request.resources, forecast.hardware)
        return ProfileStatus(profile, None, answer, request.resources, choices, reasons, gets, may_get)

    return tuple(map(status, offered))


def _refused(error: RequestError) -> Availability:
    message = str(error).rstrip(".")
    return Availability(Chance.NEVER, message[:1].lower() + message[1:], field=error.field)
