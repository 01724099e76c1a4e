"""Paths on the nodes that are made of settings: whether everything in them that looks like a variable is replaced."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

LITERAL = Code(
    "path-not-replaced",
    "log_dir or req_homedir contains a field that is not replaced, or a variable or ~, which no shell reads there.",
)
FIELDS = {"log_dir": ("{homedir}", "{username}"), "req_homedir": ("{username}",)}
"""What is replaced in each setting."""
_LIKE_A_VARIABLE = re.compile(r"\{\w*\}|\$\{?\w+\}?|^~\w*")


async def check_paths(context: Context) -> list[Finding]:
    """Look at the settings alone."""
    return [*_of_settings(context)]


def _of_settings(context: Context) -> Iterator[Finding]:
    site = context.slurm_site
    for name, fields in FIELDS.items():
        value = str(getattr(site, name))
        literal = [each for each in _LIKE_A_VARIABLE.findall(value) if each not in fields]
        if literal:
            yield LITERAL.error(
                site.configured_as(name),
                f"{literal[0]} in {value!r} is not replaced, so jobs would look for a folder that is called so.",
                f"Write {' or '.join(fields)}, or the path itself.",
            )
