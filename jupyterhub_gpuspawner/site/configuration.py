"""A hub's configuration, read without a running hub: its settings, its spawners, and its working directory.

The hub's relative paths refer to that directory, which a command elsewhere cannot know. JupyterHub's default database,
cookie secret and process id are files in it (``jupyterhub/app.py``). A hub that runs with the same configuration file
shows its directory in /proc; otherwise its files show it, if they lie beside the configuration.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jupyterhub.app import JupyterHub
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError
from traitlets import TraitError
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawner_bases import BatchSpawnerBase
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.database import DEFAULT, connected, is_readable
from jupyterhub_gpuspawner.site.values import refusal, subclasses
from jupyterhub_gpuspawner.slurm.job import Account

COOKIE_FILE = "jupyterhub_cookie_secret"
"""JupyterHub's default of cookie_secret_file."""
CONFIG_FILE = "jupyterhub_config.py"
"""JupyterHub's default of config_file."""
SPAWNER_CLASS = "c.JupyterHub.spawner_class"
_OURS = "Set it to 'gpu-profiles'."
_MISSING = "Name the hub's configuration file with --config; `gpuspawner check` says how to write one."
_OPTIONS = ("-f", "--config", "--JupyterHub.config_file")
_QUIET = logging.getLogger("gpuspawner.check")
_QUIET.disabled = True  # what JupyterHub says of its settings, it says when it starts; misspelt ones are findings
SOMEBODY = Account("somebody", "/home/somebody")
"""A stand-in account: whether a batch script can be written does not depend on a real one."""
ENTRY_POINTS: dict[str, type[GPUProfilesSpawner | GPUSlurmSpawner]] = {
    "gpu-profiles": GPUProfilesSpawner,
    "gpu-slurm": GPUSlurmSpawner,
}


@dataclass(frozen=True)
class NamedGroup:
    """A JupyterHub group, for a user who is not signed in."""

    name: str


@dataclass
class NamedUser:
    """A JupyterHub user who is not signed in: the name and groups that a script depends on."""

    name: str
    groups: Sequence[NamedGroup] = ()
    url: str = "/user/"
    settings: Mapping[str, Any] = field(default_factory=dict)
    spawners: Mapping[str, Any] = field(default_factory=dict)

    @property
    def escaped_name(self) -> str:
        """The name as in URLs."""
        return self.name


@dataclass(frozen=True)
class NamedHub:
    """Stand-in for a hub whose settings JupyterHub does not accept, with JupyterHub's defaults."""

    public_host: str = ""
    api_url: str = "http://127.0.0.1:8081/hub/api"
    base_url: str = "/hub/"
    port: int = 8081


@dataclass(frozen=True)
class NamedServer:
    """Stand-in for a server's row in the database."""

    name: str
    display_name: str = ""
    server: None = None


@dataclass(frozen=True)
class Site:
    """The configuration of one hub."""

    config: Config
    spawner_class: type[GPUProfilesSpawner | GPUSlurmSpawner]
    folder: Path | None = None
    """The hub's working directory; None if it is not known."""
    classes: tuple[type, ...] = ()
    """The spawner classes of batchspawner's family that the file itself defines."""
    state: HubState = field(default_factory=HubState, repr=False, compare=False)
    """What the spawners of this configuration share."""

    @cached_property
    def hub(self) -> Any:
        """The hub as servers are told of it: JupyterHub's own object, with its addresses and its path."""
        try:
            return application(self.config).hub
        except ConfigError:  # which the check of names reports
            return NamedHub()

    def file(self, name: str) -> Path | None:
        """A file that a setting names; None for a relative path whose folder is not known."""
        path = Path(name).expanduser()
        if path.is_absolute():
            return path
        return self.folder / path if self.folder is not None else None

    def database(self, failure: str) -> AbstractContextManager[Connection]:
        """A connection to the hub's database; see :func:`connected`."""
        hub = self.config.JupyterHub
        return connected(str(hub.get("db_url", DEFAULT)), hub.get("db_kwargs", {}), failure)

    def spawner(self, user: str, groups: Sequence[str] = (), server: str = "", *, cluster: str = "") -> Any:
        """The spawner that the hub would create for a user, on a cluster or else on the first.

        Raises ConfigError for a setting of the wrong type, and for an unknown cluster.
        """
        base = str(self.hub.base_url).removesuffix("hub/")
        try:
            spawner = self.spawner_class(
                config=self.config,
                hub=self.hub,
                user=NamedUser(user, [NamedGroup(name) for name in groups], f"{base}user/{user}/", {KEY: self.state}),
            )
        except TraitError as error:
            raise refusal(self.config, self.spawner_class, error) from error
        spawner.orm_spawner = NamedServer(server)
        if cluster and cluster not in spawner.clusters:
            named = (
                f"Clusters are {', '.join(spawner.clusters)}." if spawner.clusters else "This hub names no clusters."
            )
            raise ConfigError(f"there is no cluster {cluster!r}.", hint=named)
        if cluster:
            spawner.use_cluster(cluster)
        return spawner


def load_site(path: Path) -> Site:
    """Read a hub's configuration file; raises ConfigError."""
    before = {*subclasses(BatchSpawnerBase)}
    config = read_config(path)
    # a file that is executed without a module's name defines its classes in that of Python's own names
    own = (cls for cls in subclasses(BatchSpawnerBase) if cls.__module__ == "builtins" and cls not in before)
    site = site_of(path, config, spawner_class_of(config))
    return replace(site, classes=tuple(dict.fromkeys(own)))


def read_config(path: Path, missing: str = _MISSING) -> Config:
    """What a hub's configuration file sets; raises ConfigError, with the hint ``missing`` where there is no file."""
    if not is_readable(path):
        raise ConfigError(f"there is no file {path}.", hint=missing)
    try:
        return PyFileConfigLoader(path.name, path=str(path.parent)).load_config()
    except (Exception, SystemExit) as error:
        hint = "Run the command where the hub's packages are." if isinstance(error, ImportError) else ""
        raise ConfigError(f"{type(error).__name__}: {error}", where=str(path), hint=hint) from error


def site_of(path: Path, config: Config, spawner_class: type[GPUProfilesSpawner | GPUSlurmSpawner]) -> Site:
    """The site of a hub's configuration file, whose content is ``config``."""
    folder = hub_folder(path, config)
    make_absolute(config, path, folder)
    return Site(config, spawner_class, folder)


def spawner_class_of(config: Config) -> type[GPUProfilesSpawner | GPUSlurmSpawner]:
    """The configured spawner, by default that with profiles; raises ConfigError for one that is not this package's.

    JupyterHub takes the name of an entry point, a dotted name, or the class itself.
    """
    where, named = SPAWNER_CLASS, config.JupyterHub.get("spawner_class", "gpu-profiles")
    if isinstance(named, str) and named in ENTRY_POINTS:
        return ENTRY_POINTS[named]
    try:
        registered = entry_points(group="jupyterhub.spawners", name=named) if isinstance(named, str) and named else ()
        item = next((entry_point.value.replace(":", ".") for entry_point in registered), named)
        spawner_class = import_item(item) if isinstance(item, str) else item
    except ImportError as error:
        raise ConfigError(f"{error}.", where=where, hint=_migrate_hint(named) or _OURS) from error
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigError(f"{named!r} cannot be imported: {type(error).__name__}: {error}", where=where) from error
    if not (isinstance(spawner_class, type) and issubclass(spawner_class, (GPUProfilesSpawner, GPUSlurmSpawner))):
        hint = _migrate_hint(f"{named} {getattr(spawner_class, '__mro__', '')}") or _OURS
        raise ConfigError(f"{named!r} is not a spawner of this package.", where=where, hint=hint)
    return spawner_class


def _migrate_hint(spawner: object) -> str:
    """What to do with the configuration of an older spawner, which the text names."""
    if re.search("batchspawner|wrapspawner|jupyterhub_moss|slurmformspawner", str(spawner)) is None:
        return ""
    return (
        "Set it to 'gpu-profiles', with which most settings of batchspawner and wrapspawner keep working, or run "
        "`gpuspawner migrate` for a configuration of this package."
    )


def application(config: Config) -> Any:
    """The hub's application with its settings, and ``hub``, which knows its own address; raises ConfigError."""
    try:
        app = JupyterHub(config=config, log=_QUIET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # settings that JupyterHub has renamed: it says so itself when it starts
            app.init_hub()
    except TraitError as error:
        raise refusal(config, JupyterHub, error) from error
    return app


def hub_folder(path: Path, config: Config) -> Path | None:
    """The working directory of the hub with this configuration file, whose content is ``config``; None if unknown."""
    running = running_in(path)
    if running is not None:
        return running
    beside, hub = path.absolute().parent, config.JupyterHub
    names = (sqlite_file(str(hub.get("db_url", DEFAULT))), hub.get("cookie_secret_file", COOKIE_FILE))
    # not by Path, whose methods raise an error for a folder that this account may not enter (before Python 3.14)
    if any(name and not os.path.isabs(name) and os.path.isfile(beside / name) for name in names):  # noqa: PTH113, PTH117
        return beside
    return None


def running_in(path: Path, processes: Path = Path("/proc")) -> Path | None:
    """The working directory of a running hub with this configuration file, as far as this account may look."""
    for entry in processes.glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            named = configuration_of(words)
            if named is None:
                continue
            folder = Path(os.readlink(entry / "cwd"))  # noqa: PTH115 - "(deleted)" is no folder either way
            if (folder / named).samefile(path):
                return folder
        except OSError:  # it has ended, or belongs to another account
            continue
    return None


def configuration_of(words: Sequence[str]) -> str | None:
    """The configuration file of a hub with this command line; None if it is not that of a hub."""
    at = next((at for at, word in enumerate(words) if Path(word).name == "jupyterhub"), None)
    if at is None or (at and not Path(words[0]).name.startswith("python")):
        return None
    if any(not word.startswith("-") for word in words[1:at]):
        return None
    path = CONFIG_FILE
    after = words[at + 1 :]
    for word, following in zip(after, [*after[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if option in _OPTIONS:
            path = value if equals else following
    return path


def sqlite_file(db_url: str) -> str:
    """The path of an SQLite database as ``c.JupyterHub.db_url`` has it; empty for another database."""
    if "://" not in db_url:  # which JupyterHub takes for a file's name
        return db_url
    try:
        url = make_url(db_url)
    except ArgumentError:
        return ""
    name = url.database or ""
    return name if url.get_backend_name() == "sqlite" and not name.startswith((":", "file:")) else ""


def is_unseen(db_url: str) -> bool:
    """Whether this is a file relative to a working directory that is not known; see :func:`make_absolute`."""
    name = sqlite_file(db_url)
    return bool(name) and not os.path.isabs(name)  # noqa: PTH117


def make_absolute(config: Config, path: Path, folder: Path | None) -> None:
    """Give the full path of the database, and of folders such as that of the profiles, as far as they are known."""
    db_url = str(config.JupyterHub.get("db_url", DEFAULT))
    if is_unseen(db_url) and folder is not None:
        url = make_url(db_url if "://" in db_url else f"sqlite:///{db_url}")
        config.JupyterHub.db_url = str(url.set(database=str(folder / sqlite_file(db_url))))
    base, settings = folder or path.absolute().parent, GPUProfilesSpawner.class_trait_names(is_folder=True)
    for section in config.values():
        for setting in settings if isinstance(section, dict) else ():
            value = section.get(setting)
            if isinstance(value, str) and value and os.path.isdir(base / value):  # noqa: PTH112 - as in hub_folder
                section[setting] = str(base / value)
