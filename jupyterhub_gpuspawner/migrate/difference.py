"""A difference between the hub that was and the hub that will be, as a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


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
