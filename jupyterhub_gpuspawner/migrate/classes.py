"""What spawner classes of a site's own set, asked of objects of them as the old hub would have made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from traitlets.config import Config
from wrapspawner import WrapSpawner

from jupyterhub_gpuspawner.hub.spawner_bases import SlurmSpawner
from jupyterhub_gpuspawner.hub.spawners.classes import (
    class_named,
    classes_beside,
    set_by,
    submits_to_slurm,
    values_beside,
)
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.configuration import NamedHub, NamedUser, Site
from jupyterhub_gpuspawner.site.configured import configured_value

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


def new_name(cls: type) -> str:
    """The name of a class that is derived from one of the site's own, and from this package's."""
    return f"New{cls.__name__}"


def new_class(cls: type) -> type[GPUSlurmSpawner]:
    """The site's own class with this package's in the place of batchspawner's."""
    return type(new_name(cls), (cls, GPUSlurmSpawner), {})


def is_derivable(cls: type) -> bool:
    """Whether there can be such a class, and an object of it; a site's class may do anything when it is made."""
    try:
        Site(Config(), new_class(cls)).spawner(_USERS[0])
    except Exception:  # noqa: BLE001 - see above
        return False
    return True


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


@dataclass(frozen=True)
class WrapperProfiles:
    """The profiles of wrapspawner's spawner."""

    where: str
    """The setting, or the attribute of a class of the site's own."""
    value: Any = ()
    of_each_user: bool = False
    """Another user has others."""

    @property
    def items(self) -> Sequence[Any]:
        """Each of them; a value that is no list is one that nobody could choose."""
        return self.value if isinstance(self.value, (list, tuple)) else [self.value]


def wrapper_profiles(cls: type | None, config: Config, sections: Sequence[str]) -> WrapperProfiles:
    """What an object of the hub's class has; ``sections`` are those that it reads, the most specific first.

    A class that is not known here, or of which no object can be made, has what its sections say.
    """
    section = next((name for name in sections if "profiles" in config.get(name, {})), "ProfilesSpawner")
    configured = configured_value(config.get(section, {}).get("profiles", ()))
    own = [] if cls is None else [base for base in classes_beside(cls, WrapSpawner) if "profiles" in set_by(base)]
    if cls is None or not own or own[0].__module__.startswith("wrapspawner"):
        return WrapperProfiles(f"c.{section}.profiles", configured)
    try:
        first, second = (cls(config=config, user=NamedUser(user), hub=NamedHub()).profiles for user in _USERS)
    except Exception:  # noqa: BLE001 - a site's class may do anything when it is made
        return WrapperProfiles(f"c.{section}.profiles", configured)
    where = f"c.{section}.profiles" if first == configured else f"{own[0].__name__}.profiles"
    return WrapperProfiles(where, first, of_each_user=bool(first != second))


def profile_classes(profiles: WrapperProfiles) -> Iterator[tuple[str, type]]:
    """The key and the class of each of wrapspawner's profiles whose class is one for Slurm of the site's own."""
    for item in profiles.items:
        if isinstance(item, (list, tuple)) and len(item) == 4 and isinstance(item[1], str):
            cls = class_named(item[2])
            if submits_to_slurm(cls) and classes_beside(cls, SlurmSpawner):
                yield item[1], cls
