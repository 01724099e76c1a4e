"""The field ``choices_from`` of an option: which of the user's names in Slurm it offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from jupyterhub_gpuspawner.profiles.option import EXPRESSION_LIMIT, ProfileOption
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.schema import BadValue, Frozen, Name, OneOrMany, Prose, matcher
from jupyterhub_gpuspawner.profiles.sections import ProfileField

Kind = Literal["accounts", "partitions", "qos", "reservations"]
SETS: Mapping[Kind, str] = {
    "accounts": "account",
    "partitions": "partition",
    "qos": "qos",
    "reservations": "reservation",
}
"""The field of ``slurm`` that a choice of each kind sets."""


class SlurmChoices(Frozen):
    """Which of the names that the user has in Slurm an option offers, and how."""

    slurm: Kind
    """What is listed: the user's accounts, the partitions that they may use, their QOS, or the reservations that admit
    them."""
    match: str | None = None
    """An [RE2](https://github.com/google/re2/wiki/Syntax) regular expression: only names that match it as a whole are
    offered."""
    except_: str | None = Field(default=None, alias="except")
    """Likewise: names that match it are left out."""
    default: Name | None = None
    """The name that is selected at first, where the user has it; default: ``none`` where that is offered, else the
    user's default account or Slurm's default partition, else the first."""
    labels: dict[Name, Prose] = Field(default_factory=dict)
    """What the form says for a name; default: the name."""
    none: Prose | None = None
    """Offers to name none, in these words; always offered for ``qos`` and ``reservations``."""
    otherwise: Annotated[tuple[Name, ...], OneOrMany] = ()
    """The names to offer while those of the user are not known; default: the user may type one, which Slurm judges."""

    @field_validator("match", "except_")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            if len(value) > EXPRESSION_LIMIT or not value.isprintable():
                raise BadValue(f"must be printable, at most {EXPRESSION_LIMIT} characters", value)
            matcher(value)
        return value

    @property
    def sets(self) -> str:
        """The field of ``slurm`` that a choice sets, such as ``account``."""
        return SETS[self.slurm]

    def offers(self, name: str) -> bool:
        """Whether ``match`` and ``except`` leave this name."""
        if self.match is not None and not matcher(self.match).fullmatch(name):
            return False
        return self.except_ is None or not matcher(self.except_).fullmatch(name)


def _instead_of_others(option: ProfileOption) -> None:
    if option.range is not None or option.choices or option.unlisted_choice:
        raise BadValue("choices_from takes the place of a range, choices and an unlisted_choice")


CHOICES_FROM = ProfileField[SlurmChoices | None](
    "choices_from",
    SlurmChoices | None,
    "Lists the user's own names in Slurm in place of choices of the profile's author.",
    None,
    check=_instead_of_others,
)
FIELDS = (CHOICES_FROM,)


def sources_of(profile: Profile) -> dict[str, SlurmChoices]:
    """What the options of a profile list of Slurm's, by option."""
    if profile.kind != "slurm":
        return {}
    options: Mapping[str, ProfileOption] = profile.profile_options
    sources = {name: CHOICES_FROM.of(option) for name, option in options.items()}
    return {name: source for name, source in sources.items() if source is not None}
