r"""The lines of the hub's log: what somebody else has written into one cannot look like another line, or like none.

Addresses, headers, names and the output of programs reach the log in the words of JupyterHub, of tornado and of ours.
A newline in them would begin a line of its own, ESC moves a terminal's cursor, and a mark for right-to-left text turns
the rest of the line around. They are shown as Python writes them: ``\n``, ``\x1b``, ``\u202e``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

_BEGINS_A_LINE = re.compile(r"\n(?![ \t\n}\])])")
"""A newline, unless what follows is indented or closes a bracket: JupyterHub logs the headers of a request as JSON."""


def visible(text: str, but: str = "") -> str:
    """The text with an escape in the place of each character that does not print, except for those of ``but``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in but else ascii(c)[1:-1] for c in text)


class _Visible:
    """A value in a line of the log."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return visible(str(self._value))

    def __repr__(self) -> str:
        return visible(repr(self._value))


def _shown(value: object) -> object:
    return value if isinstance(value, (int, float)) else _Visible(value)  # these have formats of their own


class VisibleText(logging.Filter):
    """Shows what does not print in the lines of one handler; the lines of a message or a traceback stay lines."""

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__()
        self._handler = handler

    def filter(self, record: logging.LogRecord) -> bool:
        """True: every record is logged."""
        if isinstance(record.args, Mapping):
            record.args = {name: _shown(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_shown, record.args))
        else:  # the message may have been put together before
            record.msg = visible(_BEGINS_A_LINE.sub(r"\\n", str(record.msg)), but="\n\t")
        if record.exc_info and not record.exc_text:
            formatter = self._handler.formatter or logging.Formatter()
            record.exc_text = visible(formatter.formatException(record.exc_info), but="\n\t")
        return True
