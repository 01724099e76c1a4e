"""The settings of one server in effect, also those that the site's hooks set, and the job that is made of them."""

from __future__ import annotations

import base64
import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import TraitError

from jupyterhub_gpuspawner.batch import job as build
from jupyterhub_gpuspawner.batch.carried import Carried
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.extensions import carried_by, names_for, spawner_settings
from jupyterhub_gpuspawner.hub.job.failed_start import spawn_failure
from jupyterhub_gpuspawner.hub.site.connection import Cluster
from jupyterhub_gpuspawner.hub.site.slurm_settings import Effective, OwnSettings, SlurmSettings
from jupyterhub_gpuspawner.hub.spawner_bases import Spawner
from jupyterhub_gpuspawner.hub.start.attempt import Attempt
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.accounts import account_of
from jupyterhub_gpuspawner.slurm.commands import check_commands, command_prefix
from jupyterhub_gpuspawner.slurm.job import Account
from jupyterhub_gpuspawner.units import parse_wait

if TYPE_CHECKING:

    class ExtensionSettings:
        """The settings that extensions add to a spawner's; which these are is not known when types are checked."""

else:
    ExtensionSettings = type("ExtensionSettings", spawner_settings(), {"__module__": __name__})


CERTIFICATE_VARIABLES = {
    "keyfile": "JUPYTERHUB_SSL_KEYFILE_CONTENT",
    "certfile": "JUPYTERHUB_SSL_CERTFILE_CONTENT",
    "cafile": "JUPYTERHUB_SSL_CLIENT_CA_CONTENT",
}
"""JupyterHub's name of a certificate file, and the variable with its content in base64 (``node/folder.py``)."""


def certificate_variables(paths: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with the contents of a server's certificates (``internal_ssl``).

    ``paths`` is ``Spawner.cert_paths``. Raises ConfigError for a file that cannot be read. Reads files, so it must not
    run in the hub's event loop.
    """
    try:
        return {
            CERTIFICATE_VARIABLES[name]: base64.b64encode(Path(path).read_bytes()).decode()
            for name, path in paths.items()
            if name in CERTIFICATE_VARIABLES
        }
    except OSError as error:
        raise ConfigError(
            f"The server's certificate cannot be read: {error}.",
            where="c.JupyterHub.internal_ssl",
            hint="Look at c.JupyterHub.internal_certs_location.",
        ) from error


class ServerJob(ExtensionSettings, SlurmSettings):
    """What a server's job is made of; it does not start one."""

    request: JobRequest | None = None
    """What was asked for; None in a hub without profiles, and after a restart."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._username = ""  # for while the database is away; empty before the first start
        self.attempt = Attempt()
        """How far its start is, if it is being started."""
        self._groups: frozenset[str] = frozenset()
        """The user's groups when overrides of groups were applied; none where none was."""

    @property
    def site_queue_limit(self) -> int | None:
        """Seconds that a job may be pending where its profile sets no limit; None: no limit."""
        return parse_wait(self.of_site("queue_timeout"))

    def as_user(self) -> tuple[str, ...]:
        """``exec_prefix`` as words, also while the database is away."""
        return command_prefix(self.exec_prefix, self._username or self.user.name)

    def configured_as(self, name: str) -> str:
        """A setting as the admin wrote it, such as ``c.GPUSlurmSpawner.req_partition``."""
        holders = (cls.__name__ for cls in type(self).__mro__ if name in self.config.get(cls.__name__, {}))
        of_jobs = ServerJob.class_traits().get(name) is not None
        return f"c.{next(holders, 'GPUSlurmSpawner' if of_jobs else type(self).__name__)}.{name}"

    async def apply_group_overrides(self) -> None:
        """Apply the overrides of the user's groups, until the server has ended."""
        self._groups = frozenset()
        await super().apply_group_overrides()  # type: ignore[misc]

    def groups_of_user(self) -> frozenset[str]:
        """The names of the JupyterHub groups of this server's user."""
        return frozenset(group.name for group in self.user.groups)

    def _apply_overrides(self, spawner_override: dict[str, Any]) -> None:
        """Apply the overrides of a user's group; raises HTTPError for a value that is not valid."""
        where = "c.Spawner.group_overrides"
        self._groups = self.groups_of_user()
        for name in spawner_override:
            self.will_change(name)
            if self.has_trait(name) and self.trait_metadata(name, "not_of_a_group"):
                self.log.warning("%s: %s has no effect for a group. Set it in a profile.", where, name)
        try:
            super()._apply_overrides(spawner_override)  # type: ignore[misc]
        except TraitError as error:
            failure = ConfigError(str(error), where=where)
            raise spawn_failure(failure, server=self._log_name, contact=self.contact) from error

    def job_settings(self) -> build.JobSettings:
        """The settings from which the server's job is made, as they are now."""
        return self._settings(self, self._variables(self.batch_script))

    def plain_settings(self, user_options: Mapping[str, Any]) -> build.JobSettings:
        """Those of a job without a profile, with what the site's form has sent; raises RequestError."""
        settings = self.job_settings()
        return build.with_options(settings, user_options) if self.has_form() else settings

    def site_settings(self) -> build.JobSettings:
        """Those of a job on this server's cluster as the site has set them, without its variables."""
        return self._settings(self.effective(self.cluster))

    def settings_of(self, request: JobRequest) -> build.JobSettings:
        """Those of the job of a request that is not chosen; raises ConfigError."""
        settings = self.effective(
            request.resources.cluster or "", request.profile.traits, where=f"profile {request.profile.slug}"
        )
        return self._settings(settings, self._variables(settings.batch_script) | {*settings.environment})

    def _variables(self, batch_script: str) -> frozenset[str]:
        """Names of the server's variables, of which an admin's own ``batch_script`` is told."""
        return frozenset({*self.get_env(), *self.attempt.certificates} if batch_script else ())

    def defaults(self) -> dict[str, Resources]:
        """What a job requests on each cluster where neither profile nor user does; raises ConfigError.

        The first is the cluster of a job that names none; its name is empty in a hub that names no clusters.
        """
        return {name: build.site_defaults(self._settings(self.effective(name))) for name in self.clusters or [""]}

    def connections(self) -> dict[str, Cluster]:
        """Each cluster by its name; the only one by an empty name."""
        return {name: self.connection(self.effective(name)) for name in self.clusters or [""]}

    def use_cluster(self, name: str) -> None:
        """Be on this cluster until the server has ended; raises ConfigError."""
        self.own(self.cluster_settings(name), where=f"{self.configured_as('clusters')}: {name}")

    def _settings(self, settings: Effective | ServerJob, variables: frozenset[str] = frozenset()) -> build.JobSettings:
        requests = {f"req_{name}": value for name, value in settings.template_variables.items()}
        requests |= {name: getattr(settings, name) for name in self.requested()}
        traits = ServerJob.class_traits()  # of which a site's own class may have plain values
        own = {field.name: getattr(settings, field.name) for field in fields(build.JobSettings) if field.name in traits}
        if not settings.cmd:  # JupyterHub allows it, for spawners whose image has one
            raise ConfigError("there is no command of a server.", where=self.configured_as("cmd"))
        args = settings.get_args() if isinstance(settings, ServerJob) else settings.args
        own |= {"args": tuple(args), "cmd": tuple(settings.cmd), "of_command": self.submit_command.options}
        locations = {name: self.configured_as(name) for name in requests}
        return build.JobSettings(
            **own,
            requests=requests,
            locations=locations,
            carried=self.carried(),
            of_extensions=self.settings_of_carried(settings),
            variables=variables,
        )

    def has_form(self) -> bool:
        """Whether the site has a form, of its configuration or its subclass."""
        spawner: Any = self
        jupyterhubs: Any = Spawner
        return bool(spawner.options_form) or type(spawner).get_options_form is not jupyterhubs.get_options_form

    def carried(self) -> tuple[Carried, ...]:
        """What the hub's extensions add to the launcher of a job."""
        return carried_by(names_for(self))

    def settings_of_carried(self, settings: Effective | ServerJob) -> dict[str, Any]:
        """The settings that these read, by their names."""
        return {name: getattr(settings, name) for part in self.carried() for name in part.settings}

    def check(self) -> None:
        """Raise ConfigError for a setting with which every start would fail."""
        of_extensions = spawner_settings(names_for(self))
        for name in self.clusters or [""]:
            settings = self.effective(name)
            build.site_profile(self._settings(settings))
            self.check_command(settings)
            check_commands(settings)
            for of_extension in of_extensions:
                if check := getattr(of_extension, "check_settings", None):
                    check(settings)
        # reads all that jobs may carry: takes a second, once, and that now, not in the hub's loop during a start
        launcher_archive(self.carried())

    def check_accounts(self) -> None:
        """Raise ConfigError where servers of any cluster would run as root; reads the account database."""
        for name in self.clusters or [""]:
            self.check_account(self.effective(name))

    async def account(self, settings: build.JobSettings | None = None, cluster: Cluster | None = None) -> Account:
        """Home and shell of the job's user, by default the server's; raises ConfigError if there is no such account."""
        name = self._username or self.user.name
        home = (settings or self).req_homedir.replace("{username}", name)
        return await account_of(name, home=home, cluster=(cluster or self.connection()).accounts)

    def get_env(self) -> dict[str, str]:
        """JupyterHub's variables for a server, without batchspawner's of an account on the hub's machine."""
        env: dict[str, str] = Spawner.get_env(self)
        return env

    def job_environment(self, account: Account) -> dict[str, str]:
        """The environment of sbatch, and so of the job: JupyterHub's variables for a server, and the account's.

        Raises ConfigError for a value that is no text.
        """
        env = self.get_env()
        if wrong := next((name for name, value in env.items() if not isinstance(value, (str, bytes, os.PathLike))), ""):
            text = f"{wrong} has a value that is no text, but of type {type(env[wrong]).__name__}."
            raise ConfigError(text, where=self.configured_as("environment"), hint="Write it in quotes.")
        env.update(USER=account.name, LOGNAME=account.name, HOME=account.home, SHELL=account.shell)
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
        env.setdefault("LANG", "C.UTF-8")
        env.update(self.attempt.certificates)
        return env

    def batch_job(self, account: Account) -> build.BatchJob:
        """The job as it would be submitted now; raises ConfigError or RequestError."""
        request = self.request
        settings = self.job_settings() if request is not None else self.plain_settings(self.user_options)
        if request is None:
            request = build.plain_request(settings, username=self.user.name, server_name=self.name)
        return build.batch_job(settings, request, account, start_id=self.attempt.start_id)


_OF_PROFILE = ("port_range", "queue_timeout")
BEFORE_REQUEST = ("placement_policy", *_OF_PROFILE)
"""Settings that count only where the profile has none, beside those that a delegate gets."""


class HookSettings:
    """Finds what hooks have set, which counts for the start before what the profile and its options say.

    That is what differs from when it was last seen. A hook is the later word, and it is about this very start:
    ``pre_spawn_hook``, ``auth_state_hook``, an admin's own ``apply_user_options``, the authenticator's
    ``pre_spawn_start``, and the ``start`` of a site's subclass.
    """

    def __init__(self, spawner: OwnSettings, names: Iterable[str]) -> None:
        self._spawner = spawner
        self._names = frozenset(names)
        self._seen: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        """What hooks have set for this start, by name; the variables of ``environment`` are in :attr:`variables`."""
        self.variables: dict[str, Any] = {}

    def begin(self) -> None:
        """A start begins, or a server is over: no hook has set anything."""
        self.settings, self.variables = {}, {}
        self.see()

    def see(self) -> None:
        """No hook has set what has changed until now."""
        self._seen = {name: copy.copy(getattr(self._spawner, name)) for name in self._names}

    def note(self) -> None:
        """Hooks have set what has changed since the last look."""
        for name, before in self._seen.items():
            value = getattr(self._spawner, name)
            if name == "environment":
                self.variables.update({key: text for key, text in value.items() if before.get(key) != text})
            elif value != before:
                self.settings[name] = copy.copy(value)
        self.see()

    def replaced_by_group(self) -> None:
        """The overrides of a user's groups have replaced some, and are the site's."""
        self.settings = {name: value for name, value in self.settings.items() if getattr(self._spawner, name) == value}
        of_spawner = self._spawner.environment  # type: ignore[attr-defined]
        self.variables = {name: value for name, value in self.variables.items() if of_spawner.get(name) == value}
        self.see()

    def over(self, request: JobRequest) -> JobRequest:
        """The request as hooks have changed it; raises ConfigError for a value that cannot be requested."""
        if not self.settings and not self.variables:
            return request
        of_job = request.profile.kind == "slurm"
        requests = {name: value for name, value in self.settings.items() if of_job and name.startswith("req_")}
        try:
            resources = build.requested_instead(request.resources, requests)
        except ConfigError as error:
            where = f"a hook's spawner.{error.where}"
            raise ConfigError(error.fault, where=where, hint=error.hint or "Correct the hook.") from error
        variables = {name: text for name, text in request.environment.variables.items() if name not in self.variables}
        policy = {"policy": None} if "placement_policy" in self.settings else {}
        return replace(
            request,
            profile=request.profile.model_copy(update={name: None for name in _OF_PROFILE if name in self.settings}),
            resources=resources,
            environment=request.environment.model_copy(update={"variables": variables}),
            placement=request.placement.model_copy(update=policy),
            command=None if "cmd" in self.settings else request.command,
            default_url=None if "default_url" in self.settings else request.default_url,
        )


def shown_to_hooks(request: JobRequest, cmd: Sequence[str]) -> dict[str, Any]:
    """A request as the settings in which a hook reads, changes and extends it; ``cmd`` is the site's command."""
    requests = {f"req_{name}": text for name, text in build.in_batchspawners_names(request.resources).items()}
    return {**requests, "cmd": list(request.command or cmd)}
