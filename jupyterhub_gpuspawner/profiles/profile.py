"""The profile model: what users choose from, written by an admin or instructor; a typed form of ``profile_list``.

The fields follow KubeSpawner's ``profile_list``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, field_validator, model_validator

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.option import OPTION_LIMIT, UNLISTED, ProfileOption, put_over
from jupyterhub_gpuspawner.profiles.resources import Environment, PlacementRules, Resources
from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Checked,
    Frozen,
    Guarded,
    OneOrMany,
    Prose,
    Seconds,
    Text,
    UrlPath,
    Wait,
    matching,
    one_line,
)
from jupyterhub_gpuspawner.profiles.tuples import slug_of, typed_fields
from jupyterhub_gpuspawner.words import memory


def words(value: Any) -> Any:
    """Split a command line into its words, as a shell does; anything else stays as it is. Raises BadValue."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(one_line(value))
    except ValueError as error:
        raise error if isinstance(error, BadValue) else BadValue("has an unbalanced quote", value) from None


Words = Annotated[tuple[Text, ...], BeforeValidator(words)]


SLUG = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"


def _moment(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        text = str(value)
        return date.fromisoformat(text) if len(text) == len("2024-05-31") else datetime.fromisoformat(text)
    except ValueError:
        raise BadValue("is not a valid date or time: use 2024-05-31, or 2024-05-31 09:00", value) from None


Moment = Annotated[date, Checked(_moment, {"type": "string", "examples": ["2024-05-31", "2024-05-31 09:00"]})]


class Allow(Frozen):
    """Who may use a profile, and when. Default: everybody, always."""

    groups: Annotated[tuple[Text, ...], OneOrMany] = ()
    """JupyterHub groups; membership in one of them is enough."""
    users: Annotated[tuple[Text, ...], OneOrMany] = ()
    """User names; a matching group or a matching name is enough."""
    from_: Moment | None = Field(default=None, alias="from")
    """The first day, or a date and time; in the hub's time zone unless it has a UTC offset."""
    until: Moment | None = None
    """The last day (inclusive), or a date and time."""


def _port_range(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch("[0-9]{1,5}-[0-9]{1,5}", value):
        value = [int(port) for port in value.split("-")]
    match value:
        case [int(first), int(last)] if 1024 <= first <= last <= 65535:
            return first, last
    raise BadValue("must be two ports within 1024 to 65535, such as 20000-20999", value)


class Profile(Frozen):
    """One choice on the form: a server and how it is started."""

    display_name: Prose
    slug: Annotated[str, matching(SLUG, "letters, digits and . _ -, at most 63")]
    """Its name in links, REST and stored options; default: derived from the display name."""
    description: Prose = ""
    default: bool = False
    """Used if the user chooses no profile; of several, the first one that the user may use."""
    kind: Annotated[Literal["slurm", "local", "other"], Guarded("local", free="slurm|other")] = "slurm"
    """A Slurm job, a process on the hub's machine, or another spawner class."""
    spawner_class: Text | None = None
    """Dotted name of that class, for kind ``other``."""
    traits: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of the spawner that starts the server, such as ``ip``. batchspawner's ``req_*`` settings that correspond
    to a field of ``slurm`` set that field, unless ``slurm`` sets it itself. Those that find a running server are stored
    with it in the hub's database: for kind ``other`` all but ``environment``."""
    slurm: Resources = Resources()
    environment: Environment = Environment()
    placement: PlacementRules = PlacementRules()
    allow: Allow = Allow()
    profile_options: dict[str, ProfileOption] = Field(default_factory=dict)
    alternatives: Annotated[tuple[Text, ...], OneOrMany] = ()
    """Slugs of profiles that its users may accept as well, such as ``[k80, v100]``: while a server of this one waits in
    line, and one of these is free, its job is submitted beside, and whichever comes first runs the server. Default:
    none."""
    rescue: bool = False
    """Offered first after a start that failed since the user's home folder is full. Its server must start in such a
    home, so that its user can delete files."""
    start_timeout: Seconds | None = None
    """Seconds from Slurm's allocation until the server's address is known; without Slurm, from the click."""
    queue_timeout: Wait | None = None
    """How long the job may wait in Slurm's queue, such as ``4:00:00``, or UNLIMITED; default: the site's. Kept in
    seconds."""
    command: Annotated[Annotated[tuple[Text, ...], BeforeValidator(words)] | None, Guarded("command")] = None
    """The server's command; default: the hub's (``jupyterhub-singleuser``)."""
    default_url: UrlPath | None = None
    """The page that opens first, such as ``/lab/tree/start.ipynb``."""
    port_range: Annotated[tuple[int, int], BeforeValidator(_port_range)] | None = None
    """Ports that the server may listen on, such as ``20000-20999``."""

    @model_validator(mode="before")
    @classmethod
    def _with_slug(cls, value: Any) -> Any:
        if isinstance(value, dict) and "slug" not in value and isinstance(value.get("display_name"), str):
            return {**value, "slug": slug_of(value["display_name"])}
        return value

    @model_validator(mode="before")
    @classmethod
    def _typed_traits(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("kind", "slurm") != "slurm":
            return value
        traits, slurm = value.get("traits"), value.get("slurm", {})
        if not isinstance(traits, Mapping) or not isinstance(slurm, Mapping):
            return value
        rest = dict(traits)
        fields = typed_fields(rest)
        return {**value, "traits": rest, "slurm": {**fields, **slurm}} if fields else value

    @field_validator("profile_options")
    @classmethod
    def _names(cls, value: dict[str, ProfileOption]) -> dict[str, ProfileOption]:
        if len(value) > OPTION_LIMIT:
            raise BadValue(f"has more than {OPTION_LIMIT} options, which is the limit")
        for name in value:
            valid = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", name, re.ASCII)
            if not valid or "--" in name or name in ("profile", "alternatives", UNLISTED):
                raise BadValue("is not a valid option name: use letters, digits, . _ -, no --, and not 'profile'", name)
        return value

    @model_validator(mode="after")
    def _class_of_other(self) -> Profile:
        if (self.kind == "other") != bool(self.spawner_class):
            raise BadValue("kind: other requires a spawner_class (a dotted name), and the other kinds do not allow one")
        return self

    @model_validator(mode="after")
    def _starts_untouched(self) -> Profile:
        """The unchanged profile must be allowed, otherwise every start without a change would be refused."""
        settings = self
        for name, option in self.profile_options.items():
            part_settings = option.setting_of(settings.slurm)
            if option.range is not None and option.range.default is None and part_settings is not None:
                try:
                    option.choose(part_settings)
                except ValueError:
                    raise BadValue(
                        f"profile_options.{name}.range has no default, and the profile's value of "
                        f"{option.range.sets} is outside the range: give the range a default, or change the field"
                    ) from None
            initial = option.initial(settings.slurm)
            if initial is not None:
                settings = put_over(settings, option.choose(initial)[1])
        if settings.slurm.gpus and settings.slurm.shards:
            raise BadValue("GPUs and shards cannot be requested together, and the unchanged profile requests both")
        return self


class SlugTaken(ConfigError):
    """A profile of a file has the slug of another profile, and is left out."""


LEAST_MEMORY = 512
"""MiB below which a profile's memory is almost surely meant in other units: a notebook server alone takes a third."""


class Doubt(NamedTuple):
    """A value of a profile that is valid and almost surely a mistake."""

    slug: str
    path: tuple[str, ...]
    """The field's keys in the profile."""
    text: str
    """For the profile's author."""

    def __str__(self) -> str:
        return f"profile {self.slug}: {'.'.join(self.path)}: {self.text}"


def slurm_values(profile: Profile, field: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value of a field of ``slurm`` in a profile and its options, with its keys; of a range the largest."""
    yield ("slurm", field), getattr(profile.slurm, field)
    for name, option in profile.profile_options.items():
        for key, choice in option.choices.items():
            yield ("profile_options", name, "choices", key, "slurm", field), getattr(choice.slurm, field)
        if option.range is not None and option.range.sets == f"slurm.{field}":
            largest = option.range.override(option.range.max)
            yield ("profile_options", name, "range", "max"), getattr(largest.slurm, field)


def doubts_of(profile: Profile) -> tuple[Doubt, ...]:
    """Values of a profile that are valid and almost surely mistakes.

    Whether the author wrote a unit is not known here.
    """
    return tuple(
        Doubt(profile.slug, path, f"{memory(mib)} is less than a notebook server needs; did you mean {mib}G?")
        for path, mib in slurm_values(profile, "memory")
        if mib is not None and 0 < mib < LEAST_MEMORY
    )
