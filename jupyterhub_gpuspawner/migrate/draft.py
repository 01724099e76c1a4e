"""What the converters write to: settings, profiles and differences of the new hub, while they are being made."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from jupyterhub_gpuspawner.migrate.old_hub import OldSetting


class Kind(str, Enum):
    """What becomes of a setting, an option or a piece of code."""

    MOVED = "moved"
    """The same under another name."""
    CHANGED = "changed"
    """Jobs or servers differ in this."""
    DROPPED = "dropped"
    """It is not needed, or had no effect."""
    DECIDE = "decide"
    """The admin has to do something; ``todo`` says what."""


@dataclass(frozen=True)
class Difference:
    """One difference."""

    kind: Kind
    where: str
    """The setting, such as ``c.SlurmSpawner.req_srun``, or the option of sbatch, such as ``--export``."""
    was: str
    now: str
    why: str
    """A sentence without its full stop."""
    todo: str = ""
    """What the admin should do, as a sentence; empty if nothing."""
    profiles: tuple[str, ...] = ()
    """Slugs of the profiles that differ; empty: all of them, or it is of the whole hub."""

    def document(self) -> dict[str, Any]:
        """The difference as JSON."""
        return {**asdict(self), "kind": self.kind.value, "profiles": list(self.profiles)}


def shown(value: object, limit: int = 160) -> str:
    """A value on one line, shortened."""
    text = value if isinstance(value, str) else repr(value)
    text = "\\n".join(text.strip("\n").split("\n"))
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


SOMEBODY = ("somebody", "/home/somebody")
"""Name and home of the user for whom scripts are compared."""


@dataclass(frozen=True)
class ConvertedProfile:
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
    profiles: list[ConvertedProfile] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def note(  # noqa: PLR0917 - the columns of the list
        self, kind: Kind, where: object, was: object, now: str, why: str, todo: str = "", *, profile: str = ""
    ) -> None:
        """Add a difference; the same one of another profile is joined to it."""
        new = Difference(kind, str(where), shown(was), now, why, todo, (profile,) if profile else ())
        for at, difference in enumerate(self.differences):
            if replace(difference, profiles=()) == replace(new, profiles=()):
                profiles = dict.fromkeys((*difference.profiles, *new.profiles))
                self.differences[at] = replace(difference, profiles=tuple(profiles))
                return
        self.differences.append(new)

    def keep(self, setting: OldSetting) -> None:
        """Keep the value of a setting, which may be one that cannot be written down, such as a function."""
        if _is_literal(setting.value):
            self.settings[setting.name] = setting.value
            self.moved(setting, setting.value, f"c.GPUSlurmSpawner.{setting.name}")
        else:
            self.decide(
                setting,
                setting.value,
                "left out",
                "its value is not text, a number, a list or a table",
                f"Set c.GPUSlurmSpawner.{setting.name} to it.",
            )

    def moved(self, where: object, was: object, now: str) -> None:
        """Add the difference of a setting that has another name now."""
        self.note(Kind.MOVED, where, was, now, "it means the same")

    def decide(self, where: object, was: object, now: str, why: str, todo: str, *, profile: str = "") -> None:
        """Add a difference that the admin has to look at."""
        self.note(Kind.DECIDE, where, was, now, why, todo, profile=profile)


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
