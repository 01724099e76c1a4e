"""Generates ``docs/reference`` from the code: settings, profile fields, commands, documents, errors and so on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from . import (
    commands,
    course,
    documents,
    errors,
    findings,
    metrics,
    migration,
    profile,
    sessions,
    settings,
    sites,
    states,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent.parent / "reference"
NOTE = "<!-- Written by scripts/reference from the code. Do not edit: change the code's docstrings. -->\n\n"
PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings.page,
    "profile.md": profile.page,
    "course.md": course.page,
    "commands.md": commands.page,
    "documents.md": documents.page,
    "findings.md": findings.page,
    "errors.md": errors.page,
    "states.md": states.page,
    "metrics.md": metrics.page,
    "sessions.md": sessions.page,
}


@cache
def rendered() -> dict[str, str]:
    """The text of each page, by file name, of the migration guide with its tables, the sites, the schema."""
    pages = {name: NOTE + page() for name, page in PAGES.items()}
    moved_in = {name: NOTE + text for name, text in sites.pages().items()}
    return {**pages, **moved_in, migration.NAME: migration.page(), course.NAME: course.schema()}
