"""A start that failed, as the exception that JupyterHub shows on the form, in the progress stream, REST and the log.

JupyterHub shows ``HTTP 500: Internal Server Error (Unhandled error starting server ada)`` where a hook of the site's
raises, and logs a traceback that begins in its own code. Here that is one sentence for the person whose server does not
start, and the hook's line for the admin. An HTTPError is a hook's own refusal, and its message is for the user.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jupyterhub
from jupyterhub.utils import AnyTimeoutError
from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError
from tornado import web
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import GPUSpawnerError, RequestError, SubmitRejected
from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending import TEXT_LIMIT, Ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name, spawn_exception
from jupyterhub_gpuspawner.hub.site.database import UNAVAILABLE, roll_back
from jupyterhub_gpuspawner.hub.words import CONTACT
from jupyterhub_gpuspawner.placement.topology import as_line
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.tasks import Ended

_FAILED = "The start of %s failed: %s"
_NOT_THE_SITES = tuple(
    f"{folder}/"
    for folder in (Path(asyncio.__file__).parent, Path(jupyterhub.__file__).parent, Path(__file__).parents[2])
)  # asyncio has a line of its own in a traceback of Python 3.10


def log_failed_start(server: str, ending: Ending) -> None:
    """Write the line about a start that failed: its cause, and for whoever looks into it, the node and the log."""
    shown, node = words_of(ending), ending.job.batch_host or ending.job.nodes if ending.job is not None else ""
    facts = (f"Node: {node}." if node else "", f"Log file: {ending.log}" if ending.log else "")
    get_logger().error(_FAILED, server, " ".join(filter(None, (shown.sentence, shown.hint, *facts))))


def spawn_failure(error: GPUSpawnerError, *, server: str = "a server", contact: str = CONTACT) -> web.HTTPError:
    """The exception to raise from ``start()`` or ``apply_user_options`` for one of our errors.

    What the admin should know is logged, with the name of the server; ``contact`` is whom the participant may ask.
    """
    ending = Ending(start_failed(error.reason), at=time.time())
    if isinstance(error, RequestError):
        ending = replace(ending, quoted=Words(error.message, error.hint))
    else:
        get_logger().error(_FAILED, server, error)
        if isinstance(error, SubmitRejected) and error.stderr:
            ending = replace(ending, printed=error.stderr, quoted=Words(error.why))
        else:
            ending = replace(ending, quoted=Words(error.for_user, hint=error.for_admin))
    return start_error(ending, error.status_code, contact=contact)


def start_error(ending: Ending, status_code: int = 503, *, contact: str = CONTACT) -> web.HTTPError:
    """The exception of a start that failed, which has its ending (:func:`ending_of`).

    JupyterHub shows its ``jupyterhub_html_message`` on the form and on the page after a failed start, and its message
    in the progress stream and in REST, with the lines of the job's log below it: these are for the participant.
    """
    shown = words_of(ending, contact=contact)
    message = " ".join(filter(None, (shown.sentence, shown.advice, f"Log file: {ending.log}" if ending.log else "")))
    log = f'<pre class="text-start">{escape(ending.lines)}</pre>' if ending.lines else ""
    html, fault = f"<p>{escape(message)}</p>{log}", ending.cause.fault
    failure = spawn_exception(message, reason=fault, status_code=status_code, html=html, detail=ending.lines)
    vars(failure)["gpuspawner_ending"] = ending
    return failure


def database_away(orm_spawner: Any = None) -> web.HTTPError:
    """The exception of a start that failed with the hub's database; the session of ``orm_spawner`` is rolled back."""
    if orm_spawner is not None:
        roll_back(inspect(orm_spawner).session)
    return start_error(Ending(start_failed("database"), at=time.time()))


def ending_of(failure: BaseException | None) -> Ending | None:
    """The ending of an exception from this module; None for any other exception that JupyterHub has words for.

    JupyterHub writes to its database before it calls the spawner; the sentence of such an error is that of
    :class:`~.site.database.Outage`. One without words comes from a hook or a class of the site's.
    """
    ending: Ending | None = getattr(failure, "gpuspawner_ending", None)
    if ending is not None or not isinstance(failure, Exception):
        return ending
    if isinstance(failure, SQLAlchemyError) and hasattr(failure, "jupyterhub_message"):
        return Ending(start_failed("database"), quoted=UNAVAILABLE)
    has_words = isinstance(failure, (web.HTTPError, AnyTimeoutError)) or hasattr(failure, "jupyterhub_message")
    return None if has_words else hook_ending(f"{type(failure).__name__}: {failure}")


def hook_ending(what: str, *, at: float | None = None) -> Ending:
    """The ending of a start that a hook of the site has ended; ``what`` it raised is for administrators."""
    return Ending(start_failed("hook"), at=at, quoted=Words(hint=what[:TEXT_LIMIT]))


def hook_failure(spawner: Any, name: str, error: Exception) -> Exception:
    """What the hook of this name has raised, in words for the user, and logged; what has such words already stays."""
    if hasattr(error, "jupyterhub_message"):
        return error
    raised: BaseException = error
    if isinstance(error, web.HTTPError):
        # JupyterHub says this for any error of apply_user_options; other refusals are the hook's own
        if error.log_message != "Invalid user options" or error.__context__ is None:
            return _refused(error, contact=spawner.contact)
        raised = error.__context__
    elif isinstance(error, Ended):
        raised = error.__cause__ or error
    what = f"{name} raised {type(raised).__name__}: {raised}{_line_of(raised)}"
    if isinstance(raised, Ended):
        what = f"{name} was given up: {raised} (start_timeout)"
    get_logger().error("The start of %s failed: %s", log_name(spawner), what, exc_info=raised)
    return start_error(hook_ending(what, at=time.time()), 500, contact=spawner.contact)


def _refused(refusal: web.HTTPError, *, contact: str) -> web.HTTPError:
    """The exception of a start that a hook has refused, with its own message in place of HTTP's words.

    With status 507 (Insufficient Storage) it says that the user's home folder is full.
    """
    message = refusal.log_message or ""
    with suppress(TypeError, ValueError):  # a % of the message is no place for an argument
        message %= refusal.args  # without arguments, tornado doubles each %
    full = refusal.status_code == HTTPStatus.INSUFFICIENT_STORAGE
    if not message and not full:
        return refusal
    fault, quoted = "home_full" if full else "hook_refused", Words(as_line(message).strip())
    ending = Ending(start_failed(fault), at=time.time(), quoted=quoted)
    # from 500 on JupyterHub counts a failure, and exits after consecutive_failure_limit
    return start_error(ending, HTTPStatus.FORBIDDEN if full else refusal.status_code, contact=contact)


def _line_of(error: BaseException) -> str:
    """Such as `` (/etc/jupyterhub/jupyterhub_config.py, line 12)``: the hook's own; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    hook = next((frame for frame in frames if not frame.filename.startswith(_NOT_THE_SITES)), None)
    return f" ({hook.filename}, line {hook.lineno})" if hook is not None else ""
