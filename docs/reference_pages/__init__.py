"""Generates ``docs/reference`` from the code: settings, profile fields, commands, documents, errors and so on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from . import (
    batchspawner,
    commands,
    course,
    documents,
    errors,
    extensions,
    findings,
    hub,
    metrics,
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
    "course.md": course.page,
    "commands.md": commands.page,
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
    course.NAME: course.schema,
}


@cache
def rendered() -> dict[str, str]:
    """The text of each page, and of the schema of courses, by file name."""
    return {name: page() for name, page in PAGES.items()}
