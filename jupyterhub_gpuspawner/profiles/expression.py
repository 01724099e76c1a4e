"""Regular expressions that are matched in a time linear in the text, whoever wrote the one or the other.

Python's own engine goes back: ``([A-Za-z0-9]+_?)+`` and thirty characters hold a process for a minute. RE2 never does;
it has no look-around and no back-references for that reason.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from jupyterhub_gpuspawner.profiles.schema import BadValue

MEMORY = 1024 * 1024
"""Bytes that one expression may take: a program that is larger is refused, and so is slow to match."""
SYNTAX = "https://github.com/google/re2/wiki/Syntax"


@lru_cache(maxsize=512)
def matcher(expression: str) -> Any:
    """The compiled expression; raises ValueError, which says where the syntax is told."""
    options = re2.Options()
    options.log_errors = False  # RE2 would write the expression to the hub's standard error
    options.max_mem = MEMORY
    options.never_capture = True
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeError) as error:
        said = error.args[0] if error.args else ""
        detail = said.decode(errors="replace") if isinstance(said, bytes) else str(error)
        rule = f"is no regular expression of RE2, whose syntax is at {SYNTAX}"
        raise BadValue(rule, told=f"{expression!r} is no regular expression of RE2: {detail}; see {SYNTAX}") from None
