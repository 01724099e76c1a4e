"""What the readers of the hardware raise."""

from __future__ import annotations


class UnavailableError(Exception):
    """A source of hardware information cannot be used on this node; the text says why."""
