"""The configurations of sites, and what becomes of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from jupyterhub_gpuspawner.migrate.migration import Migration, migrate
from jupyterhub_gpuspawner.migrate.result_files import write

SITES = Path(__file__).parents[1] / "data" / "sites"
NAMES = sorted(path.name for path in SITES.iterdir())


@dataclass(frozen=True)
class Migrated:
    """A site's hub, before and after."""

    old: Path
    folder: Path
    migration: Migration


@pytest.fixture(params=NAMES)
def migrated(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Migrated:
    """Each site, migrated; when the result is loaded, a module of a site's own is there, as on its hub."""
    old = SITES / request.param / "jupyterhub_config.py"
    migration = migrate(old)
    write(migration, tmp_path, source=old, force=False)
    identity = ModuleType("siteidentity")
    identity.SiteAuthenticator = "dummy"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "siteidentity", identity)
    return Migrated(old, tmp_path, migration)
