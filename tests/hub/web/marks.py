"""The states that the pages' stylesheet has a mark for."""

from __future__ import annotations

import re

from jupyterhub_gpuspawner.hub.routes import STATIC

STATES = (STATIC / "components" / "state.css").read_text("utf-8")


def states_with(what: str) -> set[str]:
    """The classes whose rules set ``--gs-state``, a colour, or ``--gs-mark``, a shape."""
    rules: list[tuple[str, str]] = re.findall(r"^([^{}/&]+?) \{([^}]*)\}", STATES, re.MULTILINE)
    return {name for selector, body in rules if f"{what}: " in body for name in re.findall(r"\.((?!gs-)\w+)", selector)}
