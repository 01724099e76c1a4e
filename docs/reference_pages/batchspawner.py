"""What becomes of each setting of batchspawner and wrapspawner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.inherited_settings import BATCHSPAWNER, WRAPSPAWNER

from .wording import code, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyterhub_gpuspawner.check.inherited_settings import InheritedSetting


def page() -> str:
    """A table for each of the two packages."""
    return "\n".join(
        [
            "# Settings of batchspawner and wrapspawner\n",
            "What becomes of each, for [a hub that moves](../howto/migrate-from-batchspawner.md). A setting that has "
            "no effect is reported once in the hub's log when the hub starts, and as a warning by `gpuspawner check`. "
            'So is a setting for Slurm servers under `c.ProfilesSpawner`, which profiles do not read. "In a template" '
            "means that the setting is a variable of your own `batch_script`, and has no effect without one.\n",
            _table("batchspawner", BATCHSPAWNER),
            _table("wrapspawner", WRAPSPAWNER),
        ]
    )


def _table(package: str, settings: Iterable[InheritedSetting]) -> str:
    """One table; adjacent settings with the same remark share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for setting in settings:
        rows.setdefault((setting.now, setting.remark or setting.name), []).append(code(setting.name))
    lines = [(", ".join(names), now, "" if f"`{remark}`" in names else remark) for (now, remark), names in rows.items()]
    return table((package, "now", "remarks"), lines)
