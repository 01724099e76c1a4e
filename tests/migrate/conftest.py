"""The configurations of sites, and what becomes of them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.migrate.result import Migration, profiles_yaml, settings_text

ROOT = Path(__file__).parents[2]
SITES = Path(__file__).parents[1] / "data" / "sites"
SSH = f"""#!/bin/sh
# a stand-in for ssh to a login node on which config/wrappers are installed
[ "$1" != -G ] || exec printf 'batchmode yes\\ncontrolpath /run/jupyterhub/login\\nconnecttimeout 5\\n'
exec {sys.executable} -I {ROOT}/config/wrappers/query
"""
OF_THE_HUB = 'c.JupyterHub.authenticator_class = "dummy"\nc.JupyterHub.hub_ip = "0.0.0.0"\n'
NAMES = sorted(path.name for path in SITES.iterdir())


@dataclass(frozen=True)
class Migrated:
    """A site's hub, before and after."""

    old: Path
    folder: Path
    migration: Migration


def write_result(migration: Migration, folder: Path) -> None:
    """Write what the command prints as an admin would."""
    (folder / "jupyterhub_config.py").write_text(OF_THE_HUB + settings_text(migration))
    (folder / "profiles").mkdir()
    if text := profiles_yaml(migration.in_files):
        (folder / "profiles" / "profiles.yaml").write_text(text)


def put_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ssh that a hub finds."""
    folder.mkdir()
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def written_in_place(migration: Migration, old: Path, folder: Path) -> Path:
    """The old configuration with the result in place of what it set of the older spawners, as the result says."""
    write_result(migration, folder)
    replaced = sorted(migration.old.old_sections)
    of_all = [name.rpartition(".")[2] for name in migration.old.of_all_spawners()]
    config = folder / "jupyterhub_config.py"
    config.write_text(f"""{old.read_text("utf-8")}
for section in {replaced!r}:
    for name in [*c.get(section, ())]:
        if f"c.{{section}}.{{name}}" not in {migration.stays!r}:
            del c[section][name]
for name in {of_all!r}:
    c.Spawner.pop(name, None)
{settings_text(migration)}""")
    return config


def migrated_text(text: str, folder: Path) -> Migration:
    """The migration of a configuration, whose result is written to the folder."""
    old = folder / "old.py"
    old.write_text(text, encoding="utf-8")
    migration = migrate(old)
    write_result(migration, folder)
    return migration


@pytest.fixture(params=NAMES)
def migrated(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Migrated:
    """Each site, migrated, on a machine with a module of a site's own, as on its hub, and an ssh."""
    put_ssh(tmp_path / "bin", monkeypatch)
    identity = ModuleType("siteidentity")
    identity.SiteAuthenticator = "dummy"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "siteidentity", identity)
    old = SITES / request.param / "jupyterhub_config.py"
    migration = migrate(old)
    if migration.old.own_form:
        written_in_place(migration, old, tmp_path)
    else:
        write_result(migration, tmp_path)
    return Migrated(old, tmp_path, migration)
