"""A hub's configuration, read without a running hub, for ``show`` and ``check``."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from traitlets import TraitError
from traitlets.config.loader import PyFileConfigLoader
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.check.remote import of_login_node
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmUnavailable
from jupyterhub_gpuspawner.hub.courses.settings import GPUCourses
from jupyterhub_gpuspawner.hub.site.account import Account, refused_names
from jupyterhub_gpuspawner.hub.site.database_file import DEFAULT, exposed_database
from jupyterhub_gpuspawner.hub.spawners.child import configured_as
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.build import site_defaults
from jupyterhub_gpuspawner.profiles.profile import doubts_of
from jupyterhub_gpuspawner.profiles.resolve import permitted
from jupyterhub_gpuspawner.profiles.resources import over_defaults
from jupyterhub_gpuspawner.slurm.privileges import own_account
from jupyterhub_gpuspawner.slurm.time_limit import operator_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from traitlets.config import Config

    from jupyterhub_gpuspawner.hub.start.build import BatchJob
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.slurm.client import SlurmClient

SLURM = "Slurm"
EXTEND = "extend"
SOMEBODY = Account("somebody", "/home/somebody")
"""A stand-in account: whether a batch script can be written does not depend on a real one."""
ENTRY_POINTS = {"gpu-profiles": GPUProfilesSpawner, "gpu-slurm": GPUSlurmSpawner}


@dataclass(frozen=True)
class Finding:
    """One line of ``gpuspawner check``."""

    subject: str
    text: str
    ok: bool = True
    warning: bool = False
    """Something is wrong, but nothing fails because of it."""


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

    @property
    def escaped_name(self) -> str:
        """The name as in URLs."""
        return self.name


@dataclass(frozen=True)
class NamedHub:
    """Stand-in for the hub: the values of a server's environment, with JupyterHub's defaults."""

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

    def spawner(self, user: str, groups: Sequence[str] = (), server: str = "") -> Any:
        """The spawner that the hub would create for a user."""
        spawner = self.spawner_class(
            config=self.config,
            hub=NamedHub(),
            user=NamedUser(user, [NamedGroup(name) for name in groups], url=f"/user/{user}/"),
        )
        spawner.orm_spawner = NamedServer(server)
        return spawner

    async def job(
        self, choice: Mapping[str, object], *, user: str, groups: Sequence[str] = (), server: str = ""
    ) -> BatchJob:
        """The job for a user's ``choice``, not submitted; raises ConfigError or RequestError."""
        spawner = self.spawner(user, groups, server)
        child = spawner
        if isinstance(spawner, GPUProfilesSpawner):
            spawner.prepare(spawner.resolve(choice))
            child = spawner.child_spawner
        if not isinstance(child, GPUSlurmSpawner):
            raise RequestError(
                f"Profile {choice['profile']!r} is not a Slurm job and has no batch script.", field="profile"
            )
        return child.batch_job(await child.account())

    async def findings(self) -> list[Finding]:
        """The results of the check; raises ConfigError if the hub would not start."""
        spawner = self.spawner("nobody")
        try:
            spawner.check()
            GPUCourses(config=self.config)
        except TraitError as error:
            raise ConfigError(str(error)) from error
        profiles: tuple[Profile, ...] = ()
        found: list[Finding] = []
        child: Any = spawner
        if isinstance(spawner, GPUProfilesSpawner):
            profiles = spawner.offered()  # reads the folder, and so finds its errors
            found += [Finding("profile file", str(error), ok=False) for error in spawner.profile_errors()]
            found += [self._finding(each) for each in profiles]
            found += [
                Finding(f"profile {each.slug}", told.partition(": ")[2], warning=True)
                for each in profiles
                for told in doubts_of(each)
            ]
            child = spawner.slurm_spawner_class(config=self.config, user=spawner.user)
        found += [Finding(each.where, each.text, warning=True) for each in spawner.ignored_settings()]
        found += [Finding("users", text, ok=False) for text in refused_names(self.config)]
        if exposed := exposed_database(self.config.JupyterHub.get("db_url", DEFAULT)):
            found.append(Finding("database", exposed, warning=True))
        defaults = site_defaults(child)
        asked = {
            f"profile {each.slug}": over_defaults(each.slurm, defaults).partition
            for each in profiles
            if each.kind == "slurm"
        }
        if not profiles:
            asked[configured_as(child, "req_partition")] = defaults.partition
        client = child.connection().client
        extended = [each.slug for each in profiles if each.extend is not None]
        found += [each.finding(Finding) for each in await of_login_node(child)]
        found += await _of_slurm(client, asked, child.exec_prefix)
        return found + (await _of_extending(client, child.extend_prefix) if extended else [])

    def _finding(self, profile: Profile) -> Finding:
        """Whether the profile, with default options, results in a job that can be submitted today."""
        allow = profile.allow
        user = (*allow.users, SOMEBODY.name)[0]
        subject, told = f"profile {profile.slug}", f"{profile.display_name} ({profile.kind})"
        closed = permitted(profile, user, allow.groups, datetime.now().astimezone())
        if closed is not None:
            return Finding(subject, f"{told}, not offered now: {closed.text}")
        spawner = self.spawner(user, allow.groups)
        try:
            spawner.prepare(spawner.resolve({"profile": profile.slug}))
            if isinstance(spawner.child_spawner, GPUSlurmSpawner):
                spawner.child_spawner.batch_job(SOMEBODY)
        except (ConfigError, RequestError) as error:
            return Finding(subject, str(error), ok=False)
        return Finding(subject, told)


async def _of_slurm(client: SlurmClient, asked: Mapping[str, str | None], exec_prefix: str) -> list[Finding]:
    """Slurm's version and nodes, and the partitions in ``asked`` (by subject) that do not exist."""
    try:
        version, snapshot = await client.version(), await client.snapshot()
    except SlurmUnavailable as error:
        return [Finding(SLURM, str(error), ok=False)]
    partitions = {partition.name for partition in snapshot.partitions}
    listed = ", ".join(sorted(partitions))
    missing = [
        Finding(subject, f"there is no partition {names!r}; the partitions are {listed}", ok=False)
        for subject, names in asked.items()
        if not set((names or "").split(",")) - {""} <= partitions
    ]
    slurm = Finding(SLURM, f"{version}, {len(snapshot.nodes)} nodes, partitions {listed}")
    return [slurm, *missing, *await _of_rights(client, exec_prefix)]


async def _of_rights(client: SlurmClient, exec_prefix: str) -> list[Finding]:
    """Whether this account sees other users' jobs, if servers are submitted as other users."""
    if not exec_prefix.strip():
        return []
    try:
        if await client.sees_jobs_of():
            return []
    except GPUSpawnerError as error:
        return [Finding(SLURM, f"cannot tell whether jobs are hidden (PrivateData): {error}", ok=False)]
    name = await client.account() or "this account"
    return [
        Finding(
            SLURM,
            f"PrivateData hides the users' jobs from {name}: a hub that runs as {name} cannot tell whether they are "
            f"pending, running or finished. Make it an operator (sacctmgr modify user {name} set adminlevel=operator), "
            "or remove jobs from PrivateData.",
            ok=False,
        )
    ]


async def _of_extending(client: SlurmClient, extend_prefix: str) -> list[Finding]:
    """Whether this account can raise the time limit of a running job, if profiles have ``extend``."""
    try:
        prefix = operator_prefix(extend_prefix)
        if await client.may_extend(prefix):
            how = f"by `{extend_prefix}`" if prefix else f"by {own_account() or 'this account'} itself"
            return [Finding(EXTEND, f"time limits are raised {how}")]
    except SlurmUnavailable:  # which is reported already
        return []
    except GPUSpawnerError as error:
        return [Finding(EXTEND, str(error), ok=False)]
    name = own_account() or "this account"
    return [
        Finding(
            EXTEND,
            f"{name} is not a Slurm operator, so no server can be extended. Install the script `extend` and set "
            "c.GPUSlurmSpawner.extend_prefix, for example to sudo -n -u slurm (docs/howto/sudo.md).",
            warning=True,
        )
    ]


def load_site(path: Path) -> Site:
    """Read a hub's configuration file; raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}.", hint="Name the hub's configuration file with --config.")
    try:
        config = PyFileConfigLoader(path.name, path=str(path.parent)).load_config()
    except Exception as error:
        raise ConfigError(f"{type(error).__name__}: {error}", where=str(path)) from error
    named = config.JupyterHub.get("spawner_class", "gpu-profiles")
    spawner_class: Any
    try:
        spawner_class = ENTRY_POINTS.get(named) or (import_item(named) if isinstance(named, str) else named)
    except ImportError as error:
        raise ConfigError(str(error), where="c.JupyterHub.spawner_class") from error
    if not issubclass(spawner_class, (GPUProfilesSpawner, GPUSlurmSpawner)):
        raise ConfigError(
            f"{named!r} is not a spawner of this package.",
            where="c.JupyterHub.spawner_class",
            hint="Set it to 'gpu-profiles'.",
        )
    return Site(config, spawner_class)
