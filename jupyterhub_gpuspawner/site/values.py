"""The values that a configuration has for the traits of a class, and those that these refuse.

The classes are not instantiated: an authenticator or a proxy may do anything when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from traitlets import Bool, Float, Integer, List, Set, TraitError, TraitType, Unicode
from traitlets.config import Config, Configurable
from traitlets.config.loader import DeferredConfig, LazyConfigValue

from jupyterhub_gpuspawner.errors import ConfigError

_OBJECT = re.compile(r"<[\w.]*?(\w+) object at 0x[0-9a-f]+>( instance)?")
_SECRET = re.compile(r"secret|password|token|key", re.IGNORECASE)


@dataclass(frozen=True)
class ConfiguredValue:
    """A setting in the configuration, for the class that it applies to."""

    section: str
    trait: TraitType[Any, Any]
    value: Any

    @property
    def name(self) -> str:
        return str(self.trait.name)

    @property
    def where(self) -> str:
        """The setting as it is written in the configuration."""
        return f"c.{self.section}.{self.name}"


def subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    """All classes that are derived from one, each at least once."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def configured_values(config: Config, cls: type[Configurable]) -> Iterator[ConfiguredValue]:
    """The settings of a class in the configuration: each trait's from the class itself or its nearest base."""
    sections = {name: values for name, values in config.items() if isinstance(values, dict)}
    nearest = [name for name in reversed(cls.section_names()) if name in sections]
    for name, trait in sorted(cls.class_traits(config=True).items()):
        section = next((value for value in nearest if name in sections[value]), None)
        if section is not None:
            yield ConfiguredValue(section, trait, sections[section][name])


def refused(config: Config, cls: type[Configurable]) -> Iterator[ConfigError]:
    """An error for each setting with which an object of the class cannot be made, since its type is wrong."""
    try:
        blank = cls.__new__(cls)
    except TypeError:  # abstract, so the hub has no object of it either
        return
    for setting in configured_values(config, cls):
        validate = getattr(setting.trait, "validate", None)  # which Any does not have
        if validate is None or isinstance(setting.value, (LazyConfigValue, DeferredConfig)):
            continue
        # traitlets makes a list of a text that is given for a list (List.set)
        value = [setting.value] if isinstance(setting.trait, List) and isinstance(setting.value, str) else setting.value
        try:
            if value is not None or not setting.trait.allow_none:
                validate(blank, value)
        except (TraitError, TypeError) as error:  # JupyterHub's sizes raise TypeError
            if isinstance(error, TypeError) or _SECRET.search(setting.name):
                kind = type(setting.value).__name__
                text = f"the value must be {setting.trait.info()}, and is of type {kind}."
                yield ConfigError(text, where=setting.where)
            else:
                yield ConfigError(problem_of(error), where=setting.where, hint=_right(setting))


def refusal(config: Config, cls: type[Configurable], error: TraitError) -> ConfigError:
    """The error with which an object of the class was not made, at the setting if that can be told."""
    setting = next(refused(config, cls), None)
    return setting or ConfigError(problem_of(error), where="c.JupyterHub" if cls.__name__ == "JupyterHub" else "")


def problem_of(error: TraitError) -> str:
    """traitlets' sentence, with the names of classes in the place of objects."""
    return f"{_OBJECT.sub(_class, str(error)).rstrip('.')}."


def _class(match: re.Match[str]) -> str:
    return match[1]


def _right(setting: ConfiguredValue) -> str:
    """The line as it was probably meant; empty where that is not clear."""
    trait, value = setting.trait, setting.value
    if not isinstance(value, str):
        return (
            f"Write {setting.where} = '{value}'." if isinstance(trait, Unicode) and type(value) in (int, float) else ""
        )
    if isinstance(trait, Set):
        words = ", ".join(repr(word) for word in re.split(r"[\s,]+", value) if word)
        return f"Write {setting.where} = {{{words}}}." if words else ""
    if isinstance(trait, Bool):
        return "Write True or False, without quotes."
    number = r"[+-]?[0-9]+" if isinstance(trait, Integer) else r"[+-]?[0-9]+(\.[0-9]*)?"
    if isinstance(trait, (Integer, Float)) and re.fullmatch(number, value):
        return f"Write {setting.where} = {value}."
    return ""
