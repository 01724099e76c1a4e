"""The options of a profile with one user's names in Slurm, and which of these exclude each other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from jupyterhub_gpuspawner.extensions.slurm_choices import words
from jupyterhub_gpuspawner.extensions.slurm_choices.fields import CHOICES_FROM, SlurmChoices, sources_of
from jupyterhub_gpuspawner.extensions.slurm_choices.rules import Combination, Rules
from jupyterhub_gpuspawner.profiles.option import ListedChoice, ProfileOption, UnlistedChoice
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.schema import WORD

NONE = "(none)"
"""The value of an option that names nothing; no name of Slurm's has brackets."""
OLDEST = 24 * 3600.0
"""Seconds after which the last known list is no longer offered."""
TRIED_AT_MOST = 1000
"""Combinations that are judged for one form: beyond, nothing is known to be refused."""


@dataclass(frozen=True)
class Known:
    """What is known of one user on the clusters of a profile."""

    rules: Mapping[str, Rules]
    """By the names of those clusters that have answered."""
    exists: bool = True
    """False where none of them has accounts."""
    hidden: bool = False
    """Slurm does not show the hub what is not known."""
    age: float | None = None
    """Seconds since slurmdbd's last answer, where it no longer responds; None where it does."""
    age_of_cluster: float | None = None
    """Likewise of slurmctld, which knows partitions and reservations."""
    silent: bool = False
    """slurmctld does not respond, without which nothing else is known, either."""


@dataclass(frozen=True)
class _Listing:
    """The names of one kind; None: not known."""

    names: Sequence[str] | None
    default: str = ""
    about: Mapping[str, str] | None = None
    """What is said of a name beside it."""


def with_choices(profile: Profile, known: Known, *, about: Callable[[Any], str] = lambda _reservation: "") -> Profile:
    """The profile with the user's choices; one that can offer nothing and take nothing is left out.

    ``about`` says of a reservation when it can be used.
    """
    options: dict[str, ProfileOption] = {}
    for name, option in profile.profile_options.items():
        source = CHOICES_FROM.of(option)
        personal = option if source is None else _personal(option, source, known, about)
        if personal is not None:
            options[name] = personal
    return profile.model_copy(update={"profile_options": options})


def _personal(
    option: ProfileOption, source: SlurmChoices, known: Known, about: Callable[[Any], str]
) -> ProfileOption | None:
    sets = source.sets
    if sets in ("account", "qos") and not known.exists:
        return None
    label, listing, notes = option.display_name or words.LABELS[sets], _listing(source, known, about), []
    if option.description:
        notes.append(option.description)
    names, unlisted, who = listing.names, None, words.asked(sets, silent=known.silent)
    if names is None:
        names, sentence = source.otherwise, words.otherwise if source.otherwise else words.unknown
        notes.append(sentence(who, hidden=known.hidden))
        unlisted = None if names else _text(source)
    elif (age := known.age if sets in ("account", "qos") else known.age_of_cluster) is not None:
        notes.append(words.as_of(who, age))
    names = [name for name in names if source.offers(name)]
    choices: dict[str, ListedChoice] = {}
    if unlisted is None:
        choices = _choices(source, names, listing)
    update = {"display_name": label, "description": " ".join(notes), "choices": choices, "unlisted_choice": unlisted}
    return option.model_copy(update=update)


def _choices(source: SlurmChoices, names: Sequence[str], listing: _Listing) -> dict[str, ListedChoice]:
    sets, about = source.sets, listing.about or {}
    none = _none_of(source)
    if source.default in names:
        default = source.default
    elif none is not None:
        default = NONE
    else:
        default = listing.default if listing.default in names else next(iter(names), NONE)
    if none is None and not names:
        none = words.NONE_LEFT
    keys = ([NONE] if none is not None else []) + list(names)
    return {
        key: _choice(
            "" if key == NONE else sets,
            key,
            none if key == NONE else source.labels.get(key),
            about.get(key, ""),
            key == default,
        )
        for key in keys
    }


def _none_of(source: SlurmChoices) -> str | None:
    """What the choice that names none is called; None where that is not offered."""
    return source.none or (words.NONE[source.sets] if source.slurm in ("qos", "reservations") else None)


@lru_cache(maxsize=8192)
def _choice(sets: str, name: str, label: str | None, about: str, default: bool) -> ListedChoice:
    """One choice, which all users who have it share."""
    fields = {"slurm": {sets: name}} if sets else {}
    return ListedChoice.model_validate({"display_name": label, "description": about, "default": default, **fields})


def _text(source: SlurmChoices) -> UnlistedChoice:
    """A name that the user types while the list is not known."""
    expression = source.match or WORD
    return UnlistedChoice(
        display_name=words.TYPED[source.sets],
        validation_regex=expression,
        validation_message="it must be a name that this profile allows" if source.match else "it must be a name",
        sets=f"slurm.{source.sets}",
    )


def _listing(source: SlurmChoices, known: Known, about: Callable[[Any], str]) -> _Listing:
    """The names that a user has on all the clusters of a profile together."""
    clusters = [rules for rules in known.rules.values() if _has_names(rules, source.slurm)]
    if not clusters:
        return _Listing(None)
    names: dict[str, None] = {}
    default, notes = "", dict[str, str]()
    for rules in clusters:
        person = rules.person
        match source.slurm:
            case "accounts":
                names |= dict.fromkeys(person.accounts)
                default = default or person.default_account
            case "qos":
                names |= dict.fromkeys(sorted({name for row in person.associations or () for name in row.qos}))
            case "partitions":
                names |= dict.fromkeys(partition.name for partition in rules.partitions)
                default = default or next((one.name for one in rules.partitions if one.default), "")
            case "reservations":
                names |= dict.fromkeys(reservation.name for reservation in rules.reservations)
                notes |= {reservation.name: about(reservation) for reservation in rules.reservations}
    return _Listing(list(names), default, notes)


def _has_names(rules: Rules, kind: str) -> bool:
    """Whether the names of this kind are known on a cluster."""
    if kind in ("accounts", "qos"):
        return rules.person.associations is not None
    return bool(rules.snapshot.partitions) and kind not in rules.accounting.hides


# Which values exclude each other.
#
# The options of a profile are chosen from first to last. A value is refused if no value of those after it makes a job
# that Slurm accepts with those before it; so there is always a way to choose anything else, by changing an earlier one.


def refused_choices(
    profile: Profile, base: Combination, values: Mapping[str, str], rules: Rules
) -> dict[str, dict[str, str]]:
    """Why some values of a profile's options cannot be chosen beside the others, in clauses by option and value.

    ``profile`` is the user's own, ``base`` what a job names without any option, ``values`` are those of the options.
    """
    sources = sources_of(profile)
    by_option = [
        (name, by_value)
        for name, option in profile.profile_options.items()
        if (by_value := _named_by(option, values.get(name, "")))
    ]
    tried: dict[Combination, str] = {}

    def refusal(job: Combination) -> str:
        if job not in tried:
            if len(tried) >= TRIED_AT_MOST:
                return ""
            tried[job] = rules.refusal(job)
        return tried[job]

    refused: dict[str, dict[str, str]] = {}
    for at, (name, by_value) in enumerate(by_option):
        before = _over(base, [own.get(values.get(other, ""), {}) for other, own in by_option[:at]])
        after = [own for _, own in by_option[at + 1 :]]
        now = [own.get(values.get(other, ""), {}) for other, own in by_option[at + 1 :]]
        for value, named in by_value.items():
            left_out, job = _left_out(sources.get(name), value), _over(before, [named])
            reason = refusal(_over(job, now)) or left_out
            if reason and any(not refusal(_over(job, later)) for later in product(*map(_all, after))):
                reason = left_out
            if reason:
                refused.setdefault(name, {})[value] = reason
        if values.get(name) in refused.get(name, {}):
            break  # another value is needed here before those after it can be judged
    return refused


def _all(by_value: Mapping[str, Mapping[str, str]]) -> list[Mapping[str, str]]:
    return list(by_value.values())


def _left_out(source: SlurmChoices | None, value: str) -> str:
    """Why a profile does not offer a name that a user has typed, or leaves a user nothing to choose."""
    if source is None:
        return ""
    if value == NONE and _none_of(source) is None:
        return "none that you have can be used with this profile"
    return "" if value == NONE or source.offers(value) else f"{value} is not offered with this profile"


def _named_by(option: ProfileOption, value: str) -> dict[str, Mapping[str, str]]:
    """What each value of an option names; empty for an option that names nothing of these."""
    by_value = {key: _named(choice) for key, choice in option.choices.items()}
    if option.range is None and option.free_text is not None and value and value not in option.choices:
        by_value[value] = _named(option.free_text.override(value))
    return by_value if any(by_value.values()) or CHOICES_FROM.of(option) is not None else {}


def _named(override: Any) -> Mapping[str, str]:
    named = {}
    for name in Combination._fields:
        if name in override.slurm.model_fields_set and (value := getattr(override.slurm, name)) is not None:
            named[name] = override.slurm.reservation_name if name == "reservation" else value
    return named


def _over(job: Combination, named: Sequence[Mapping[str, str]]) -> Combination:
    for one in named:
        job = job._replace(**one)
    return job


def naming_of(profile: Profile) -> words.Naming:
    """What the options of a user's profile call fields and names."""
    fields: dict[str, str] = {}
    names: dict[tuple[str, str], str] = {}
    for name, source in sources_of(profile).items():
        option = profile.profile_options[name]
        if option.display_name and option.display_name != words.LABELS[source.sets]:
            fields[source.sets] = words.within_sentence(option.display_name)
        names |= {(source.sets, key): f'"{label}"' for key, label in source.labels.items()}
    return words.Naming(fields, names)
