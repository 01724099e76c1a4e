"""A profile as the page offers it: its resources, its options, and whether it is available."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from jupyterhub_gpuspawner.cluster.availability import Availability, Chance
from jupyterhub_gpuspawner.cluster.capacity import capacity_of
from jupyterhub_gpuspawner.cluster.limits import cpus_per_core_of, partitions_of
from jupyterhub_gpuspawner.hub.pages.choose.filled_in import FilledIn
from jupyterhub_gpuspawner.hub.pages.choose.what_you_get import COUNTED, for_the_script, what_a_job_gets, what_you_get
from jupyterhub_gpuspawner.hub.text import choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.courses.course_profile import CourseProfile
    from jupyterhub_gpuspawner.hub.site.profile_status import ProfileStatus
    from jupyterhub_gpuspawner.profiles.option import ProfileOption
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

WHERE = frozenset({"slurm.partition", "slurm.reservation", "slurm.constraint", "slurm.gpu_type", "slurm.nodes"})
"""Fields that decide which nodes are considered: another value may change whether any other field can be met."""


@dataclass(frozen=True)
class OptionField:
    """One option of a profile as a field of the form, with KubeSpawner's field name."""

    name: str
    label: str
    option: ProfileOption
    value: object
    fault: str = ""

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

    @property
    def unit(self) -> float | None:
        """What one of a range's numbers is in seconds, MiB or pieces; None without a range."""
        number = self.option.range
        if number is None:
            return None
        if number.sets == "slurm.memory":
            return 1024.0 ** ("KMGT".index((number.unit or "M")[0].upper()) - 1)
        seconds = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
        return seconds[number.unit or "minutes"] if number.sets == "slurm.time" else 1

    def brings(self, key: str) -> str:
        """What a choice changes of what a job gets, as JSON for the script; empty for nothing."""
        slurm = self.option.choices[key].slurm
        found = {name: getattr(slurm, name) for name in COUNTED if name in slurm.model_fields_set}
        return json.dumps(found) if found else ""


@dataclass(frozen=True)
class Offer:
    """One profile of the page."""

    profile: Profile
    gets: tuple[str, ...]
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
    told: str = ""
    """JSON of what the script needs to tell what other values of the options bring; empty without options."""
    course: CourseProfile | None = None
    """The course of which this is the card."""

    @property
    def id(self) -> str:
        """The id of its radio button."""
        return f"profile-{self.profile.slug}"


def option_fields(
    profile: Profile, values: Mapping[str, object], *, fault: str = "", at: str = ""
) -> tuple[OptionField, ...]:
    """The options with ``values``, else with the profile's defaults; ``fault`` is shown at the option ``at``."""
    said = profile.as_override()
    return tuple(
        OptionField(
            name=f"profile-option-{profile.slug}--{name}",
            label=option.display_name or name,
            option=option,
            value=values.get(name, option.initial(said)),
            fault=fault if name == at else "",
        )
        for name, option in profile.profile_options.items()
    )


def option_for(profile: Profile, field: str) -> str | None:
    """The option that changes ``field``, which is an option's name or such as ``slurm.gpus``; None if there is none."""
    if field in profile.profile_options:
        return field
    return next((key for key, option in profile.profile_options.items() if field in fields_set(option)), None)


def fields_set(option: ProfileOption) -> frozenset[str]:
    """The fields of a profile that an option changes, such as ``slurm.gpus``."""
    found = {part.sets for part in (option.range, option.free_text) if part is not None}
    for choice in option.choices.values():
        found.update(f"slurm.{name}" for name in choice.slurm.model_fields_set)
    return frozenset(found)


def closed_by(status: ProfileStatus) -> str:
    """Why a profile cannot be chosen, in a sentence; empty if it can. ``{time}`` is the refusal's.

    It begins later, or its job can never run and no option could change that.
    """
    if status.refusal is not None:
        return choose.NOT_YET
    found = status.availability
    if found is None or found.chance is not Chance.NEVER or _can_be_changed(status.profile, found.field):
        return ""
    return choose.sentence(found.sentence)


def _can_be_changed(profile: Profile, field: str) -> bool:
    """Whether another value of an option could let a job run that cannot run because of ``field``."""
    return option_for(profile, field) is not None or any(
        WHERE & fields_set(option) for option in profile.profile_options.values()
    )


def told_of(statuses: Sequence[ProfileStatus], filled_in: FilledIn, *, linked: bool) -> FilledIn:
    """``filled_in``, with the reason where its job can never run; ``linked``: it comes from a link.

    A link's profile that cannot be chosen is a fault of the link, and of the last choice a note.
    """
    status = next((each for each in statuses if each.profile.slug == filled_in.profile), None)
    found = status.availability if status is not None else None
    if status is None or found is None or filled_in.fault or found.chance is not Chance.NEVER:
        return filled_in
    closed = closed_by(status)
    if linked:
        name, why = status.profile.display_name, found.sentence
        if closed:
            return replace(filled_in, fault=choose.cannot_start(name, why), field="profile", note="")
        return replace(filled_in, fault=choose.sentence(why), field=found.field, note="")
    return FilledIn(note=filled_in.note or choose.no_longer(closed)) if closed else filled_in


def offers(
    statuses: Sequence[ProfileStatus], filled_in: FilledIn, *, base_url: str, snapshot: ClusterSnapshot | None = None
) -> list[Offer]:
    """The page's offers; one of them is selected where any can be chosen."""
    found = [_offer(status, filled_in, base_url, snapshot) for status in statuses if status.is_shown]
    one = chosen(found, filled_in)
    return [_with_choice(offer, filled_in, base_url) if offer is one else offer for offer in found]


def _offer(status: ProfileStatus, filled_in: FilledIn, base_url: str, snapshot: ClusterSnapshot | None) -> Offer:
    profile, resources = status.profile, status.resources
    gpu_type, cpus_per_core = _only_type(resources, snapshot), cpus_per_core_of(resources, snapshot)
    changed = profile.slug == filled_in.profile and bool(filled_in.values)
    return Offer(
        profile,
        gets=what_a_job_gets(resources, gpu_type=gpu_type, cpus_per_core=cpus_per_core)
        if changed and resources is not None and not filled_in.fault_at_value
        else what_you_get(profile, resources, gpu_type=gpu_type, cpus_per_core=cpus_per_core),
        fields=option_fields(profile, {}),
        availability=status.availability,
        closed=closed_by(status),
        opens=status.refusal.when if status.refusal is not None else None,
        link=link_to(base_url, profile.slug, {}),
        told=json.dumps(for_the_script(profile, resources, gpu_type=gpu_type, cpus_per_core=cpus_per_core))
        if resources is not None and profile.profile_options
        else "",
    )


def chosen(found: Sequence[Offer], filled_in: FilledIn) -> Offer | None:
    """The selected offer: as filled in, else the first default profile, else the first that can be chosen.

    None where what is filled in asks for a profile that cannot be had: another one is the user's to choose.
    """
    if filled_in.fault and filled_in.field == "profile":
        return None
    open_ones = [offer for offer in found if not offer.closed]
    wanted = [offer for offer in open_ones if offer.profile.slug == filled_in.profile]
    usual = [offer for offer in open_ones if offer.profile.default]
    return next(iter([*wanted, *usual, *open_ones]), None)


def _with_choice(offer: Offer, filled_in: FilledIn, base_url: str) -> Offer:
    profile = offer.profile
    mine = filled_in.profile in ("", profile.slug)
    values = {name: value for name, value in filled_in.values.items() if mine and name in profile.profile_options}
    at = option_for(profile, filled_in.field) if mine and filled_in.fault else None
    refused = replace(
        offer.availability or Availability(filled_in.chance, ""),
        chance=filled_in.chance,
        sentence=choose.AT_THE_FIELD if at else filled_in.fault,
        starts_at=None,
        taken_at=None,
    )
    return replace(
        offer,
        checked=True,
        availability=refused if mine and filled_in.fault else offer.availability,
        fields=option_fields(profile, values, fault=filled_in.fault, at=at or ""),
        link=link_to(base_url, profile.slug, values),
    )


def link_to(base_url: str, profile: str, values: Mapping[str, object]) -> str:
    """The form's address with this choice; the same for every user."""
    query = {"opt-profile": profile, **{f"opt-{name}": str(value) for name, value in values.items()}}
    return f"{base_url}spawn?{urlencode(query)}"


def _only_type(resources: ResolvedResources | None, snapshot: ClusterSnapshot | None) -> str:
    """The partition's type of GPU, for a job that requests any GPU; empty where there are several types."""
    if snapshot is None or resources is None or not resources.gpus or resources.gpu_type:
        return ""
    types = {kind for name in partitions_of(resources, snapshot) for kind in capacity_of(snapshot).nodes(name).types}
    return types.pop() if len(types) == 1 else ""
