"""One request of the page on which a server is chosen: what page and form tell each other."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.hub.pages.choose.filled_in import FilledIn


@dataclass
class Visit:
    """Set by the page's handler, read by the form; the form adds what the page shows above it."""

    linked: Mapping[str, list[str]] = field(default_factory=dict)
    """The ``opt-`` options of the address, without the prefix."""
    posted: Mapping[str, list[str]] | None = None
    """The fields that were sent with *Start*; None for a GET."""
    refusal: BaseException | None = None
    """Why that request did not start a server."""
    hint: str = ""
    """What administrators read about it."""
    filled_in: FilledIn | None = None
    """The form's values; None for a form that is not ours."""
    closed: str = ""
    """Why no server can be started, whatever is chosen; *Start* is disabled then."""
    fault_at: str = ""
    """The id of the field at which the error is shown."""


VISIT: ContextVar[Visit | None] = ContextVar("gpuspawner_visit", default=None)
"""The visit of this request; after a failed start JupyterHub passes no request to the form."""
