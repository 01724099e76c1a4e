"""Spawner classes of a site's own that are derived from batchspawner's, and what they set.

What a class is, is judged by what it is derived from, never by its name. Its values are asked of an object of it, with
the hub's configuration, since traitlets, ``@default`` methods and properties decide them there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from traitlets import DefaultHandler
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.slurm_settings import OF_THE_ACCOUNT, SlurmSettings
from jupyterhub_gpuspawner.hub.spawner_bases import BatchSpawnerBase, SlurmSpawner, Spawner
from jupyterhub_gpuspawner.hub.spawners.delegate import new_delegate

PLAIN = "batchspawner.SlurmSpawner"
"""batchspawner's class itself, which sets nothing that ours does not."""


def class_named(spawner_class: object) -> object:
    """The class of a dotted name; anything else, and what cannot be imported, as it is."""
    if not isinstance(spawner_class, str) or "." not in spawner_class:
        return spawner_class
    try:
        return import_item(spawner_class)
    except (ImportError, ValueError):
        return spawner_class


def submits_to_slurm(cls: object) -> TypeGuard[type[Spawner]]:
    """Whether the servers of a class are Slurm jobs: batchspawner's class for Slurm, or a base that runs sbatch."""
    if not isinstance(cls, type) or not issubclass(cls, BatchSpawnerBase):
        return False
    command = inspect.getattr_static(cls, "batch_submit_cmd", "")
    text = getattr(command, "default_value", command)
    return issubclass(cls, SlurmSpawner) or (isinstance(text, str) and "sbatch" in text)


def classes_beside(cls: type, shared: type) -> tuple[type, ...]:
    """The class and its bases whose sections and values are not those of ``shared`` as well."""
    return tuple(base for base in cls.__mro__ if base not in shared.__mro__)


def set_by(cls: type) -> frozenset[str]:
    """The names of what a class itself sets, also by methods for defaults."""
    return frozenset(
        value.trait_name if isinstance(value, DefaultHandler) else re.sub(r"^_(\w+)_default$", r"\1", name)
        for name, value in vars(cls).items()
    )


def values_beside(spawner: Spawner, plain: Spawner) -> dict[str, Any]:
    """What an object of a site's class has in other ways than one of batchspawner's with the same configuration.

    That is every ``req_*`` and every setting, also where a plain attribute or a property stands in a trait's place.
    """
    cls = type(spawner)
    names = {name for name in (*cls.class_trait_names(), *dir(cls)) if name.startswith("req_")}
    names |= {*SlurmSpawner.class_trait_names(config=True), *cls.class_trait_names(config=True)}
    names = {name for name in names if not inspect.isroutine(inspect.getattr_static(cls, name, None))}
    bases = classes_beside(cls, type(plain))
    own = {name for base in bases for name in (*spawner.config.get(base.__name__, ()), *set_by(base))}
    values = {name: _value(spawner, name) for name in sorted(names) if name not in OF_THE_ACCOUNT or name in own}
    return {
        name: value
        for name, value in values.items()
        if value is not _NONE and (name in _OF_A_HOME or value != _value(plain, name))
    }


def instance_of(spawner: Spawner, cls: type, *, where: str) -> Spawner:
    """An object of a class as the hub would make it for this spawner's user; raises ConfigError."""
    try:
        return new_delegate(spawner, cls, {}, where=where)
    except ConfigError:
        raise
    except Exception as error:  # whatever a site's class does when it is made
        raise ConfigError(f"{cls.__name__} cannot be made: {type(error).__name__}: {error}", where=where) from error


_OF_A_HOME = frozenset(OF_THE_ACCOUNT) - {"req_username"}
"""Settings whose default in batchspawner needs an account on this machine."""
_NONE = object()
"""In place of the value of what an object does not have, or cannot say outside of a hub."""


def _value(spawner: Spawner, name: str) -> Any:
    try:
        return getattr(spawner, name, _NONE)
    except Exception as error:  # noqa: BLE001 - a site's method may do anything
        spawner.log.warning("%s.%s cannot be read: %s: %s", type(spawner).__name__, name, type(error).__name__, error)
        return _NONE


def of_a_profile(values: Mapping[str, Any], cls: type) -> dict[str, Any]:
    """The values that wrapspawner left a class: those of JupyterHub's own settings were its wrapper's."""
    ours = SlurmSettings.class_traits()
    linked = Spawner.class_traits().keys() & cls.class_traits().keys()  # type: ignore[attr-defined]
    return {name: value for name, value in values.items() if name not in linked and (name in ours or is_own(name))}


def is_own(name: str) -> bool:
    """Whether a setting of a site's class is a variable of templates that batchspawner does not have."""
    return name.startswith("req_") and name not in SlurmSettings.class_traits()


def with_variables(traits: Mapping[str, Any], cls: type) -> dict[str, Any]:
    """The settings of a class, those that are variables of its own in ``template_variables``."""
    own = {name for name in traits if is_own(name) and hasattr(cls, name)}
    variables = {name.removeprefix("req_"): traits[name] for name in sorted(own)}
    rest = {name: value for name, value in traits.items() if name not in own}
    return {**rest, **({"template_variables": variables} if variables else {})}


def with_all_variables(items: Sequence[Any]) -> list[Any]:
    """wrapspawner's tuples, each with every class's own variables: templates of batchspawner's have those as empty."""
    name = "template_variables"
    empty = dict.fromkeys(variable for item in items if isinstance(item, tuple) for variable in item[-1].get(name, ()))
    return [
        (*item[:-1], {**item[-1], name: {**dict.fromkeys(empty, ""), **item[-1].get(name, {})}})
        if empty and isinstance(item, tuple) and item[2:3] == (PLAIN,)
        else item
        for item in items
    ]
