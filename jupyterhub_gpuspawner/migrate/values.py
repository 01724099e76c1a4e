"""Values that the new hub does not take: each is left out and is a row of the list, and all others stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from traitlets import Unicode
from traitlets.config import Config

from jupyterhub_gpuspawner.batch.template import HOURS, MEMORY_UNIT
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.delegate import other_class
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.result import ConvertedProfile, Migration
from jupyterhub_gpuspawner.migrate.template import written
from jupyterhub_gpuspawner.profiles.parsing import parse_profile
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.profiles.schema import dotted, validated
from jupyterhub_gpuspawner.profiles.tuples import TYPED, typed_fields
from jupyterhub_gpuspawner.site.values import refused
from jupyterhub_gpuspawner.slurm.sbatch_options import option_lines, written_options

REQUESTS = frozenset({*(f"req_{name}" for name in TYPED), "req_gres"})
"""Settings that request something of Slurm."""


def valid_requests(migration: Migration, requests: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of one spawner, by names with ``req_``, without the requests that no field takes."""
    valid = dict(requests)
    options = valid.get("req_options")
    if isinstance(options, str):  # several lines are as they were in a script
        valid["req_options"] = "\n".join(option_lines(options))
    for name in sorted(REQUESTS & requests.keys()):
        fault = _fault(name, valid[name])
        if not fault:
            continue
        value = valid.pop(name)
        rest = _valid_options(str(value)) if name == "req_options" else ""
        if rest:
            valid[name] = rest
        migration.add("value_refused", f"{where}{name}", requests[name], rest or None, fault=fault)
    return valid


def with_units(requests: Mapping[str, Any], script: str) -> dict[str, Any]:
    """The requests, numbers alone with the unit that follows their variable in a template that is kept.

    Its script is the same, and pages show what the job has.
    """
    unit = MEMORY_UNIT.search(script)
    units = {"req_memory": unit[1] if unit else "", "req_runtime": ":00:00" if HOURS.search(script) else ""}
    numbers = {name: str(value) for name, value in requests.items() if str(value).isdecimal()}
    return {**requests, **{name: f"{value}{units[name]}" for name, value in numbers.items() if units.get(name)}}


def _fault(name: str, value: Any) -> str:
    """Why no field takes the value of a request; empty if one does."""
    try:
        fields = {field: value for field, value in typed_fields({name: value}).items() if value is not None}
        fields.pop("cluster", None)  # of several, the admin decides
        validated(Resources, fields, dotted)
        if name == "req_options":
            [*written_options(str(value))]
    except ConfigError as error:
        return error.fault.rstrip(".")
    except ValueError as error:
        return str(error)
    return ""


def _valid_options(text: str) -> str:
    """Those options of a text that a profile may pass on to sbatch."""
    try:
        options = [*written_options(text)]
    except ValueError:
        return ""
    words = [written(option.name, option.value) for option in options]
    return " ".join(word for word in words if not _fault("req_options", word))


def leave_out_refused(migration: Migration) -> None:
    """Leave out settings of a wrong type, and profiles of which even that does not make a valid one."""
    for name, value in migration.settings.items():
        if isinstance(value, int) and isinstance(GPUSlurmSpawner.class_traits().get(name), Unicode):
            migration.settings[name] = str(value)
    for error in refused(Config({"GPUSlurmSpawner": dict(migration.settings)}), GPUSlurmSpawner):
        name = error.where.rpartition(".")[2]
        was = migration.old.settings().get(name)
        migration.add("value_refused", was or error.where, migration.settings.pop(name), fault=error.fault.rstrip("."))
    slugs: set[str] = set()
    for converted in tuple(migration.profiles):
        _other_slug(migration, converted, slugs)
        try:
            profile = parse_profile(converted.document, dotted)
            if profile.spawner_class:
                other_class(profile.spawner_class, where="")
        except ConfigError as error:
            leave_out(migration, converted, error)


def _other_slug(migration: Migration, converted: ConvertedProfile, slugs: set[str]) -> None:
    """A slug that no other profile has, also for a name without a letter of ASCII's; and what the rows say of it."""
    first = name = str(converted.document.get("slug") or "profile")
    number = 1
    while name in slugs:
        number += 1
        name = f"{first}-{number}"
    slugs.add(name)
    converted.document["slug"] = name
    if name == first:
        return
    for at, row in enumerate(migration.differences):
        if row.where.partition(": ")[0] == converted.where and row.now == f"profile {first}":
            migration.differences[at] = replace(row, now=f"profile {name}")
    earlier = migration.profiles[: migration.profiles.index(converted)]
    if converted.old and any(profile.old and profile.old[0] == converted.old[0] for profile in earlier):
        migration.add("same_key", converted.where, converted.old[0], f"profile {name}")


def leave_out(migration: Migration, converted: ConvertedProfile, error: Exception) -> None:
    """Leave out a profile of which the new hub could start no server."""
    fault = " ".join(str(error).split()).rstrip(".")
    migration.profiles.remove(converted)
    moved = [
        row
        for row in migration.differences
        if row.code in ("moved", "template_kept") and row.where.partition(": ")[0] == converted.where
    ]
    for row in moved:
        migration.differences.remove(row)
    where = converted.where or f"profile {converted.slug}"
    migration.add("profile_refused", where, converted.document.get("display_name", converted.slug), fault=fault)
