"""The child spawner, which starts a profile's server: its construction, and the settings it gets from its wrapper.

The wrapper is the spawner that JupyterHub knows.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from traitlets import TraitError
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.jupyterhub_compat import CONSTRUCTOR_ARGUMENTS
from jupyterhub_gpuspawner.hub.spawner_bases import Spawner

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

HANDED_DOWN = ("api_token", "admin_access", "cert_paths", "handler", "user_options")
"""Attributes that the hub sets for one start; copied to the child just before it."""

SETTINGS = (
    "args",
    "cmd",
    "cpu_guarantee",
    "cpu_limit",
    "debug",
    "default_url",
    "disable_user_config",
    "env_keep",
    "hub_connect_url",
    "mem_guarantee",
    "mem_limit",
    "notebook_dir",
    "oauth_client_allowed_scopes",
)
"""Settings that the child gets if they were set on the wrapper itself: by its configuration, a hook or a group."""

TIMES = ("start_timeout", "http_timeout", "poll_interval")
"""Times in seconds that the hub reads from the wrapper, while the profile or the child's configuration sets them."""

OF_THE_HUB = ("idle",)
"""Settings of Slurm servers that the hub reads for all servers of a profile."""

WATCHED = (*SETTINGS, *TIMES, "environment")


def configured_as(spawner: Spawner, name: str) -> str:
    """Return a setting as the admin wrote it, with the nearest class that has it: ``c.ProfilesSpawner.profiles``."""
    holders = (cls.__name__ for cls in type(spawner).__mro__ if name in spawner.config.get(cls.__name__, {}))
    return f"c.{next(holders, type(spawner).__name__)}.{name}"


def other_class(dotted_name: str, *, where: str) -> type[Spawner]:
    """Import a spawner class; raises ConfigError, which names ``where``."""
    try:
        found = import_item(dotted_name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the spawner class {dotted_name!r} cannot be imported: {error}", where=where) from error
    if not (isinstance(found, type) and issubclass(found, Spawner)):
        raise ConfigError(f"{dotted_name!r} is not a Spawner class", where=where)
    return found


def new_child(wrapper: Spawner, child_class: type[Spawner], traits: Mapping[str, Any], *, where: str) -> Spawner:
    """Return a child with ``traits`` set; raises ConfigError, which names ``where``, for a trait that is invalid."""
    unknown = sorted(name for name in traits if not child_class.class_traits().get(name))
    if unknown:
        raise ConfigError(
            f"{child_class.__name__} has no setting {unknown[0]!r}.",
            where=where,
            hint="The reference lists the settings of each spawner.",
        )
    arguments = {name: getattr(wrapper, name) for name in CONSTRUCTOR_ARGUMENTS if wrapper.has_trait(name)}
    try:
        child = child_class(**arguments, **copy.deepcopy(dict(traits)))
    except TraitError as error:
        raise ConfigError(str(error), where=where) from error
    setattr(child, "wrapper", wrapper)  # noqa: B010 - not an attribute of every spawner class
    return child


class Inheritance:
    """Passes a wrapper's own settings to its child: those that the admin, a hook or a group has set on the wrapper.

    Settings of all spawners (``c.Spawner``) are not among them: the child reads these itself.
    """

    def __init__(self, wrapper: Spawner) -> None:
        self._wrapper = wrapper
        self._given = {name: copy.deepcopy(getattr(wrapper, name)) for name in WATCHED}

    def own(self) -> frozenset[str]:
        """Return the names of settings that were set on the wrapper, not on all spawners."""
        names = self._by_the_admin()
        return names | {name for name, value in self._given.items() if getattr(self._wrapper, name) != value}

    def _by_the_admin(self) -> frozenset[str]:
        names: set[str] = set()
        for cls in type(self._wrapper).__mro__:
            if cls is Spawner:
                break
            names.update(self._wrapper.config.get(cls.__name__, {}))
        return frozenset(names)

    def take_times(self, child: Spawner, asked: Mapping[str, int | None]) -> None:
        """Set equal times on wrapper and child: the profile's (``asked``), else the wrapper's own, else the child's."""
        own = self.own()
        for name in TIMES:
            value = asked.get(name)
            if value is None:
                value = getattr(self._wrapper if name in own else child, name)
            if name not in own:
                self._given[name] = value  # set by us, so it does not count as the wrapper's own
            setattr(self._wrapper, name, value)
            setattr(child, name, value)

    def hand_down(self, child: Spawner, *, but: Collection[str] = ()) -> None:
        """Copy to the child what it needs for one start, except the settings in ``but``, which the profile has set."""
        wrapper = self._wrapper
        for name in HANDED_DOWN:
            if child.has_trait(name) or hasattr(child, name):
                setattr(child, name, getattr(wrapper, name, None))
        for name in (*TIMES, *(self.own() & set(SETTINGS) - set(but))):
            setattr(child, name, getattr(wrapper, name))
        # of increasing precedence: all spawners', the child class's, the wrapper's own with what hooks and groups added
        everyones = self._given["environment"]
        before = {} if "environment" in self._by_the_admin() else everyones
        added = {key: value for key, value in wrapper.environment.items() if before.get(key) != value}
        child.environment = {**everyones, **child.environment, **added}
        self.hand_down_overrides(child, but=but)

    def hand_down_overrides(self, child: Spawner, *, but: Collection[str] = ()) -> None:
        """Copy group overrides of the child's own settings to it; raises ConfigError for a value that is not valid.

        JupyterHub sets them on the wrapper, which has no such settings, as plain attributes.
        """
        where = "c.Spawner.group_overrides"
        for name, value in self.overrides(child).items():
            if name in OF_THE_HUB:
                self._wrapper.log.warning("%s: %s has no effect for a group. Set it in a profile.", where, name)
            if name not in but:
                try:
                    setattr(child, name, copy.deepcopy(value))
                except TraitError as error:
                    raise ConfigError(str(error), where=where) from error

    def overrides(self, child: Spawner) -> dict[str, Any]:
        """Return the group overrides of settings that the child has and the wrapper does not."""
        return {name: value for name, value in vars(self._wrapper).items() if child.has_trait(name)}
