"""A section of the page of documents."""

from __future__ import annotations

from typing import NamedTuple


class Document(NamedTuple):
    """A section of the page: a document, and after it each type in it that no section before it has."""

    name: str
    version: int
    cls: type
    about: str = ""
    also: tuple[tuple[type, str], ...] = ()
    """Types that its fields do not name, and where they are."""

    @property
    def heading(self) -> str:
        """As other pages link to it."""
        return f"{self.name}, version {self.version}"
