"""How a start failed, or a server ended: what its page says, kept with the server until its next start."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_LIMIT = 2000
"""Characters of each text that is kept."""
_TEXTS = ("what", "advice", "hint", "job_id", "log", "lines")


@dataclass(frozen=True)
class Ending:
    """Why nothing runs here now. Every text is to be escaped where it is shown."""

    what: str
    """What happened: a sentence or two."""
    advice: str = ""
    """What the person may do."""
    hint: str = ""
    """What an administrator could do."""
    job_id: str = ""
    at: float | None = None
    """When, in seconds since the epoch; None where it is not known."""
    log: str = ""
    """The path of the job's log, as the node sees it."""
    lines: str = ""
    """The log's last lines."""
    served: bool = False
    """The server had been running; False for a start that failed."""

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state: what is set, each text cut at its limit (lines from their end)."""
        kept = {key: value for key, value in asdict(self).items() if value}
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
    return Ending(**texts, at=at, served=document.get("served") is True)


class RemembersEnding:
    """A mixin for spawners: how its last server ended, in its state while nothing runs."""

    ending: Ending | None = None

    def ending_state(self) -> dict[str, Any]:
        """Its part of the state."""
        return {"ending": self.ending.to_json()} if self.ending is not None else {}

    def load_ending(self, state: Mapping[str, Any]) -> None:
        """Read that part back; what does not fit is dropped."""
        self.ending = parse_ending(state.get("ending"))
