"""How a start failed or a server ended: what its page says, kept in the spawner's state until the next start."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.records.cause import Cause, parse_cause

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_LIMIT = 2000
"""Characters of each text that is kept."""
_TEXTS = ("what", "advice", "hint", "job_id", "log", "lines", "profile")


@dataclass(frozen=True)
class Ending:
    """Why the server does not run now. Every text must be escaped where it is shown."""

    what: str
    """What happened, for a participant: a sentence or two."""
    advice: str = ""
    """What the person may do."""
    hint: str = ""
    """What else an administrator should know, and could do: shown to administrators only."""
    job_id: str = ""
    at: float | None = None
    """Seconds since the epoch; None if unknown."""
    log: str = ""
    """The path of the job's log on the node."""
    lines: str = ""
    """The log's last lines."""
    profile: str = ""
    """The profile's display name, which its card shows; empty where there was none."""
    served: bool = False
    """The server had been running; False for a start that failed."""
    stopped: bool = False
    """A person stopped it, or the hub did: ``what`` says so, with ``{time}`` in the place of ``at``."""
    cause: Cause | None = None
    """The same as a value; None where an earlier version has stored it."""

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state: the fields that are set, each text cut to its limit (``lines`` keeps its end)."""
        kept = {key: value for key, value in asdict(self).items() if value}
        if self.cause is not None:
            kept["cause"] = self.cause.to_json()
        return {
            key: value[-TEXT_LIMIT:] if key == "lines" else value[:TEXT_LIMIT] if isinstance(value, str) else value
            for key, value in kept.items()
        }


def parse_ending(document: object) -> Ending | None:
    """What :meth:`Ending.to_json` wrote; None for anything else."""
    if not isinstance(document, dict) or not document.get("what"):
        return None
    texts = {name: document.get(name, "") for name in _TEXTS}
    at = document.get("at")
    if not all(isinstance(text, str) for text in texts.values()) or isinstance(at, bool):
        return None
    if at is not None and not isinstance(at, (int, float)):
        return None
    served, stopped = (document.get(name) is True for name in ("served", "stopped"))
    return Ending(**texts, at=at, served=served, stopped=stopped, cause=parse_cause(document.get("cause")))


def of_profile(ending: Ending | None, display_name: str) -> Ending | None:
    """The ending of a server of this profile."""
    return None if ending is None else replace(ending, profile=display_name)


def ending_state(ending: Ending | None) -> dict[str, Any]:
    """The part of a spawner's state that keeps the ending of its last server."""
    return {"ending": ending.to_json()} if ending is not None else {}


def stored_ending(state: Mapping[str, Any]) -> Ending | None:
    """The ending in a spawner's state; None where there is none, or where it cannot be read."""
    return parse_ending(state.get("ending"))
