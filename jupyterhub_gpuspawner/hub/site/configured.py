"""What a configuration says, before it is anybody's setting: values that are added to, and the users that it names."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from traitlets.config.loader import LazyConfigValue

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.accounts import ROOT
from jupyterhub_gpuspawner.slurm.commands import checked_user_name

NAMING = ("allowed_users", "admin_users", "username_map")
"""Settings of an authenticator that name users; ``username_map`` does so in its values."""


def refused_names(config: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each user name in the configuration that this package refuses to start servers for.

    ``config`` is the hub's, by class; names in ``username_map`` count. Names from a sign-in service are not known yet.
    """
    refused = []
    for holder, settings in config.items():
        for trait in NAMING:
            names = names_in(settings.get(trait)) if isinstance(settings, dict) else ()
            refused += [f"c.{holder}.{trait}: {refusal}" for name in names if (refusal := _refusal(str(name)))]
    return refused


def names_in(value: Any) -> tuple[Any, ...]:
    """The users that a setting of :data:`NAMING` names; none if its type is one with which the hub does not start."""
    names = configured_value(value)
    names = names.values() if isinstance(names, dict) else names
    return () if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)


def configured_value(value: Any) -> Any:
    """Return a setting's value as it is in a configuration, in which the setting need not have a value of its own.

    ``c.JupyterHub.services.append(...)`` and ``c.Authenticator.admin_users.update(...)`` add to a default, which is
    taken to be empty: a list, or a dict or set like what is added.
    """
    if not isinstance(value, LazyConfigValue):
        return value
    added = value.to_dict().get("update")
    # a copy, since traitlets keeps the first answer, also for an object whose default is another
    return copy.deepcopy(value).get_value([] if added is None else type(added)())


def _refusal(username: str) -> str:
    try:
        checked_user_name(username)
    except ConfigError as error:
        return error.message
    return f"{username!r} {ROOT}" if username == "root" else ""
