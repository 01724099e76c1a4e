"""A site's hooks that raise: one sentence for the person whose server does not start, the hook's line for the admin.

JupyterHub shows ``HTTP 500: Internal Server Error (Unhandled error starting server ada)`` instead, and logs a traceback
that begins in its own code. An HTTPError is a hook's own refusal, and its message is for the user.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from pathlib import Path
from typing import Any

import jupyterhub
from tornado import web
from traitlets.log import get_logger

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.failed_start import hook_ending, start_error
from jupyterhub_gpuspawner.hub.jupyterhub_compat import log_name
from jupyterhub_gpuspawner.slurm.reason import Words

_NOT_THE_SITES = tuple(
    f"{Path(module.__file__ or '').parent}/" for module in (asyncio, jupyterhub, jupyterhub_gpuspawner)
)  # asyncio has a line of its own in a traceback of Python 3.10


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
    what = f"{name} raised {type(raised).__name__}: {raised}{_line_of(raised)}"
    get_logger().error("The start of %s failed: %s", log_name(spawner), what, exc_info=raised)
    return start_error(hook_ending(what, at=time.time()), 500, contact=spawner.contact)


def _refused(refusal: web.HTTPError, *, contact: str) -> web.HTTPError:
    """The exception of a start that a hook has refused, with its own message in place of HTTP's words."""
    message = refusal.log_message or ""
    # without arguments, tornado doubles each % of the message
    message = message % refusal.args if refusal.args else message.replace("%%", "%")
    if not message:
        return refusal
    ending = Ending(start_failed("hook_refused"), at=time.time(), quoted=Words(message))
    return start_error(ending, refusal.status_code, contact=contact)


def _line_of(error: BaseException) -> str:
    """Such as `` (/etc/jupyterhub/jupyterhub_config.py, line 12)``: the hook's own; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    hook = next((frame for frame in frames if not frame.filename.startswith(_NOT_THE_SITES)), None)
    return f" ({hook.filename}, line {hook.lineno})" if hook is not None else ""
