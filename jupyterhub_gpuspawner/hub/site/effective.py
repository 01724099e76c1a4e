"""The settings that a server has in effect: the site's, those of its groups, its cluster and its profile.

What is only shown or tried reads them as values (:class:`Effective`), and nothing is set for it. A server's own start
sets them on its spawner, where an admin's hooks and subclasses read and change them, for as long as the server is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from traitlets import HasTraits, TraitError

from jupyterhub_gpuspawner.errors import ConfigError

NOTHING: Mapping[str, Any] = MappingProxyType({})


class OwnSettings(HasTraits):
    """A spawner whose settings are the site's until a server's own start sets some of them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._before: dict[str, Any] = {}
        self._without_profile: dict[str, Any] = {}

    def of_site(self, name: str) -> Any:
        """The value of a setting for this server, whatever its profile sets."""
        return self._without_profile.get(name, getattr(self, name))

    def with_site(self, traits: Mapping[str, Any]) -> Mapping[str, Any]:
        """A profile's settings, with the site's variables beside its own."""
        variables = traits.get("environment")
        if not isinstance(variables, Mapping):
            return traits
        return {**traits, "environment": {**self.of_site("environment"), **variables}}

    def checked(self, settings: Mapping[str, Any], *, where: str) -> dict[str, Any]:
        """The same settings as their traits take them; raises ConfigError, which names ``where`` they stand."""
        try:
            return {name: self._as_set(name, copy.deepcopy(value)) for name, value in settings.items()}
        except TraitError as error:
            raise ConfigError(str(error), where=where) from error

    def _as_set(self, name: str, value: Any) -> Any:
        # traitlets has no public way to validate a value that is not assigned
        return self.traits()[name]._validate(self, value)  # noqa: SLF001

    def will_change(self, name: str) -> None:
        """Keep the value that a setting has before this server, unless that is known already."""
        value = getattr(self, name, None)
        self._before.setdefault(name, copy.deepcopy(value) if isinstance(value, dict) else value)

    def own(self, settings: Mapping[str, Any], *, where: str, of_profile: bool = False) -> None:
        """Set these, until :meth:`disown`; raises ConfigError, and then none of them is set."""
        for name, value in self.checked(settings, where=where).items():
            if of_profile:
                self._without_profile.setdefault(name, getattr(self, name))
            self.will_change(name)
            setattr(self, name, value)

    def disown(self) -> None:
        """The server is over: what its start has set is the site's again, for JupyterHub may keep the spawner."""
        for name, value in self._before.items():
            setattr(self, name, value)
        self._before.clear()
        self._without_profile.clear()


class Effective:
    """Settings of servers on one cluster, perhaps of one profile, by their names as attributes; they cannot be set."""

    __slots__ = ("_changed", "_spawner")

    def __init__(self, spawner: OwnSettings, changed: Mapping[str, Any] = NOTHING) -> None:
        """``changed`` are the cluster's and the profile's, as :meth:`OwnSettings.checked` returns them."""
        object.__setattr__(self, "_spawner", spawner)
        object.__setattr__(self, "_changed", changed)

    def __getattr__(self, name: str) -> Any:
        return self._changed[name] if name in self._changed else self._spawner.of_site(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: settings in effect are values")
