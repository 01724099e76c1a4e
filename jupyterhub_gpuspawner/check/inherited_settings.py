"""What batchspawner's and wrapspawner's settings do here, and which settings of a hub have no effect.

Our spawners are subclasses of theirs, so traitlets accepts all of their settings silently. Those that have no effect
are listed by ``gpuspawner check``, and logged when the hub starts. They stand in ``inherited_settings.yaml``, from
which the reference has its tables.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from jinja2 import TemplateError
from traitlets.config import Config, Configurable
from traitlets.config.loader import LazyConfigValue

from jupyterhub_gpuspawner.batch.template import names_in
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.slurm_settings import SlurmSettings
from jupyterhub_gpuspawner.hub.spawner_bases import BatchSpawnerBase, LocalProcessSpawner, SlurmSpawner, Spawner
from jupyterhub_gpuspawner.hub.spawners.classes import classes_beside, is_own, set_by, submits_to_slurm
from jupyterhub_gpuspawner.hub.spawners.delegate import other_class
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.site.values import subclasses


def is_old_launcher(command: object) -> bool:
    """Whether a command begins with batchspawner's program, which told its hub the port of a server."""
    first = str(command[0]) if isinstance(command, (list, tuple)) and command else ""
    return first.rpartition("/")[2] == "batchspawner-singleuser"


class Effect(Enum):
    """What a setting does here."""

    KEPT = "kept"
    TEMPLATE = "template"
    """It is a variable in an admin's own ``batch_script``, and has no effect without one that uses it."""
    NONE = "none"


@dataclass(frozen=True)
class InheritedSetting:
    """One row of the reference's table of them."""

    name: str
    now: str
    """What replaces it, as Markdown."""
    remark: str = ""
    """As Markdown."""
    effect: Effect = Effect.KEPT
    instead: str = ""
    """A sentence for an admin who has set it: what to do instead; empty for a setting that is kept."""


def _settings_of(package: str) -> tuple[InheritedSetting, ...]:
    return tuple(
        InheritedSetting(
            name, row["now"], row.get("remark", ""), Effect(row.get("effect", "kept")), row.get("instead", "")
        )
        for row in _TABLES[package]
        for name in row["names"]
    )


_TABLES: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
BATCHSPAWNER = _settings_of("batchspawner")
"""All settings of batchspawner's Slurm spawners."""
WRAPSPAWNER = _settings_of("wrapspawner")
"""All settings of wrapspawner's ProfilesSpawner."""
_BY_NAME = {setting.name: setting for setting in (*BATCHSPAWNER, *WRAPSPAWNER)}


_VARIABLES = {"partition": "partition", "cpus": "nprocs", "memory": "memory", "time": "runtime", "extra": "options"}
"""Fields of a profile's ``slurm`` whose variable an admin's own ``batch_script`` must name; others are added to it."""
_NAMED = frozenset(f"req_{variable}" for variable in (*_VARIABLES.values(), "prologue", "epilogue"))
"""The settings of the same kind."""


_FORMS = ("options_form", "options_from_form")
_OTHER_FORM = (
    "is of a form for all spawners, and profiles make the form here: what this one sends is refused, unless it is the "
    "slug of a profile and its options. To keep a form whose values a hook or batch_script reads, set "
    "c.JupyterHub.spawner_class = 'gpu-slurm'; a form that chooses profiles is c.GPUProfilesSpawner.options_form."
)


@dataclass(frozen=True)
class IgnoredSetting:
    """A setting in a hub's configuration that has no effect."""

    where: str
    """As the admin wrote it, such as ``c.SlurmSpawner.req_queue``."""
    text: str
    """Why, and what to do instead."""

    def __str__(self) -> str:
        return f"{self.where} {self.text}"


def ignored_by(spawner: GPUSlurmSpawner) -> tuple[IgnoredSetting, ...]:
    """Settings of this spawner's hub and of its profiles, and methods, that have no effect; raises ConfigError."""
    profiles: tuple[Profile, ...] = ()
    local: type[Spawner] = LocalProcessSpawner
    classes: Mapping[str, type] = {}
    if isinstance(spawner, GPUProfilesSpawner):
        local = spawner.local_spawner_class
        try:
            profiles = spawner.offered()
        except ConfigError:  # none yet: a folder may be filled later
            profiles = spawner.source.configured_profiles()
        classes = spawner.profile_classes
    ours = GPUProfilesSpawner if isinstance(spawner, GPUProfilesSpawner) else GPUSlurmSpawner
    of_class = [
        IgnoredSetting(f"{base.__name__}.{name}", text)
        for base in classes_beside(type(spawner), ours)
        for name in sorted(set_by(base) & _BY_NAME.keys())
        if (text := _no_effect(name, spawner.batch_script)) and not _is_unset(getattr(spawner, name, ""))
    ]
    methods = [*unused_methods(type(spawner), ours)]
    methods += [method for cls in classes.values() if submits_to_slurm(cls) for method in unused_methods(cls)]
    settings = ignored_settings(
        spawner.config,
        type(spawner),
        batch_script=spawner.batch_script,
        profiles=profiles,
        local=local,
        classes=classes,
    )
    return (*settings, *of_class, *(IgnoredSetting(method, _NEVER_CALLED) for method in dict.fromkeys(methods)))


_NEVER_CALLED = (
    "has no effect: no server calls this method of batchspawner's. Move what it does to a pre_spawn_hook, the "
    "batch_script or req_prologue."
)


def ignored_settings(
    config: Config,
    spawner_class: type[Spawner],
    *,
    batch_script: str = "",
    profiles: Iterable[Profile] = (),
    local: type[Spawner] = LocalProcessSpawner,
    classes: Mapping[str, type] = MappingProxyType({}),
) -> tuple[IgnoredSetting, ...]:
    """Return the settings of a hub with this spawner class that have no effect, each once.

    ``local`` is the class of servers on the hub's machine; ``classes`` are those that wrapspawner's tuples name, by
    their dotted names.
    """
    read: dict[str, type] = {}
    for cls in classes.values():
        for base in cls.__mro__:
            read.setdefault(base.__name__, cls)
    ignored = [
        IgnoredSetting(f"c.{section}.{name}", text)
        for section, values in sorted(config.items())
        if isinstance(values, dict)
        for name in sorted(values)
        if not _is_unset(values[name])
        if (text := _in_section(section, name, values, spawner_class, batch_script, read.get(section)))
    ]
    for profile in profiles:
        ignored += _unknown(profile, local, classes)
        if profile.kind == "slurm":
            ignored += _of_a_profile(profile, batch_script)
    return tuple(ignored)


def _in_section(
    section: str,
    name: str,
    values: Mapping[str, Any],
    spawner_class: type[Spawner],
    batch_script: str,
    of_profile: type | None,
) -> str:
    """Return why ``c.SECTION.NAME`` has no effect; empty if it has one, or is unknown to us."""
    if section in spawner_class.section_names():
        of_jobs = section in GPUSlurmSpawner.section_names()
        if of_jobs and name in _FORMS and issubclass(spawner_class, GPUProfilesSpawner):
            return _OTHER_FORM
        return _no_effect(name, batch_script)
    if of_profile is not None:
        return _not_of_a_profile(name, of_profile) if submits_to_slurm(of_profile) else ""
    return _not_read(name, spawner_class, batch_script) if _is_of_jobs(section, values) else ""


def _not_of_a_profile(name: str, cls: type) -> str:
    """Why a setting of a class that profiles name has no effect; its other settings are those of the profiles."""
    if name in SlurmSettings.class_traits() and name not in Spawner.class_traits():
        return ""  # said with the profile
    if is_own(name) and hasattr(cls, name):
        return ""
    if name in Spawner.class_traits():
        return f"has no effect, as with wrapspawner. Write c.GPUSlurmSpawner.{name}, or set it in the profiles."
    return f"has no effect: methods of {cls.__name__} are not called."


def _is_of_jobs(section: str, values: Mapping[str, Any]) -> bool:
    """Whether a section that this hub does not read is that of a class whose servers are batch jobs."""
    classes = [cls for cls in subclasses(Configurable) if cls.__name__ == section]
    if classes:
        return any(issubclass(cls, BatchSpawnerBase) for cls in classes)
    own = BatchSpawnerBase.class_traits(config=True).keys() - Spawner.class_traits().keys() - {"ip", "start_timeout"}
    return section.endswith("SlurmSpawner") or any(name in own or is_own(name) for name in values)


def _is_unset(value: object) -> bool:
    """Whether a value is empty, which has no effect in any case, such as ``req_srun = ""``."""
    if isinstance(value, LazyConfigValue):
        return False
    return value in ("", None) or value == {}


def _no_effect(name: str, batch_script: str) -> str:
    """Return why a setting of a Slurm server has no effect; empty if it has one."""
    setting = _BY_NAME.get(name)
    if setting is None or setting.effect is Effect.KEPT:
        unused = bool(batch_script) and name in _NAMED and not _names(batch_script, name)
        return f"{_unnamed(name)}." if unused else ""
    if setting.effect is Effect.TEMPLATE and batch_script:
        if _names(batch_script, name):
            return ""
        return f"{_unnamed(name)}. {setting.instead}"
    without = " without a batch_script that names it" if setting.effect is Effect.TEMPLATE else ""
    return f"has no effect{without}. {setting.instead}"


def _unnamed(name: str) -> str:
    return f"has no effect: batch_script does not name {{{name.removeprefix('req_')}}}"


def _names(template: str, name: str) -> bool:
    """Whether a template uses the variable of a setting; True for one that is not valid, which is said elsewhere."""
    variable = name.removeprefix("req_")
    variables = (variable, "keepvars") if variable == "keepvars_extra" else (variable,)
    try:
        return not names_in(template).isdisjoint(variables)
    except (TemplateError, ValueError):
        return True


def _not_read(name: str, spawner_class: type[Spawner], batch_script: str) -> str:
    """Return why a Slurm server's setting has no effect under a class that no server of the hub has."""
    is_setting = name in spawner_class.class_trait_names(config=True) or name in _BY_NAME
    instead = f" Write c.GPUSlurmSpawner.{name}." if is_setting else ""
    if is_own(name):
        instead = f" Write c.GPUSlurmSpawner.template_variables = {{{name.removeprefix('req_')!r}: ...}}."
    without = _no_effect(name, batch_script) if is_setting else ""
    return without or f"has no effect: no Slurm server reads this class.{instead}"


def _unknown(profile: Profile, local: type[Spawner], classes: Mapping[str, type]) -> Iterator[IgnoredSetting]:
    """Traits that the class of a profile's spawner does not have, which it drops."""
    spawner_class = local if profile.kind == "local" else GPUSlurmSpawner
    if profile.kind == "other":
        try:
            named = profile.spawner_class or ""
            spawner_class = other_class(classes.get(named, named), where="")
        except ConfigError:  # with which the hub does not start
            return
    for name in sorted(set(profile.traits) - set(spawner_class.class_traits())):
        text = f"has no effect: {spawner_class.__name__} has no such setting."
        yield IgnoredSetting(f"profile {profile.slug}: traits.{name}", text)


def _of_a_profile(profile: Profile, batch_script: str) -> Iterator[IgnoredSetting]:
    traits: Mapping[str, Any] = profile.traits
    script = traits.get("batch_script", batch_script)
    for name, value in sorted(traits.items()):
        text = "" if _is_unset(value) else _no_effect(name, str(script))
        if text:
            yield IgnoredSetting(f"profile {profile.slug}: traits.{name}", text)
    for field in sorted(_requested(profile)) if script else ():
        text = ""
        if field == "exclusive" and not re.search(r"^#SBATCH .*--exclusive\b", str(script), re.MULTILINE):
            text = "has no effect: batch_script does not contain --exclusive"
        elif field in _VARIABLES and not _names(str(script), _VARIABLES[field]):
            text = _unnamed(_VARIABLES[field])
        if text:
            yield IgnoredSetting(f"profile {profile.slug}: slurm.{field}", f"{text}.")


def _requested(profile: Profile) -> set[str]:
    """The fields of ``slurm`` that the profile or one of its options sets."""
    fields = {name for name in profile.slurm.model_fields_set if getattr(profile.slurm, name)}
    for option in profile.profile_options.values():
        parts = (part.sets for part in (option.range, option.free_text) if part is not None)
        fields.update(name.removeprefix("slurm.") for name in parts)
        for choice in option.choices.values():
            fields.update(choice.slurm.model_fields_set)
    return fields


_BATCHSPAWNERS_CLASSES = SlurmSpawner.__mro__[: SlurmSpawner.__mro__.index(Spawner)]
"""The most specific first."""


def unused_methods(cls: type, ours: type | None = None) -> Iterator[str]:
    """The methods of a site's class, as ``Class.method``, that no server calls.

    Of a class that replaces ``ours``, they are in the place of a method of batchspawner's that ours never calls; of one
    that is replaced itself, in the place of any method of a spawner.
    """
    for base in classes_beside(cls, ours or SlurmSpawner):
        for name, value in vars(base).items():
            if inspect.isroutine(value) and not re.search("^__|_default$", name) and hasattr(SlurmSpawner, name):
                there = next((other for other in (ours or SlurmSpawner).__mro__ if name in vars(other)), None)
                if ours is None or there in _BATCHSPAWNERS_CLASSES:
                    yield f"{base.__name__}.{name}"
