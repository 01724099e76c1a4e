"""Converts our errors to the exceptions that JupyterHub shows on the form, in the progress stream, REST and the log."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import RequestError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.hub.ending.record import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import spawn_exception
from jupyterhub_gpuspawner.hub.site.database import AWAY_MESSAGE, roll_back
from jupyterhub_gpuspawner.hub.text import wait

if TYPE_CHECKING:
    from tornado import web

    from jupyterhub_gpuspawner.errors import GPUSpawnerError


_ADVICE = ((SubmitRejected, wait.REFUSED), (SlurmUnavailable, wait.TRY_LATER))


def spawn_failure(error: GPUSpawnerError, *, server: str = "a server", contact: str = wait.CONTACT) -> web.HTTPError:
    """The exception to raise from ``start()`` or ``apply_user_options`` for one of our errors.

    JupyterHub shows its ``jupyterhub_html_message`` on the form and on the page after a failed start, and its message
    in the progress stream and in REST: these are for the participant, and ``contact`` is whom to ask. What the admin
    should know is logged, with the name of the server, and kept as the ending's ``hint``.
    """
    if isinstance(error, RequestError):
        ending = Ending(error.message, advice=error.hint)
        return _failure(ending, message=error.told, reason=error.reason, status_code=error.status_code)
    get_logger().error("The start of %s failed: %s", server, error)
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), wait.ASK).format(contact=contact)
    ending = Ending(error.told, advice=advice, hint=error.for_admin)
    return _failure(ending, message=f"{error.told} {advice}", reason=error.reason, status_code=error.status_code)


def contact_of(spawner: Any) -> str:
    """Whom participants may ask, as a spawner has it configured."""
    return str(getattr(spawner, "contact", wait.CONTACT))


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
