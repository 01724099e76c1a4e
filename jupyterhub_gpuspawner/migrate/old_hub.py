"""Reads the configuration of a hub with one of the older spawners, by executing it as the hub does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from traitlets.config import Config
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.configured import configured_value
from jupyterhub_gpuspawner.site.configuration import read_config

BATCH_SECTIONS = ("SlurmSpawner", "UserEnvMixin", "BatchSpawnerRegexStates", "BatchSpawnerBase")
"""batchspawner's classes, the most specific first."""
WRAPPER_SECTIONS = ("DockerProfilesSpawner", "ProfilesSpawner", "OptionsFormSpawner", "WrapSpawner")
FORM_SECTIONS = ("SbatchForm", "SlurmAPI")
"""SlurmFormSpawner's classes beside the spawner."""
OURS = ("GPUSlurmSpawner", "GPUProfilesSpawner")
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

    def __str__(self) -> str:
        return f"c.{self.section}.{self.name}"


@dataclass(frozen=True)
class OldHub:
    """A configuration, executed."""

    config: Config
    system: System
    spawner: str
    """The spawner class, as its name."""
    sections: tuple[str, ...]
    """Of the Slurm spawner, the most specific class first."""

    @property
    def old_sections(self) -> frozenset[str]:
        """All sections of the older packages in the configuration."""
        sections = {*self.sections, *BATCH_SECTIONS, *WRAPPER_SECTIONS, *FORM_SECTIONS, "MultiSlurmSpawner"}
        also = {name for name in self.config if name.endswith(("SlurmSpawner", "SlurmFormSpawner"))}
        return frozenset((sections | also) - set(OURS))

    def settings(self) -> dict[str, OldSetting]:
        """The Slurm spawner's settings by name, that of the most specific class."""
        return {
            name: OldSetting(section, name, value)
            for section in reversed(self.sections)
            for name, value in self.section(section).items()
        }

    def section(self, name: str) -> dict[str, Any]:
        """One section's values."""
        values = self.config.get(name, {})
        return {key: configured_value(value) for key, value in values.items()}

    def all_settings(self) -> list[OldSetting]:
        """Every setting of the old sections, also those that a more specific class overrides."""
        return [
            OldSetting(section, name, value)
            for section in sorted(self.old_sections)
            for name, value in sorted(self.section(section).items())
        ]


def read_old_hub(path: Path) -> OldHub:
    """Execute a configuration file; raises ConfigError if that fails, or if it is of no spawner that is known here."""
    config = read_config(path, missing="")
    names = _class_names(config.JupyterHub.get("spawner_class", ""))
    system, sections = _system(names, config)
    return OldHub(config, system, names[0], sections)


def can_be_imported(dotted_name: str) -> bool:
    """Whether there is a class of this name here."""
    try:
        import_item(dotted_name)
    except ImportError:
        return False
    return True


def _class_names(named: object) -> tuple[str, ...]:
    """The names of a spawner class and of those that it is derived from; of an unknown one, its own name alone."""
    named_class = named
    if isinstance(named, str):
        entry_point = next(iter(entry_points(group="jupyterhub.spawners", name=named)), None)
        path = entry_point.value.replace(":", ".") if entry_point else named
        if "." not in path or not can_be_imported(path):
            return (named.rpartition(".")[2],)
        named_class = import_item(path)
    if not isinstance(named_class, type):
        raise ConfigError(f"{named!r} is not a spawner class.", where="c.JupyterHub.spawner_class")
    return tuple(base.__name__ for base in named_class.__mro__ if base.__name__ not in _GENERAL)


def _system(names: tuple[str, ...], config: Config) -> tuple[System, tuple[str, ...]]:
    """What the hub used, and the sections that its Slurm spawner read; raises ConfigError."""
    own = tuple(name for name in config if name.endswith("SlurmSpawner") and name not in (*BATCH_SECTIONS, *OURS))
    if any(name in OURS for name in names):
        raise ConfigError("this hub has a spawner of this package already.", where="c.JupyterHub.spawner_class")
    if "SlurmFormSpawner" in names:
        return System.SLURMFORMSPAWNER, names
    if "MOSlurmSpawner" in names:
        return System.MOSS, names
    if not set(names).isdisjoint(WRAPPER_SECTIONS):
        return System.WRAPSPAWNER, (*own, *BATCH_SECTIONS)
    if "SlurmSpawner" in names:
        return System.BATCHSPAWNER, names
    if own or any(name in config for name in BATCH_SECTIONS):
        return System.BATCHSPAWNER, (*own, *BATCH_SECTIONS)
    raise ConfigError(
        f"{names[0] or 'LocalProcessSpawner'!r} is not a spawner that can be migrated.",
        where="c.JupyterHub.spawner_class",
        hint="It must be batchspawner's SlurmSpawner, wrapspawner's ProfilesSpawner, moss's MOSlurmSpawner or "
        "SlurmFormSpawner, or derived from one.",
    )
