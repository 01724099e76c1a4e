"""The hub that the result makes, and the options of sbatch in which its jobs differ from those of the old one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.errors import GPUSpawnerError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.classes import new_class
from jupyterhub_gpuspawner.migrate.result import Migration, difference, rows
from jupyterhub_gpuspawner.migrate.template import sbatch_options, spelled
from jupyterhub_gpuspawner.migrate.values import leave_out
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site
from jupyterhub_gpuspawner.slurm.sbatch_options import FLAGS

_ADDED = frozenset(["chdir", "comment", "export", "job-name", "nodes", "no-requeue", "output", "gres-flags"])
"""Options that this package adds."""


def compare_options(migration: Migration) -> None:
    """The options of sbatch in which the jobs differ, one difference for all profiles that share it.

    What the new hub could not make a script of is left out.
    """
    site = site_of_result(migration)
    jobs = []
    for profile in migration.jobs:
        if profile is migration.plain and profile.old_options is None:
            continue  # its template needs a choice
        try:
            now = _options(site, profile.slug)
        except GPUSpawnerError as error:
            if migration.settings.get("batch_script") and not profile.document.get("traits", {}).get("batch_script"):
                setting = migration.old.settings()["batch_script"]
                fault = " ".join(str(error).split()).rstrip(".")
                kept = ("template_kept", str(setting))
                migration.differences[:] = [row for row in migration.differences if (row.code, row.where) != kept]
                migration.add("template_refused", setting, migration.settings.pop("batch_script"), fault=fault)
                return compare_options(migration)
            if profile is migration.plain:
                migration.plain = None
                migration.add("job_refused", "c.GPUSlurmSpawner", fault=" ".join(str(error).split()).rstrip("."))
            else:
                leave_out(migration, profile, error)
        else:
            if profile.old_options is not None:
                jobs.append((profile.slug, profile.old_options, now))
    slugs: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for slug, was, now in jobs:
        for name in sorted({*was, *now}):
            if was.get(name) != now.get(name):
                old, new = spelled(name, was.get(name)), spelled(name, now.get(name))
                slugs[name, old, new, _code_of_option(name, was)].append(slug)
    for (name, old, new, code), some in slugs.items():
        profiles = tuple(some) if len(some) < len(jobs) else ()
        migration.differences.append(difference(code, f"--{name}", old, new, profiles, option=f"--{name}"))
    return None


def site_of_result(migration: Migration) -> Site:
    """The hub that the result makes, with what stays in the file: the command of all servers, forms and hooks."""
    old = migration.old
    of_all = old.section("Spawner")
    sections: dict[str, dict[str, Any]] = {
        "Spawner": {name: of_all[name] for name in ("args", "cmd") if name in of_all},
        "GPUSlurmSpawner": {"hub_name": "hub", **migration.settings},
        "GPUProfilesSpawner": {"profiles": [profile.document for profile in migration.profiles]},
    }
    if not old.own_form:
        return Site(Config(sections), GPUProfilesSpawner)
    for where in migration.stays:
        _, section, name = where.split(".", 2)
        sections.setdefault(section, {})[name] = old.section(section)[name]
    site_class = new_class(migration.site_class) if migration.site_class is not None else GPUSlurmSpawner
    return Site(Config(sections), site_class)


def _code_of_option(name: str, was: Mapping[str, str]) -> str:
    """Why the script of this package differs from one with these options in the option ``name``."""
    if name == "gres" and not {"gpus", "gpus-per-node"}.isdisjoint(was):
        return "--gpus"
    if name not in was:
        return f"--{name}" if name in _ADDED else "option_not_passed_on"
    if not was[name] and name not in FLAGS:
        return "option_without_value"
    return f"--{name}" if f"--{name}" in rows() else "option_of_profile"


def new_spawner(site: Site, slug: str, user: str) -> Any:
    """A spawner of the new hub, for the default choice of a profile, or the only job; raises GPUSpawnerError."""
    spawner = site.spawner(user)
    if issubclass(site.spawner_class, GPUProfilesSpawner):
        spawner.prepare(spawner.resolve({"profile": slug}))
    return spawner


def _options(site: Site, slug: str) -> dict[str, str]:
    """sbatch's options for the default choice of a profile: in its script, and of the command itself.

    Raises GPUSpawnerError where there is no script.
    """
    spawner = new_spawner(site, slug, SOMEBODY.name)
    options = sbatch_options(str(spawner.batch_job(SOMEBODY).script))
    return {**options, "clusters": spawner.req_cluster} if spawner.req_cluster else options
