"""A hub's configuration, read without a running hub, for ``show``, ``check`` and ``course``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import TraitError
from traitlets.config.loader import PyFileConfigLoader
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.account import Account
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.site.application import application
from jupyterhub_gpuspawner.site.hub_folder import hub_folder, make_absolute
from jupyterhub_gpuspawner.site.values import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from traitlets.config import Config

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

    def spawner(self, user: str, groups: Sequence[str] = (), server: str = "") -> Any:
        """The spawner that the hub would create for a user; raises ConfigError for a setting of the wrong type."""
        base = str(self.hub.base_url).removesuffix("hub/")
        try:
            spawner = self.spawner_class(
                config=self.config,
                hub=self.hub,
                user=NamedUser(user, [NamedGroup(name) for name in groups], url=f"{base}user/{user}/"),
            )
        except TraitError as error:
            raise refusal(self.config, self.spawner_class, error) from error
        spawner.orm_spawner = NamedServer(server)
        return spawner


def load_site(path: Path) -> Site:
    """Read a hub's configuration file; raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}.", hint="Name the hub's configuration file with --config.")
    try:
        config = PyFileConfigLoader(path.name, path=str(path.parent)).load_config()
    except Exception as error:
        raise ConfigError(f"{type(error).__name__}: {error}", where=str(path)) from error
    spawner_class = _spawner_class(config.JupyterHub.get("spawner_class", "gpu-profiles"))
    folder = hub_folder(path, config)
    make_absolute(config, path, folder)
    return Site(config, spawner_class, folder)


def _spawner_class(named: Any) -> type[GPUProfilesSpawner | GPUSlurmSpawner]:
    """The class of a setting: its name in JupyterHub, its dotted name, or the class itself; raises ConfigError."""
    where = "c.JupyterHub.spawner_class"
    if isinstance(named, str) and named in ENTRY_POINTS:
        return ENTRY_POINTS[named]
    try:
        found = import_item(named) if isinstance(named, str) else named
    except ImportError as error:
        raise ConfigError(str(error), where=where) from error
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigError(f"{named!r} cannot be imported: {type(error).__name__}: {error}", where=where) from error
    if not (isinstance(found, type) and issubclass(found, (GPUProfilesSpawner, GPUSlurmSpawner))):
        raise ConfigError(f"{named!r} is not a spawner of this package.", where=where, hint="Set it to 'gpu-profiles'.")
    return found
