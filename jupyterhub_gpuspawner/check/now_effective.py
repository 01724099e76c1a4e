"""Settings of batchspawner and wrapspawner that had no effect there and have one here, though nobody has changed them.

They are looked for under the names of these packages' classes alone: what stands under this package's is meant so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.hub.site.configured import configured_value
from jupyterhub_gpuspawner.hub.spawner_bases import SlurmSpawner, Spawner
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner

CODE = Code("setting-effective", "A setting of batchspawner or wrapspawner had no effect there and has one here.")
_SECTIONS = ("SlurmSpawner", "UserEnvMixin", "BatchSpawnerRegexStates", "BatchSpawnerBase")
_WRAPPERS = ("ProfilesSpawner", "WrapSpawner")
_NOT_REQUESTED = ("req_account", "req_ngpus")
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
    profiles = _profiles(config) if isinstance(spawner, GPUProfilesSpawner) else ()
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
    return (name for name in _NOT_REQUESTED if values.get(name))


def _profiles(config: Config) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """wrapspawner's profiles whose class is batchspawner's, by their keys."""
    section = next((name for name in _WRAPPERS if "profiles" in config.get(name, {})), "")
    items = configured_value(config[section].profiles) if section else ()
    classes = ("batchspawner.SlurmSpawner", SlurmSpawner)
    return tuple(
        (str(item[1]), item[3])
        for item in (items if isinstance(items, (list, tuple)) else ())
        if isinstance(item, (list, tuple)) and len(item) == 4 and item[2] in classes and isinstance(item[3], Mapping)
    )
