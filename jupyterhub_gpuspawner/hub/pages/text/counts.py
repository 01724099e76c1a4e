"""Numbers of things, as several pages say them."""

from __future__ import annotations


def count(number: int, one: str, many: str) -> str:
    """``1 node``, ``1,000 nodes``."""
    return f"{number:,} {one if number == 1 else many}"


def nodes(number: int) -> str:
    """A number of nodes."""
    return count(number, "node", "nodes")
