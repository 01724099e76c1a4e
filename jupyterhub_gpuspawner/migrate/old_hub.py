"""Reads the configuration of a hub with one of the older spawners, by executing it as the hub does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.check.inherited_settings import unused_methods
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.slurm_settings import SlurmSettings
from jupyterhub_gpuspawner.hub.spawner_bases import SlurmSpawner, Spawner
from jupyterhub_gpuspawner.hub.spawners.classes import class_named, classes_beside, is_own, set_by, submits_to_slurm
from jupyterhub_gpuspawner.migrate.classes import (
    ClassValues,
    WrapperProfiles,
    definer,
    is_derivable,
    profile_classes,
    values_of,
    wrapper_profiles,
)
from jupyterhub_gpuspawner.site.configuration import read_config
from jupyterhub_gpuspawner.site.configured import configured_value

BATCH_SECTIONS = ("SlurmSpawner", "UserEnvMixin", "BatchSpawnerRegexStates", "BatchSpawnerBase")
"""batchspawner's classes, the most specific first."""
WRAPPER_SECTIONS = ("DockerProfilesSpawner", "ProfilesSpawner", "OptionsFormSpawner", "WrapSpawner")
FORM_SECTIONS = ("SbatchForm", "SlurmAPI")
"""SlurmFormSpawner's classes beside the spawner."""
OURS = ("GPUSlurmSpawner", "GPUProfilesSpawner")
OF_ALL_SERVERS = ("batch_submit_cmd", "exec_prefix")
"""How commands are run, which no profile has of its own."""
FORMS = ("options_form", "options_from_form")
HOOKS = ("apply_user_options", "auth_state_hook", "post_stop_hook", "pre_spawn_hook")
"""JupyterHub's settings with code of the site's that acts on a start, which have rows of their own."""
CODE = frozenset([*FORMS, *HOOKS, "get_options_form", *(f"run_{name}" for name in HOOKS)])
"""These, and the methods by which a class has them."""
_ALL = "Spawner"
"""The section of all spawners; batchspawner's classes read their own settings there, too."""
_OF_JOBS = SlurmSpawner.class_traits(config=True).keys() - Spawner.class_traits().keys()
PACKAGES = ("batchspawner", "jupyterhub", "jupyterhub_moss", "slurmformspawner", "traitlets", "wrapspawner")
_GENERAL = ("Spawner", "LoggingConfigurable", "Configurable", "HasTraits", "HasDescriptors", "object")


class System(Enum):
    """What the hub used."""

    BATCHSPAWNER = "batchspawner"
    WRAPSPAWNER = "wrapspawner"
    MOSS = "jupyterhub_moss"
    SLURMFORMSPAWNER = "slurmformspawner"


@dataclass(frozen=True)
class OldSetting:
    """A setting with a section of the older packages."""

    section: str
    name: str
    value: Any
    of_class: bool = False
    """The class itself sets it, and not its section."""

    def __str__(self) -> str:
        return f"{'' if self.of_class else 'c.'}{self.section}.{self.name}"


@dataclass(frozen=True)
class OldHub:
    """A configuration, executed."""

    config: Config
    system: System
    spawner: str
    """The spawner class, as its name."""
    sections: tuple[str, ...]
    """Of the Slurm spawner, the most specific class first."""
    spawner_class: type | None = None
    """The Slurm spawner's class in a hub of batchspawner's, where it is known here."""
    hub_class: type | None = None
    """The class of the hub's spawners, where it is known here."""

    @property
    def own_classes(self) -> tuple[type, ...]:
        """The site's own among the classes of the hub's spawners, the most specific first."""
        every = self.hub_class.__mro__ if self.hub_class is not None else ()
        return tuple(cls for cls in every if cls.__module__.partition(".")[0] not in PACKAGES)

    @cached_property
    def own_form(self) -> bool:
        """Whether a hub of batchspawner's alone has a form of the site's own, in its configuration or by its class."""
        if self.system is not System.BATCHSPAWNER:
            return False
        if self.is_set_by_class("get_options_form"):
            return True
        values = (self.section(name) for name in (*self.sections, _ALL))
        configured = next((values["options_form"] for values in values if "options_form" in values), None)
        return bool(configured) if configured is not None else self.is_set_by_class("options_form")

    def is_set_by_class(self, *names: str) -> bool:
        """Whether a class of the site's own sets one of these, as a value or a method."""
        return any(not set_by(cls).isdisjoint(names) for cls in self.own_classes)

    @cached_property
    def kept_class(self) -> type | None:
        """The site's own class from which that of a new hub with a form is derived, since it has more than values.

        None where its values say all, or where nothing can be derived from it.
        """
        cls = self.spawner_class
        if cls is None or not self.own_form:
            return None
        has_code = any(not CODE.isdisjoint((*set_by(own), *self.section(own.__name__))) for own in self.own_classes)
        has_more = has_code or any(unused_methods(cls)) or self.variables() or self.own.of_each_user
        return cls if has_more and is_derivable(cls) else None

    @property
    def wrapper_sections(self) -> tuple[str, ...]:
        """The sections that wrapspawner's class of the hub reads, the most specific first."""
        own = (cls.__name__ for cls in self.own_classes) if self.system is System.WRAPSPAWNER else ()
        return (*own, *WRAPPER_SECTIONS)

    @cached_property
    def profiles(self) -> WrapperProfiles:
        """wrapspawner's."""
        wraps = self.system is System.WRAPSPAWNER
        return wrapper_profiles(self.hub_class if wraps else None, self.config, self.wrapper_sections)

    @cached_property
    def classes(self) -> Mapping[str, type]:
        """Of wrapspawner's profiles, by their keys: the classes for Slurm that are the site's own."""
        return dict(profile_classes(self.profiles)) if self.system is System.WRAPSPAWNER else {}

    @cached_property
    def own(self) -> ClassValues:
        """What the class of all Slurm servers sets; of wrapspawner's classes, how commands are run if they agree."""
        if self.spawner_class is not None:
            return values_of(self.spawner_class, self.config)
        keys = {str(item[1]) for item in self.profiles.items if isinstance(item, (list, tuple)) and len(item) == 4}
        if not keys or keys != self.classes.keys():
            return ClassValues()
        first, *others = (self.of_profile(key).values for key in self.classes)
        shared = {name: first[name] for name in OF_ALL_SERVERS if name in first}
        return ClassValues({name: value for name, value in shared.items() if all(o.get(name) == value for o in others)})

    def of_profile(self, key: str) -> ClassValues:
        """What the class of one of wrapspawner's profiles sets."""
        return values_of(self.classes[key], self.config)

    def variables(self) -> frozenset[str]:
        """The variables of templates that the site's classes have beside batchspawner's and ours."""
        return frozenset(name for name in self.declared() if is_own(f"req_{name}"))

    def declared(self) -> frozenset[str]:
        """Every variable of templates that the site's classes set, also one that ours have, such as ``constraint``."""
        every = (self.own, *map(self.of_profile, self.classes))
        return frozenset(name.removeprefix("req_") for own in every for name in own.values if name.startswith("req_"))

    @property
    def old_sections(self) -> frozenset[str]:
        """All sections of the older packages in the configuration."""
        sections = {*self.sections, *BATCH_SECTIONS, *self.wrapper_sections, *FORM_SECTIONS, "MultiSlurmSpawner"}
        also = {name for name in self.config if name.endswith(("SlurmSpawner", "SlurmFormSpawner"))}
        sections |= {base.__name__ for cls in self.classes.values() for base in classes_beside(cls, SlurmSpawner)}
        return frozenset((sections | also) - set(OURS))

    def settings(self) -> dict[str, OldSetting]:
        """The Slurm spawner's settings by name: that of the most specific section, else what the class sets."""
        configured = {
            name: OldSetting(section, name, value)
            for section in (_ALL, *reversed(self.sections))
            for name, value in self.section(section).items()
            if section != _ALL or name in _OF_JOBS
        }
        cls = self.spawner_class or next(iter(self.classes.values()), SlurmSpawner)
        traits = cls.class_trait_names()  # type: ignore[attr-defined]
        own = {
            name: OldSetting(definer(cls, name), name, value, of_class=True)
            for name, value in self.own.values.items()
            if name not in configured or name not in traits
        }
        return configured | own

    def section(self, name: str) -> dict[str, Any]:
        """One section's values."""
        values = self.config.get(name, {})
        return {key: configured_value(value) for key, value in values.items()}

    def all_settings(self) -> list[OldSetting]:
        """Every setting of the old sections, also those that a more specific class overrides."""
        return [
            OldSetting(section, name, value)
            for section in sorted({_ALL, *self.old_sections})
            for name, value in sorted(self.section(section).items())
            if section != _ALL or name in _OF_JOBS
        ]

    def of_all_spawners(self) -> list[str]:
        """The settings of batchspawner's under the section of all spawners, where they still act."""
        return [f"c.{_ALL}.{name}" for name in sorted(self.section(_ALL)) if name in _OF_JOBS]


def read_old_hub(path: Path) -> OldHub:
    """Execute a configuration file; raises ConfigError if that fails, or if it is of no spawner that is known here."""
    config = read_config(path, missing="")
    named = config.JupyterHub.get("spawner_class", "")
    cls = spawner_class_named(named)
    if cls is None and not isinstance(named, str):
        raise ConfigError(f"{named!r} is not a spawner class.", where="c.JupyterHub.spawner_class")
    names = _names(cls) if cls is not None else (str(named).rpartition(".")[2],)
    every = wrapper_profiles(cls, config, (*names, *WRAPPER_SECTIONS))
    own = (classes_beside(of_profile, SlurmSpawner) for _, of_profile in profile_classes(every))
    read = {base.__name__ for bases in own for base in bases}
    system, sections = _system(cls, names, config, read)
    spawner_class = None
    if system is System.BATCHSPAWNER and submits_to_slurm(cls) and classes_beside(cls, SlurmSpawner):
        spawner_class = cls
    return OldHub(config, system, names[0], sections, spawner_class, cls)


def spawner_class_named(named: object) -> type | None:
    """A class, or that of a name as JupyterHub takes it; None for what is none, or cannot be imported here."""
    if isinstance(named, str) and named:
        entry_point = next(iter(entry_points(group="jupyterhub.spawners", name=named)), None)
        named = class_named(entry_point.value.replace(":", ".") if entry_point else named)
    return named if isinstance(named, type) else None


def _names(cls: type) -> tuple[str, ...]:
    """The names of a spawner class and of those that it is derived from."""
    return tuple(base.__name__ for base in cls.__mro__ if base.__name__ not in _GENERAL)


def _system(
    cls: type | None, names: tuple[str, ...], config: Config, of_profiles: Collection[str]
) -> tuple[System, tuple[str, ...]]:
    """What the hub used, and the sections that its Slurm spawner read; raises ConfigError.

    ``of_profiles``: sections that classes of profiles read.
    """
    own = tuple(name for name in config if name.endswith("SlurmSpawner") and name not in (*BATCH_SECTIONS, *OURS))
    own = tuple(name for name in own if name not in of_profiles)
    if issubclass(cls, SlurmSettings) if cls is not None else names[0] in OURS:
        raise ConfigError("this hub has a spawner of this package already.", where="c.JupyterHub.spawner_class")
    if "SlurmFormSpawner" in names:
        return System.SLURMFORMSPAWNER, names
    if "MOSlurmSpawner" in names:
        return System.MOSS, names
    if not set(names).isdisjoint(WRAPPER_SECTIONS):
        return System.WRAPSPAWNER, (*own, *BATCH_SECTIONS)
    if submits_to_slurm(cls) or "SlurmSpawner" in names:
        return System.BATCHSPAWNER, names
    if own or any(name in config for name in BATCH_SECTIONS):
        return System.BATCHSPAWNER, (*own, *BATCH_SECTIONS)
    raise ConfigError(
        f"{names[0] or 'LocalProcessSpawner'!r} is not a spawner that can be migrated.",
        where="c.JupyterHub.spawner_class",
        hint="It must be batchspawner's SlurmSpawner, wrapspawner's ProfilesSpawner, moss's MOSlurmSpawner or "
        "SlurmFormSpawner, or derived from one.",
    )
