"""How a start failed or a server ended: what its page says, kept in the spawner's state until the next start."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.jupyterhub_compat import spawn_exception
from jupyterhub_gpuspawner.hub.site.database import AWAY_MESSAGE, roll_back
from jupyterhub_gpuspawner.records.cause import Cause, parse_cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tornado import web

    from jupyterhub_gpuspawner.errors import GPUSpawnerError


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


# Converts our errors to the exceptions that JupyterHub shows on the form, in the progress stream, REST and the log.

_ADVICE = ((SubmitRejected, words.REFUSED), (SlurmUnavailable, words.TRY_LATER))


def spawn_failure(error: GPUSpawnerError, *, server: str = "a server", contact: str = words.CONTACT) -> web.HTTPError:
    """The exception to raise from ``start()`` or ``apply_user_options`` for one of our errors.

    JupyterHub shows its ``jupyterhub_html_message`` on the form and on the page after a failed start, and its message
    in the progress stream and in REST: these are for the participant, and ``contact`` is whom to ask. What the admin
    should know is logged, with the name of the server, and kept as the ending's ``hint``.
    """
    if isinstance(error, RequestError):
        ending = Ending(error.message, advice=error.hint)
        return _failure(ending, message=error.told, reason=error.reason, status_code=error.status_code)
    get_logger().error("The start of %s failed: %s", server, error)
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), words.ASK).format(contact=contact)
    ending = Ending(error.told, advice=advice, hint=error.for_admin)
    return _failure(ending, message=f"{error.told} {advice}", reason=error.reason, status_code=error.status_code)


def contact_of(spawner: Any) -> str:
    """Whom participants may ask, as a spawner has it configured."""
    return str(getattr(spawner, "contact", words.CONTACT))


def start_failed(
    message: str,
    *,
    detail: str = "",
    reason: str = "job_ended",
    status_code: int = 500,
    ending: Ending | None = None,
) -> web.HTTPError:
    """The exception of a start that failed after submission: a sentence, with ``detail`` (log lines) below it.

    ``ending`` is the same in its parts, for a page.
    """
    return _failure(
        ending or Ending(message, lines=detail), message=message, reason=reason, status_code=status_code, detail=detail
    )


def database_away(orm_spawner: Any = None) -> web.HTTPError:
    """The exception of a start that failed with the hub's database; the session of ``orm_spawner`` is rolled back."""
    if orm_spawner is not None:
        roll_back(inspect(orm_spawner).session)
    return start_failed(AWAY_MESSAGE, reason="database", status_code=503)


def ending_of(failure: BaseException | None) -> Ending | None:
    """What a page says about an exception from this module; None for any other exception."""
    return getattr(failure, "gpuspawner_ending", None)


def _failure(ending: Ending, *, message: str, reason: str, status_code: int, detail: str = "") -> web.HTTPError:
    html = f"<p>{escape(message)}</p>"
    if detail:
        html += f'<pre class="text-start">{escape(detail)}</pre>'
    failure = spawn_exception(message, reason=reason, status_code=status_code, html=html, detail=detail)
    vars(failure)["gpuspawner_ending"] = ending
    return failure
