"""What spawner classes of a site's own set, asked of objects of them as the old hub would have made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.hub.spawner_bases import SlurmSpawner
from jupyterhub_gpuspawner.hub.spawners.classes import (
    class_named,
    classes_beside,
    set_by,
    submits_to_slurm,
    values_beside,
)
from jupyterhub_gpuspawner.site.configuration import NamedHub, NamedUser

_USERS = ("somebody", "anybody")
"""Two, since a value that is not the same for both cannot be written down."""


@dataclass(frozen=True)
class ClassValues:
    """The values of a class, with those of its sections, that batchspawner's own class does not have."""

    values: Mapping[str, Any] = field(default_factory=dict)
    of_each_user: tuple[str, ...] = ()
    """Settings that depend on the user."""
    plain: frozenset[str] = frozenset()
    """Requests that are no traits, which batchspawner did not pass to the template."""
    fault: str = ""
    """Why no object of the class can be made here."""


def values_of(cls: type, config: Config) -> ClassValues:
    """Ask a class; a site's class may do anything when it is made."""
    try:
        first, second = (
            values_beside(*(base(config=config, user=NamedUser(user), hub=NamedHub()) for base in (cls, SlurmSpawner)))
            for user in _USERS
        )
    except Exception as error:  # noqa: BLE001 - see above
        return ClassValues(fault=f"{type(error).__name__}: {error}")
    same = {name: value for name, value in first.items() if name in second and second[name] == value}
    traits = cls.class_trait_names()  # type: ignore[attr-defined]
    plain = frozenset(name for name in same if name.startswith("req_") and name not in traits)
    return ClassValues(same, tuple(sorted({*first, *second} - same.keys())), plain)


def setting_of(cls: type, name: str, config: Config) -> str:
    """A value of a class as the admin wrote it: in a section of the configuration, or in the class."""
    bases = classes_beside(cls, SlurmSpawner)
    if name in cls.class_trait_names():  # type: ignore[attr-defined]
        sections = (base.__name__ for base in bases if name in config.get(base.__name__, {}))
        if section := next(sections, ""):
            return f"c.{section}.{name}"
    return f"{definer(cls, name)}.{name}"


def definer(cls: type, name: str) -> str:
    """The name of the class that sets a value, as far as that can be seen."""
    return next((base.__name__ for base in classes_beside(cls, SlurmSpawner) if name in set_by(base)), cls.__name__)


def profile_classes(config: Config) -> Iterator[tuple[str, type]]:
    """The key and the class of each of wrapspawner's profiles whose class is one for Slurm of the site's own."""
    for section in config.values():
        profiles = section.get("profiles", ()) if isinstance(section, Config) else ()
        for item in profiles if isinstance(profiles, (list, tuple)) else ():
            if isinstance(item, (list, tuple)) and len(item) == 4 and isinstance(item[1], str):
                cls = class_named(item[2])
                if submits_to_slurm(cls) and classes_beside(cls, SlurmSpawner):
                    yield item[1], cls
