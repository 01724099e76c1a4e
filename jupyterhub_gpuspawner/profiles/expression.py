"""Regular expressions that match in time linear in the text, safe for expressions and texts from any author.

Python's own engine backtracks: ``([A-Za-z0-9]+_?)+`` and thirty characters occupy a process for a minute. RE2 never
does, and therefore supports neither look-around nor back-references.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from jupyterhub_gpuspawner.profiles.schema import BadValue

MEMORY = 1024 * 1024
"""Bytes that one compiled expression may use; larger ones, which would match slowly, are refused."""
SYNTAX = "https://github.com/google/re2/wiki/Syntax"


@lru_cache(maxsize=512)
def matcher(expression: str) -> Any:
    """The compiled expression; raises ValueError with a link to the syntax."""
    options = re2.Options()
    options.log_errors = False  # RE2 would write the expression to the hub's standard error
    options.max_mem = MEMORY
    options.never_capture = True
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeError) as error:
        said = error.args[0] if error.args else ""
        detail = said.decode(errors="replace") if isinstance(said, bytes) else str(error)
        rule = f"is not a valid RE2 regular expression; for the syntax see {SYNTAX}"
        raise BadValue(
            rule, told=f"{expression!r} is not a valid RE2 regular expression: {detail}; see {SYNTAX}"
        ) from None
