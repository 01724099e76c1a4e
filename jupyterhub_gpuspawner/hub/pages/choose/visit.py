"""One look at the page on which a server is chosen: what came with it, for the form, and what the form made of it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.hub.pages.choose.filled_in import FilledIn


@dataclass
class Visit:
    """The page's handler fills it in, the form reads it and leaves what the page says above the form."""

    linked: Mapping[str, list[str]] = field(default_factory=dict)
    """The ``opt-`` options of the address, without the prefix."""
    posted: Mapping[str, list[str]] | None = None
    """What was sent with a click on *Start*; None where nobody has clicked."""
    refusal: BaseException | None = None
    """Why that did not start a server."""
    filled_in: FilledIn | None = None
    """What the form holds; None for a form that is not ours."""
    fault_at: str = ""
    """The id of the field at which the fault is told."""


VISIT: ContextVar[Visit | None] = ContextVar("gpuspawner_visit", default=None)
"""The visit of this request; JupyterHub hands a form no request after a failed start."""
