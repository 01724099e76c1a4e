"""Evaluates ``--constraint`` against the features of a node. Pure. Source: sbatch(1)."""

from __future__ import annotations

import re
from functools import lru_cache

_TOKEN = re.compile(r"[A-Za-z0-9_.:+-]+|[&|()]")


@lru_cache(maxsize=4096)
def satisfies(constraint: str, features: frozenset[str]) -> bool | None:
    """Whether a node's features satisfy ``--constraint``; None for forms that relate nodes to one another.

    Supports names joined by ``&`` (or a comma) and ``|``, evaluated from left to right, and parentheses.
    """
    text = constraint.replace(",", "&")
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text or len(tokens) > 200:
        return None
    position = 0

    def term() -> bool:
        nonlocal position
        word = tokens[position]
        position += 1
        if word != "(":
            return word in features
        found = expression()
        if tokens[position] != ")":
            raise IndexError
        position += 1
        return found

    def expression() -> bool:
        nonlocal position
        found = term()
        while position < len(tokens) and tokens[position] in "&|":
            operator = tokens[position]
            position += 1
            other = term()
            found = found and other if operator == "&" else found or other
        return found

    try:
        result = expression()
    except IndexError:
        return None
    return result if position == len(tokens) else None
