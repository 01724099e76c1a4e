"""The tables of settings in the guide for moving from batchspawner and wrapspawner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.hub.spawners.inherited_settings import BATCHSPAWNER, WRAPSPAWNER

from .wording import code, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.hub.spawners.inherited_settings import InheritedSetting

NAME = "../howto/migrate-from-batchspawner.md"
"""The guide, relative to the folder of the reference."""
SOURCE = "jupyterhub_gpuspawner/hub/spawners/inherited_settings.py"
BEGIN = f"<!-- These tables are written by scripts/reference from {SOURCE}. -->\n"
END = "<!-- The end of what scripts/reference writes. -->\n"


def page() -> str:
    """The guide with its tables brought up to date."""
    text = (Path(__file__).parent.parent / "reference" / NAME).read_text("utf-8")
    return re.sub(
        f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n{tables()}\n{END}", text, flags=re.DOTALL
    )


def tables() -> str:
    """A table for each of the two packages."""
    return "\n".join(
        _table(name, rows) for name, rows in (("batchspawner", BATCHSPAWNER), ("wrapspawner", WRAPSPAWNER))
    )


def _table(package: str, settings: Iterable[InheritedSetting]) -> str:
    """One table; adjacent settings with the same remark share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for each in settings:
        rows.setdefault((each.now, each.remark or each.name), []).append(code(each.name))
    lines = [(", ".join(names), now, "" if f"`{remark}`" in names else remark) for (now, remark), names in rows.items()]
    return table((package, "now", "remarks"), lines)
