"""Generates ``docs/reference`` from the code: settings, profile fields, commands, documents, errors and so on."""

from __future__ import annotations

from collections import ChainMap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from . import (
    batchspawner,
    commands,
    components,
    documents,
    errors,
    extensions,
    findings,
    hub,
    metrics,
    of_extensions,
    profile,
    sessions,
    settings,
    sites,
    states,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent.parent / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings.page,
    "profile.md": profile.page,
    "commands.md": commands.page,
    "components.md": components.page,
    "documents.md": documents.page,
    "extensions.md": extensions.page,
    "findings.md": findings.page,
    "errors.md": errors.page,
    "hub.md": hub.page,
    "states.md": states.page,
    "metrics.md": metrics.page,
    "sessions.md": sessions.page,
    "batchspawner.md": batchspawner.page,
    "sites.md": sites.page,
    **ChainMap(*of_extensions.all_of("PAGES")),
}


@cache
def rendered() -> dict[str, str]:
    """The text of each page, and of the schema of courses, by file name."""
    pages = {name: page() for name, page in PAGES.items()}
    for parts in of_extensions.all_of("PARTS"):
        for name, part in parts.items():
            pages[name] += f"\n{part()}"
    return pages
