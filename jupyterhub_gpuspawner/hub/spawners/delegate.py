"""The spawner of a server that is no Slurm job: JupyterHub's, for ``kind: local``, or another package's.

The spawner that JupyterHub knows starts, polls and stops such a server through it.
"""

from __future__ import annotations

import copy
import json
import socket
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from traitlets import TraitError
from traitlets.utils.importstring import import_item

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.batch.carried import Carried, cargo_of
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.jupyterhub_compat import CONSTRUCTOR_ARGUMENTS
from jupyterhub_gpuspawner.hub.site.slurm_settings import known_settings
from jupyterhub_gpuspawner.hub.spawner_bases import LocalProcessSpawner, Spawner
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

LAUNCHER = str(Path(jupyterhub_gpuspawner.__file__).parent / "node" / "__main__.py")
"""The launcher of this installation: whoever may run this interpreter may read it."""
OF_ONE_START = ("api_token", "admin_access", "cert_paths", "handler", "user_options")
"""Attributes that the hub sets for one start."""
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
    "http_timeout",
    "mem_guarantee",
    "mem_limit",
    "notebook_dir",
    "oauth_client_allowed_scopes",
    "poll_interval",
    "start_timeout",
)
"""Settings that reach the server if a hook or a group has set them, or the configuration of the profiles spawner."""


def other_class(spawner_class: str | type, *, where: str) -> type[Spawner]:
    """Import a spawner class, unless it is one; raises ConfigError, which names ``where``."""
    try:
        cls = import_item(spawner_class) if isinstance(spawner_class, str) else spawner_class
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the spawner class {spawner_class!r} cannot be imported: {error}", where=where) from error
    if not (isinstance(cls, type) and issubclass(cls, Spawner)):
        raise ConfigError(f"{spawner_class!r} is not a Spawner class", where=where)
    return cls


def new_delegate(spawner: Spawner, delegate_class: type[Spawner], traits: Mapping[str, Any], *, where: str) -> Spawner:
    """A delegate of ``spawner`` with these settings; raises ConfigError, which names ``where``."""
    own = known_settings(traits, delegate_class, where=where)
    arguments = {name: getattr(spawner, name) for name in CONSTRUCTOR_ARGUMENTS if spawner.has_trait(name)}
    try:
        return delegate_class(**arguments, **copy.deepcopy(own))
    except TraitError as error:
        raise ConfigError(str(error), where=where) from error


def storable(traits: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of another package's spawner that are stored with its server, which may be found by any of them.

    Without variables, which may be secret, and what is not JSON.
    """
    return {name: value for name, value in traits.items() if name != "environment" and _is_json(value)}


def _is_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def hand_over(
    spawner: Spawner,
    delegate: Spawner,
    request: JobRequest,
    *,
    own: Collection[str],
    variables: Mapping[str, Any],
    removed: Collection[str],
    of_hooks: Mapping[str, Any],
) -> None:
    """Give the delegate what it needs for one start: the hub's values, the request's, and the settings in ``own``.

    What the site's hooks have set, ``of_hooks``, counts before the request's.

    Of the environment it has what its own class has, without ``removed``, and with ``variables``.
    """
    for name in (*OF_ONE_START, *(set(SETTINGS) & set(own) - set(request.profile.traits))):
        if delegate.has_trait(name) or hasattr(delegate, name):
            setattr(delegate, name, getattr(spawner, name, None))
    if request.command:
        delegate.cmd = list(request.command)
    if request.default_url:
        delegate.default_url = request.default_url
    inherited = {name: value for name, value in delegate.environment.items() if name not in removed}
    delegate.environment = {**inherited, **variables, **request.environment.variables}
    for name, value in of_hooks.items():
        if delegate.has_trait(name):
            setattr(delegate, name, value)


def bind(
    delegate: LocalProcessSpawner,
    request: JobRequest,
    policy: str,
    carried: tuple[Carried, ...],
    settings: Mapping[str, Any],
) -> None:
    """Have the launcher bind the server to cores and GPUs of the hub's machine, without a report.

    ``carried``, ``settings``: of the hub's extensions. Raises ConfigError or OSError.
    """
    plan = LaunchPlan(
        gpus=request.placement.claim or request.resources.gpus,
        gpu_type=request.resources.gpu_type,
        cpus=request.resources.cpus,
        policy=request.placement.policy or policy,
        report=False,
    )
    of_extensions = cargo_of(request, carried, settings).on(plan)
    plan = replace(plan, choose=of_extensions.choose, readers=of_extensions.readers)
    if request.profile.port_range is not None:
        delegate.port = _free_port(*request.profile.port_range)
    delegate.cmd = [sys.executable, "-I", LAUNCHER, "--plan", plan.dumps(), "--", *delegate.cmd]


def _free_port(first: int, last: int) -> int:
    """A port of this range at which nothing listens; raises OSError where there is none."""
    for port in range(first, last + 1):
        with socket.socket() as server, suppress(OSError):
            server.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port from {first} to {last} is free")
