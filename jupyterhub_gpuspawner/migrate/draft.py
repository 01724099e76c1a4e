"""What the converters write to: settings, profiles and differences of the new hub, while they are being made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.migrate.difference import Difference, Kind, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

SOMEBODY = ("somebody", "/home/somebody")
"""Name and home of the user for whom scripts are compared."""


@dataclass(frozen=True)
class Offer:
    """A profile of the new hub, and the job that the old one would have submitted for the same choice."""

    document: dict[str, Any]
    was: Mapping[str, str] | None = None
    """sbatch's options; None if the profile is no Slurm job, or the old hub could not have made its script."""

    @property
    def slug(self) -> str:
        """The profile's slug."""
        return str(self.document["slug"])


@dataclass
class Draft:
    """The new hub."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Of ``c.GPUSlurmSpawner``, whose values are written anew."""
    keep: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Settings by section and name that keep their value, and their statement where that is possible."""
    offers: list[Offer] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def note(  # noqa: PLR0917 - the columns of the list
        self, kind: Kind, where: object, was: object, now: str, why: str, todo: str = "", *, profile: str = ""
    ) -> None:
        """Add a difference; the same one of another profile is joined to it."""
        made = Difference(kind, str(where), shown(was), now, why, todo, (profile,) if profile else ())
        for at, each in enumerate(self.differences):
            if replace(each, profiles=()) == replace(made, profiles=()):
                profiles = dict.fromkeys((*each.profiles, *made.profiles))
                self.differences[at] = replace(each, profiles=tuple(profiles))
                return
        self.differences.append(made)

    def moved(self, where: object, was: object, now: str) -> None:
        """Add the difference of a setting that has another name now."""
        self.note(Kind.MOVED, where, was, now, "it means the same")

    def decide(self, where: object, was: object, now: str, why: str, todo: str, *, profile: str = "") -> None:
        """Add a difference that the admin has to look at."""
        self.note(Kind.DECIDE, where, was, now, why, todo, profile=profile)
