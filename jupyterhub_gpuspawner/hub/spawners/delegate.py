"""The spawner of a server that is no Slurm job: JupyterHub's, for ``kind: local``, or another package's.

The spawner that JupyterHub knows starts, polls and stops such a server through it.
"""

from __future__ import annotations

import atexit
import copy
import fcntl
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from traitlets import TraitError
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.jupyterhub_compat import CONSTRUCTOR_ARGUMENTS
from jupyterhub_gpuspawner.hub.spawner_bases import LocalProcessSpawner, Spawner
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import CLAIM_FOLDER
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

# The launcher as a file, for servers on the hub's own machine.


class LauncherFile:
    """The launcher as a file that every user may read and only the hub may write, created on first use.

    A cleaner of temporary files may remove it while the hub runs for weeks; the next start then creates another one. To
    avoid that, the folder is locked (flock(2)), which systemd-tmpfiles(8) respects, and each start sets the times of
    folder and file to now, for cleaners that go by age. Inodes are compared before the file is used: once it is gone,
    any user may create one of the same name.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._folder = self._file = -1

    def path(self) -> Path:
        """The path of the file, created if it is not there; raises OSError."""
        if self._path is None or not self._is_there(self._path):
            self.remove()
            self._path = self._make()
        return self._path

    def _make(self) -> Path:
        folder = _new_folder()
        path = folder / "launch.pyz"
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._folder, fcntl.LOCK_SH)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(os.dup(self._file), "wb") as file:
            file.write(launcher_archive())
        path.chmod(0o644)
        folder.chmod(0o755)
        return path

    def _is_there(self, path: Path) -> bool:
        try:
            for descriptor, place in ((self._folder, path.parent), (self._file, path)):
                os.utime(descriptor)
                if not os.path.samestat(os.fstat(descriptor), os.lstat(place)):
                    return False
            return os.fstat(self._file).st_size == len(launcher_archive())
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file and its folder, unless somebody else's are in their place."""
        if self._path is not None and self._folder >= 0:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._folder), os.lstat(self._path.parent)):
                    shutil.rmtree(self._path.parent, ignore_errors=True)
        for descriptor in (self._folder, self._file):
            if descriptor >= 0:
                os.close(descriptor)
        self._path, self._folder, self._file = None, -1, -1


def _new_folder() -> Path:
    """A new folder in TMPDIR or, if that is gone, in one of the usual places; raises OSError."""
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a folder that was not there
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="gpuspawner-launcher-", dir=parent))
    return Path(tempfile.mkdtemp(prefix="gpuspawner-launcher-", dir="/var/tmp"))


LAUNCHER = LauncherFile()
"""The file of this hub process."""
atexit.register(LAUNCHER.remove)


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


def other_class(dotted_name: str, *, where: str) -> type[Spawner]:
    """Import a spawner class; raises ConfigError, which names ``where``."""
    try:
        spawner_class = import_item(dotted_name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the spawner class {dotted_name!r} cannot be imported: {error}", where=where) from error
    if not (isinstance(spawner_class, type) and issubclass(spawner_class, Spawner)):
        raise ConfigError(f"{dotted_name!r} is not a Spawner class", where=where)
    return spawner_class


def refuse_unknown(traits: Mapping[str, Any], spawner_class: type[Spawner], *, where: str) -> None:
    """Raise ConfigError for the first of a profile's ``traits`` that is no setting of this class."""
    for name in sorted(traits):
        if not spawner_class.class_traits().get(name):
            raise ConfigError(
                f"{spawner_class.__name__} has no setting {name!r}.",
                where=where,
                hint="The reference lists the settings of each spawner.",
            )


def new_delegate(spawner: Spawner, delegate_class: type[Spawner], traits: Mapping[str, Any], *, where: str) -> Spawner:
    """A delegate of ``spawner`` with these settings; raises ConfigError, which names ``where``."""
    refuse_unknown(traits, delegate_class, where=where)
    arguments = {name: getattr(spawner, name) for name in CONSTRUCTOR_ARGUMENTS if spawner.has_trait(name)}
    try:
        return delegate_class(**arguments, **copy.deepcopy(dict(traits)))
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


def hand_over(spawner: Spawner, delegate: Spawner, request: JobRequest, *, own: Collection[str]) -> None:
    """Give the delegate what it needs for one start: the hub's values, the request's, and the settings in ``own``."""
    for name in (*OF_ONE_START, *(set(SETTINGS) & set(own) - set(request.traits))):
        if delegate.has_trait(name) or hasattr(delegate, name):
            setattr(delegate, name, getattr(spawner, name, None))
    if request.command:
        delegate.cmd = list(request.command)
    if request.default_url:
        delegate.default_url = request.default_url
    if "environment" in own:
        delegate.environment = {**delegate.environment, **spawner.environment}
    delegate.environment = {**delegate.environment, **request.environment.variables}


def bind(delegate: LocalProcessSpawner, request: JobRequest, policy: str) -> None:
    """Have the launcher bind the server to cores and GPUs of the hub's machine, without a report. Raises OSError."""
    plan = LaunchPlan(
        gpus=request.placement.claim or request.resources.gpus,
        cpus=request.resources.cpus,
        policy=request.placement.policy or policy,
        claim=CLAIM_FOLDER if request.placement.claim else None,
        report=False,
    )
    if request.port_range is not None:
        delegate.port = _free_port(*request.port_range)
    delegate.cmd = [sys.executable, "-I", str(LAUNCHER.path()), "--plan", plan.dumps(), "--", *delegate.cmd]


def _free_port(first: int, last: int) -> int:
    """A port of this range at which nothing listens; raises OSError where there is none."""
    for port in range(first, last + 1):
        with socket.socket() as server, suppress(OSError):
            server.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port from {first} to {last} is free")
