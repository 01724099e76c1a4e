"""The settings that each spawner adds or overrides."""

from __future__ import annotations

import inspect
import json
from typing import Any

from traitlets import Enum, TraitType
from traitlets.config import Configurable
from traitlets.traitlets import DefaultHandler

from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.tuples import TYPED
from jupyterhub_gpuspawner.site.configured import settings_classes

from .wording import cell, choice, code, markdown, table

CONFIGURED: tuple[type[Configurable], ...] = (
    GPUProfilesSpawner,
    GPUSlurmSpawner,
    *settings_classes(),
)


def page() -> str:
    """The page of settings: a table for each class that is configured, and the site's defaults."""
    parts = [
        "# Settings\n",
        "The settings that each spawner adds to its base class or overrides. In `jupyterhub_config.py` they are set as "
        "`c.CLASS.NAME = VALUE`. In `c.JupyterHub.spawner_class`, `gpu-profiles` stands for `GPUProfilesSpawner`, and "
        "`gpu-slurm` for `GPUSlurmSpawner`, which starts servers without profiles.\n",
        "Settings of JupyterHub's `Spawner` (`start_timeout`, `cmd`, `default_url`, ...) keep their meaning. For "
        "those of batchspawner see [Move from batchspawner](../howto/migrate-from-batchspawner.md).\n",
    ]
    for cls in CONFIGURED:
        base = next(ancestor for ancestor in cls.__mro__ if not ancestor.__module__.startswith("jupyterhub_gpuspawner"))
        traits = {n: trait for n, trait in cls.class_traits(config=True).items() if getattr(base, n, None) is not trait}
        rows = [
            (
                code(name),
                _trait_type(trait),
                _trait_default(cls, name, trait),
                markdown(trait.help),
            )
            for name, trait in sorted(traits.items())
        ]
        parts += [
            f"## {cls.__name__}\n",
            f"{markdown(cls.__doc__)}\n",
            f"Base class: `{base.__module__.partition('.')[0]}.{base.__name__}`.\n",
            table(("Setting", "Type", "Default", "Meaning"), rows),
        ]
    typed = [(code(f"req_{old}"), f"[`{new}`](profile.md#resources)") for old, new in TYPED.items()]
    typed.append((code("req_gres"), "[`gpus`, `gpu_type` or `shards`](profile.md#resources)"))
    parts += [
        "## The site's defaults\n",
        "batchspawner's settings (`c.GPUSlurmSpawner.req_...`) apply to Slurm profiles that leave the field out, and "
        "to hubs without profiles. `null` in a profile removes a default. `gpus`, `gpu_type` and `shards` belong "
        "together: a profile that sets one of them replaces all of the site's defaults for GPUs.\n",
        table(("Setting", "Profile field"), typed),
    ]
    return "\n".join(parts)


def _trait_type(trait: TraitType[Any, Any]) -> str:
    if isinstance(trait, Enum):
        return choice(trait.values or ())
    if bounds := getattr(trait, "bounds", ""):
        base = next(ancestor for ancestor in type(trait).__mro__ if ancestor.__module__.startswith("traitlets"))
        return f"{base.__name__}, {bounds}"
    return type(trait).__name__


def _trait_default(cls: type, name: str, trait: TraitType[Any, Any]) -> str:
    """The default; a computed one is described, so that the page is the same on every machine."""
    handlers = [
        value
        for base in cls.__mro__
        for value in vars(base).values()
        if isinstance(value, DefaultHandler) and value.trait_name == name
    ]
    if handlers:
        return cell(markdown(inspect.getdoc(handlers[0].func)) or "computed at startup")
    value = trait.default()
    if isinstance(value, type):
        return code(value.__name__)
    return code(json.dumps(value, default=str))
