"""Settings of batchspawner and wrapspawner that had no effect there and have one here, though nobody has changed them.

They are looked for under the names of these packages' classes, in classes of the site's and in its hooks: what stands
under this package's names is meant so.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dis import get_instructions
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.hub.spawner_bases import SlurmSpawner, Spawner
from jupyterhub_gpuspawner.hub.spawners.classes import (
    class_named,
    classes_beside,
    instance_of,
    of_a_profile,
    set_by,
    submits_to_slurm,
    values_beside,
)
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.configured import configured_value

CODE = Code("setting-effective", "A setting of batchspawner or wrapspawner had no effect there and has one here.")
_SECTIONS = ("SlurmSpawner", "UserEnvMixin", "BatchSpawnerRegexStates", "BatchSpawnerBase")
_WRAPPERS = ("ProfilesSpawner", "WrapSpawner")
NOT_REQUESTED = ("req_account", "req_ngpus", "req_qos")
"""Requests for which batchspawner's own script has no line, and its command line may have a field."""
_FIELD = re.compile(r"\{(\w+)\}")
_OF_FORMS = ("options_form", "options_from_form")  # which the form replaces, as is said of them
_REPLACED = frozenset(Spawner.class_traits(config=True)) - {"ip", "port", *_OF_FORMS}
"""JupyterHub's settings, which a wrapper has itself, and hands on to the spawner that it wraps."""


def now_effective(context: Context) -> Iterator[Finding]:
    """Name each with the section in which it is meant."""
    config, spawner = context.site.config, context.spawner
    commanded = {
        f"req_{field}" for option in spawner.submit_command.arguments for field in _FIELD.findall(option.value)
    }
    profiles = tuple(_profiles(spawner)) if isinstance(spawner, GPUProfilesSpawner) else ()
    if not spawner.batch_script:
        for where, names in (*_of_class(spawner), *_of_hooks(config)):
            for name in sorted(names - commanded):
                yield _requests(
                    f"{where}{name}", f"Set c.GPUSlurmSpawner.{name}, or a hook there, if jobs shall have it"
                )
    for section in _SECTIONS:
        values = {name: configured_value(value) for name, value in config.get(section, {}).items()}
        if not spawner.batch_script:
            for name in sorted({*_requested(values)} - commanded):
                yield _requests(f"c.{section}.{name}", f"Write c.GPUSlurmSpawner.{name} if jobs shall have it")
        for name in sorted(_REPLACED & values.keys()) if profiles else ():
            if name not in config.get("Spawner", {}) or configured_value(config.Spawner[name]) != values[name]:
                yield CODE.warning(
                    f"c.{section}.{name}",
                    f"has an effect here: wrapspawner gave servers what c.Spawner.{name} says, or its default.",
                    f"Write c.GPUSlurmSpawner.{name} if it is meant so, or remove it.",
                )
    for name, traits in profiles:
        if not (spawner.batch_script or traits.get("batch_script")):
            for request in sorted({*_requested(traits)} - commanded):
                yield _requests(
                    f"profile {name}: {request}",
                    "Name the profiles c.GPUProfilesSpawner.profiles if jobs shall have it",
                )


def _requests(where: str, instead: str) -> Finding:
    text = "has an effect here: batchspawner's own script did not request it."
    return CODE.warning(where, text, f"{instead}, or remove it.")


def _requested(values: Mapping[str, Any]) -> Iterator[str]:
    return (name for name in NOT_REQUESTED if values.get(name))


def _of_class(spawner: GPUSlurmSpawner) -> Iterator[tuple[str, set[str]]]:
    """What a class of the site's requests of each job, as ``Class.``, unless the configuration does so, too."""
    ours = GPUProfilesSpawner if isinstance(spawner, GPUProfilesSpawner) else GPUSlurmSpawner
    for base in classes_beside(type(spawner), ours):
        names = set_by(base) - spawner.config.get("GPUSlurmSpawner", {}).keys()
        yield f"{base.__name__}.", {*_requested({name: getattr(spawner, name) for name in NOT_REQUESTED})} & names


def _of_hooks(config: Config) -> Iterator[tuple[str, set[str]]]:
    """What a function in the configuration sets of a spawner, unless the hub has profiles of this package's."""
    if not {"profiles", "profiles_dir"}.isdisjoint(config.get("GPUProfilesSpawner", {})):
        return
    for section in ("Spawner", *_SECTIONS, *_WRAPPERS):
        for setting, value in sorted(config.get(section, {}).items()):
            if inspect.isfunction(value):
                stored = {step.argval for step in get_instructions(value) if step.opname == "STORE_ATTR"}
                yield f"c.{section}.{setting}: ", stored.intersection(NOT_REQUESTED)


def _profiles(spawner: GPUProfilesSpawner) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """wrapspawner's profiles whose servers are jobs: their keys, and what they and their classes set."""
    config = spawner.config
    section = next((name for name in _WRAPPERS if "profiles" in config.get(name, {})), "")
    items = configured_value(config[section].profiles) if section else ()
    for item in items if isinstance(items, (list, tuple)) else ():
        if not (isinstance(item, (list, tuple)) and len(item) == 4 and isinstance(item[3], Mapping)):
            continue
        _, key, named, traits = item
        cls, values = class_named(named), dict[str, Any]()
        if submits_to_slurm(cls) and cls is not SlurmSpawner:
            plain, own = (instance_of(spawner, base, where=f"profile {key}") for base in (SlurmSpawner, cls))
            values = of_a_profile(values_beside(own, plain), cls)
        if submits_to_slurm(cls) or named == "batchspawner.SlurmSpawner":
            yield str(key), {**values, **traits}
