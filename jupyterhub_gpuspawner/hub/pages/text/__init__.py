"""What the hub's pages say: one module for each page, every sentence through gettext.

Sentences about a job, a reason or an error are the core's, where the facts are (``job.py``, ``reason.py``,
``errors.py``).
A translation is a catalogue ``jupyterhub_gpuspawner.mo`` in ``locale/<language>/LC_MESSAGES/`` of this folder; the
hub's LANGUAGE or LANG chooses it, for all of its users.
"""

from __future__ import annotations

import gettext
from pathlib import Path

_CATALOGUE = gettext.translation("jupyterhub_gpuspawner", Path(__file__).parent / "locale", fallback=True)


def _(sentence: str) -> str:
    """``sentence`` in the hub's language; itself where there is no translation."""
    return _CATALOGUE.gettext(sentence)
