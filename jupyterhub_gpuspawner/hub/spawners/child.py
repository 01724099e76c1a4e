"""The spawner that starts a profile's server: how it is built, and what it gets from the one that JupyterHub knows."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from jupyterhub.spawner import Spawner
from traitlets import TraitError
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

BORN_WITH = (
    "user",
    "orm_spawner",
    "hub",
    "authenticator",
    "oauth_client_id",
    "config",
    "cookie_options",
    "cookie_host_prefix_enabled",
    "proxy_spec",
    "public_url",
    "public_hub_url",
    "trusted_alt_names",
    "internal_ssl",
    "internal_trust_bundles",
    "internal_certs_location",
    "_deprecated_db_session",
)
"""What the child gets at birth: who it works for."""

HANDED_DOWN = ("api_token", "admin_access", "cert_paths", "handler", "user_options")
"""What the child gets just before its start: what the hub has set for this one start."""

SETTINGS = (
    "args",
    "cmd",
    "cpu_guarantee",
    "cpu_limit",
    "debug",
    "default_url",
    "disable_user_config",
    "hub_connect_url",
    "mem_guarantee",
    "mem_limit",
    "notebook_dir",
)
"""What the child gets if it was set on its wrapper itself: by its configuration, a hook or a group override."""

TIMES = ("start_timeout", "http_timeout", "poll_interval")
"""What the hub reads from the wrapper and the child or the profile knows better; seconds."""

WATCHED = (*SETTINGS, *TIMES, "environment")


def configured_as(spawner: Spawner, name: str) -> str:
    """A setting as the admin wrote it, such as ``c.ProfilesSpawner.profiles``: the nearest class that has it."""
    holders = (cls.__name__ for cls in type(spawner).__mro__ if name in spawner.config.get(cls.__name__, {}))
    return f"c.{next(holders, type(spawner).__name__)}.{name}"


def other_class(dotted_name: str, *, where: str) -> type[Spawner]:
    """The spawner class of that name; raises ConfigError."""
    try:
        found = import_item(dotted_name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the spawner class {dotted_name!r} cannot be imported: {error}", where=where) from error
    if not (isinstance(found, type) and issubclass(found, Spawner)):
        raise ConfigError(f"{dotted_name!r} is not a Spawner class", where=where)
    return found


def new_child(wrapper: Spawner, child_class: type[Spawner], traits: Mapping[str, Any], *, where: str) -> Spawner:
    """A child with ``traits`` set; raises ConfigError, at the place ``where``, for one that it does not take."""
    unknown = sorted(name for name in traits if not child_class.class_traits().get(name))
    if unknown:
        raise ConfigError(
            f"{child_class.__name__} has no setting {unknown[0]!r}.",
            where=where,
            hint="The reference lists the settings of each spawner.",
        )
    born_with = {name: getattr(wrapper, name) for name in BORN_WITH if wrapper.has_trait(name)}
    try:
        child = child_class(**born_with, **copy.deepcopy(dict(traits)))
    except TraitError as error:
        raise ConfigError(str(error), where=where) from error
    child.wrapper = wrapper
    return child


class Inheritance:
    """Which of a wrapper's settings are its own: set on its class by the admin, or later by a hook or a group."""

    def __init__(self, wrapper: Spawner) -> None:
        self._wrapper = wrapper
        self._given = {name: copy.deepcopy(getattr(wrapper, name)) for name in WATCHED}

    def own(self) -> frozenset[str]:
        """Names that were set on the wrapper, not on all spawners."""
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
        """Make wrapper and child agree on times: as the profile asks, else the wrapper's own, else the child's."""
        own = self.own()
        for name in TIMES:
            value = asked.get(name)
            if value is None:
                value = getattr(self._wrapper if name in own else child, name)
            if name not in own:
                self._given[name] = value  # ours, and so to be forgotten with this choice
            setattr(self._wrapper, name, value)
            setattr(child, name, value)

    def hand_down(self, child: Spawner, *, but: Collection[str] = ()) -> None:
        """Give the child what it needs for one start; the profile has set what is in ``but``."""
        wrapper = self._wrapper
        for name in HANDED_DOWN:
            if child.has_trait(name) or hasattr(child, name):
                setattr(child, name, getattr(wrapper, name, None))
        for name in (*TIMES, *(self.own() & set(SETTINGS) - set(but))):
            setattr(child, name, getattr(wrapper, name))
        # every server's, then its kind's, then this wrapper's own and what hooks and groups have added
        everyones = self._given["environment"]
        before = {} if "environment" in self._by_the_admin() else everyones
        added = {key: value for key, value in wrapper.environment.items() if before.get(key) != value}
        child.environment = {**everyones, **child.environment, **added}
        self.hand_down_requests(child)

    def hand_down_requests(self, child: Spawner) -> None:
        """Give the child what a group override says of ``req_*``: it lands on the wrapper as plain attributes."""
        for name, value in vars(self._wrapper).items():
            if name.startswith("req_") and child.has_trait(name):
                setattr(child, name, value)
