"""Converts moss's form into profiles, one for each partition, whose options are the form's fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.forms import KNOWN, choice_option, number_option, text_option
from jupyterhub_gpuspawner.migrate.result import ConvertedProfile, Migration
from jupyterhub_gpuspawner.migrate.template import BatchTemplate, old_options, sbatch_options
from jupyterhub_gpuspawner.profiles.profile import SLUG
from jupyterhub_gpuspawner.profiles.tuples import slug_of

_MOSS = KNOWN["moss"]


def convert_moss(migration: Migration) -> tuple[str, ...]:
    """Add the profiles; returns the names of the settings that were read. Raises ConfigError."""
    settings = migration.old.settings()
    partitions = settings.get("partitions")
    if partitions is None or not isinstance(partitions.value, dict):
        raise ConfigError("moss needs a table of partitions.", where="c.MOSlurmSpawner.partitions")
    for name, code in _MOSS["dropped"].items():
        if name in settings:
            migration.add(code, settings[name], settings[name].value)
    runtime = "apptainer"
    singularity = settings.get("singularity_cmd")
    if singularity is not None:
        runtime = "singularity" if "singularity" in str(singularity.value[:1]) else "apptainer"
        migration.add("moss_container", singularity, singularity.value, runtime=runtime)
    for name, fields in partitions.value.items():
        _convert_partition(migration, str(partitions), name, fields, runtime)
    if not any(fields.get("simple", True) for fields in partitions.value.values()):
        migration.add("moss_no_simple", partitions)
    for field in _MOSS["not_offered"]:
        migration.add(f"moss_form_{field}", f"moss's form: {field}")
    return ("partitions", "singularity_cmd", *_MOSS["dropped"])


def _convert_partition(migration: Migration, setting: str, name: str, fields: Mapping[str, Any], runtime: str) -> None:
    slug = name if re.fullmatch(SLUG, name, re.ASCII) else slug_of(name)
    where, title = f"{setting}[{name!r}]", fields.get("description") or name
    options: dict[str, Any] = {}
    most = fields.get("max_nprocs")
    if most:
        options["cpus"] = number_option("CPUs", "cpus", 1, most, default=1)
    else:
        options["cpus"] = text_option("CPUs", "cpus", "1", {"cpus": 1})
        migration.add("moss_unbounded", f"{setting}: max_nprocs", profile=slug)
    slurm: dict[str, Any] = {"partition": name}
    gpu_type = _gpus_of_partition(migration, setting, slug, fields, options)
    if gpu_type:
        slurm |= {"gpus": 0, "gpu_type": gpu_type}
    options["memory"] = text_option("Memory", "memory", "The partition's default")
    limit = fields.get("max_runtime")
    if limit:
        unit, seconds = ("hours", 3600) if limit >= 3600 else ("minutes", 60)
        options["time"] = number_option(unit.title(), "time", 1, limit // seconds, default=1, unit=unit)
        if limit % seconds:
            migration.add("moss_full_hours", f"{where}: max_runtime", f"{limit} s", f"{limit // seconds} {unit}")
    else:
        options["time"] = text_option("Time", "time", "1 hour", {"time": "1:00:00"})
        migration.add("moss_unbounded", f"{setting}: max_runtime", profile=slug)
    environments = {
        key: _environment(migration, f"{where}: {key}", environment, runtime)
        for key, environment in fields.get("jupyter_environments", {}).items()
    }
    if environments:
        options["environment"] = choice_option("Environment", environments, next(iter(environments)))
    options["interface"] = choice_option("Interface", _MOSS["interfaces"], "lab")
    options["reservation"] = text_option("Reservation", "reservation", "None")
    document: dict[str, Any] = {"display_name": title, "slug": slug}
    if fields.get("architecture"):
        document["description"] = f"Architecture: {fields['architecture']}."
    document |= {"slurm": slurm, "profile_options": options}
    migration.profiles.append(ConvertedProfile(document, _options_of_moss(migration.template, name)))
    migration.moved(where, title, f"profile {slug}")
    if not fields.get("simple", True):
        migration.add("moss_simple", f"{setting}: simple", profile=slug)
    if most:
        migration.add("moss_exclusive", f"{setting}: --exclusive", profile=slug, most=most)


def _gpus_of_partition(
    migration: Migration, setting: str, slug: str, fields: Mapping[str, Any], options: dict[str, Any]
) -> str:
    """Add the option for GPUs; returns their type, empty without one."""
    gres, most = fields.get("gpu"), fields.get("max_ngpus")
    if gres == "" or most == 0:
        return ""
    match = re.fullmatch(r"gpu(?::([\w.+-]+))?:\{\}", gres or "")
    if gres and match is None:
        migration.add("moss_gpu_type", f"{setting}: gpu", gres, profile=slug)
    if most:
        options["gpus"] = number_option("GPUs", "gpus", 0, most, default=0)
    else:
        migration.add("moss_unbounded", f"{setting}: max_ngpus", profile=slug)
        options["gpus"] = text_option("GPUs", "gpus", "None", {"gpus": 0})
    return (match[1] or "") if match else ""


def _environment(migration: Migration, where: str, fields: Mapping[str, Any], runtime: str) -> dict[str, Any]:
    """One of moss's environments as a choice."""
    environment: dict[str, Any] = {}
    choice: dict[str, Any] = {"display_name": fields.get("description", "")}
    setup = [line for line in fields.get("prologue", "").strip().split("\n") if line]
    modules = fields.get("modules", "").split()
    path = fields.get("path", "").rstrip("/")
    if modules:
        environment["modules"] = modules
        if setup:
            migration.add("moss_prologue", f"{where}: prologue")
    if path.endswith(".sif"):
        environment["container"] = {"image": path, "runtime": runtime}
    elif path:
        choice["command"] = [f"{path}/jupyterhub-singleuser"]
        if fields.get("add_to_path", True):
            setup.append(f'export PATH="{path}:$PATH"')
    if setup:
        environment["setup"] = setup
    return {**choice, "environment": environment} if environment else choice


def _options_of_moss(template: BatchTemplate, partition: str) -> dict[str, str] | None:
    if not template.own:
        return sbatch_options(_MOSS["script"].format(partition=partition))
    chosen = {"partition": partition, "nprocs": "1", "runtime": "1:00:00", "output": "/dev/null", "prologue": ""}
    return old_options(template, chosen)
