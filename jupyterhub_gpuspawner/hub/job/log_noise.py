"""Leaves out the lines of a job's log that say nothing about how its server fares. Pure.

These are lines that every JupyterLab writes while it loads its extensions and when a browser first opens it, and runs
of blank lines. Errors and other programs' lines stay; a download of the log has all lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_JUPYTER = r"\[[ID] [\d-]{10} [\d:.]{8,15} \w+\] "
"""What Jupyter's applications write before messages of the levels INFO and DEBUG."""
_WARNING = r"\[W [\d-]{10} [\d:.]{8,15} \w+\] "
_NOISE = tuple(
    re.compile(pattern)
    for pattern in (
        _JUPYTER + r"\S+ \| extension was (successfully )?(linked|loaded|enabled)",
        _JUPYTER + r"(Extension package|Package) \S+ took [\d.]+s to import",
        _JUPYTER + r"(JupyterLab extension loaded from|JupyterLab application directory is|Extension Manager is) ",
        _JUPYTER + r"Skipped non-installed server\(s\): ",
        _JUPYTER + r"Writing Jupyter server cookie secret to ",
        _JUPYTER + r"Use Control-C to stop this server",
        _JUPYTER + r"Setting new xsrf cookie for ",
        _JUPYTER + r"200 GET \S*/api \(",
        _WARNING + r"A `_jupyter_server_extension_points` function was not found in ",
        _WARNING + r"'extra_template_paths' was found in both NotebookApp and ServerApp",
    )
)


def without_noise(lines: Sequence[str]) -> list[str]:
    """The lines without noise, and with at most one blank line in a row; all lines where there are only such lines."""
    shown_lines = [line for line in lines if not any(pattern.match(line) for pattern in _NOISE)]
    if not any(line.strip() for line in shown_lines):
        shown_lines = list(lines)
    shown_ = list(_single_blanks(shown_lines))
    while shown_ and not shown_[-1].strip():
        shown_.pop()
    return shown_


def _single_blanks(lines: Sequence[str]) -> Iterator[str]:
    blank = True  # none at the beginning
    for line in lines:
        if line.strip() or not blank:
            yield line
        blank = not line.strip()
