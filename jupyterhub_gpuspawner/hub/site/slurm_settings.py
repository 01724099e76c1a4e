"""What an admin may set of the servers that are Slurm jobs, beside batchspawner's own settings, and what is in effect.

The settings of a server are the site's, those of its groups, its cluster and its profile. What is only shown or tried
reads them as values (:class:`Effective`), and nothing is set for it. A server's own start sets them on its spawner,
where an admin's hooks and subclasses read and change them, for as long as the server is.
"""

from __future__ import annotations

import copy
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from traitlets import Bool, Dict, Enum, Float, HasTraits, Integer, TraitError, Unicode, default, validate

from jupyterhub_gpuspawner.batch.job import OWN_LOG_DIR
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.connection import Cluster, Clusters, Location
from jupyterhub_gpuspawner.hub.site.state import state_for
from jupyterhub_gpuspawner.hub.spawner_bases import SlurmSpawner
from jupyterhub_gpuspawner.hub.words import CONTACT
from jupyterhub_gpuspawner.placement.choice import MEMORY_POLICIES, POLICIES
from jupyterhub_gpuspawner.slurm.commands import DEFAULT_TIMEOUT, command_prefix, fixed_prefix
from jupyterhub_gpuspawner.slurm.job import JobIdentity, job_owner, tag
from jupyterhub_gpuspawner.slurm.run_as import ALLOW_ROOT, as_root, needs_shell, runs_as_root
from jupyterhub_gpuspawner.slurm.submit_command import COMMAND_HINT, SUBMIT, SubmitCommand, submit_command
from jupyterhub_gpuspawner.units import parse_wait

# Trait types with bounds: a value outside them is refused when the hub starts, and the message names the bounds.

_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", re.ASCII)
_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)


class Seconds(Float[float, Any]):
    """A number of seconds from ``low`` to ``high``, both included; with ``or_zero`` also 0."""

    def __init__(self, default: float, *, low: float, high: float, or_zero: bool = False, **metadata: Any) -> None:
        self.low, self.high, self.or_zero = low, high, or_zero
        self.bounds = f"{low:g} to {high:g} seconds{', or 0' if or_zero else ''}"
        super().__init__(default, **metadata)

    def validate(self, obj: Any, value: Any) -> float:
        """Return the value; raises TraitError, also for another type, infinity and NaN."""
        seconds: float = super().validate(obj, value)
        if not (self.low <= seconds <= self.high or (self.or_zero and seconds == 0)):
            raise TraitError(f"{self.name}: {seconds:g} must be from {self.bounds}.")
        return seconds


class Count(Integer[int, Any]):
    """A whole number from ``low`` to ``high``, both included."""

    def __init__(self, default: int, *, low: int, high: int, **metadata: Any) -> None:
        self.low, self.high, self.bounds = low, high, f"{low} to {high}"
        super().__init__(default, **metadata)

    def validate(self, obj: Any, value: Any) -> int:
        """Return the value; raises TraitError."""
        count: int = super().validate(obj, value)
        if isinstance(value, bool) or not self.low <= count <= self.high:
            raise TraitError(f"{self.name}: {value!r} must be a whole number from {self.bounds}.")
        return count


class PortRange(Unicode[str, Any]):
    """``FIRST-LAST`` within 1024 to 65535, or empty for any port."""

    bounds = "two ports from 1024 to 65535"

    def validate(self, obj: Any, value: Any) -> str:
        """Return the text; raises TraitError."""
        text: str = super().validate(obj, value)
        ports = _PORT_RANGE.fullmatch(text)
        if text and not (ports and 1024 <= int(ports[1]) <= int(ports[2]) <= 65535):
            raise TraitError(f"{self.name}: {text!r} must be FIRST-LAST within 1024-65535, such as 20000-20999")
        return text


class OptionText(Unicode[str, Any]):
    """A text in an option of sbatch, which would interpret a quote or a backslash in it."""

    bounds = "one printable line without double quotes and backslashes"

    def validate(self, obj: Any, value: Any) -> str:
        """Return the text; raises TraitError."""
        text: str = super().validate(obj, value)
        if not text.isprintable() or set(text) & set('"\\'):
            raise TraitError(f"{self.name}: {text!r} must be {self.bounds}: it becomes part of an sbatch option.")
        return text


class ClusterSettings(Dict):
    """The settings of each cluster by its name."""

    bounds = "names of letters, digits, dots, hyphens and _, each with a dict of settings"

    def validate(self, obj: Any, value: Any) -> dict[str, dict[str, Any]]:
        """Return the dict; raises TraitError, also for a name that is no setting. Values are not checked here."""
        clusters: dict[Any, Any] = super().validate(obj, value) or {}
        names = sorted({*type(obj).class_trait_names(config=True, of_the_hub=None)} - OF_THE_HUB)
        for name, settings in clusters.items():
            if not (isinstance(name, str) and _CLUSTER.fullmatch(name)) or not isinstance(settings, dict):
                raise TraitError(f"{self.name}: {name!r}: {settings!r} must be {self.bounds}.")
            for setting in settings:
                if setting not in names:
                    similar = get_close_matches(str(setting), names, 1)
                    advice = f"; did you mean {similar[0]}?" if similar else ""
                    raise TraitError(f"{self.name}: {name}: {setting!r} is no setting of a cluster{advice}")
        return clusters


class Wait(Unicode[str, Any]):
    """A time to wait, in the grammar of :func:`parse_wait`."""

    bounds = "a time such as 4:00:00, or UNLIMITED"

    def validate(self, obj: Any, value: Any) -> str:
        """Return the text; raises TraitError."""
        try:
            parse_wait(value)
        except ValueError as error:
            raise TraitError(f"{self.name}: {error}.") from None
        text: str = super().validate(obj, value)
        return text


JUPYTERHUB_PORT = 8081
"""Where a hub listens unless told otherwise."""
OF_THE_HUB = frozenset(
    {
        "clusters",
        "contact",
        ALLOW_ROOT,
        "environment",
        "extensions",
        "hub_name",
        "job_name",
        "profiles",
        "profiles_dir",
    }
)
"""Settings that are the same on all clusters; a cluster's own variables are lines of its ``req_prologue``.

So are those of extensions with the metadata ``of_the_hub``, which no profile has either."""
CONNECTION = ("exec_prefix", "query_prefix", "req_cluster", "slurm_bin_dir", "slurm_conf", "wrapper_dir")
"""Settings without which a job cannot be found, polled or cancelled."""
OF_THE_ACCOUNT = ("req_username", "req_homedir", "req_keepvars")
"""Settings of which batchspawner takes the default from the account database."""
VARIABLES = ("environment", "template_variables")
"""Settings of which a profile's values are added to the site's."""
RECONCILE_INTERVAL = 600.0
"""Seconds between searches for jobs of this hub that belong to no server."""
STOP_PATIENCE_SECONDS = 10.0
"""How long a stop waits for the end of the job."""


NOTHING: Mapping[str, Any] = MappingProxyType({})


def known_settings(traits: Mapping[str, Any], spawner_class: type[HasTraits], *, where: str) -> dict[str, Any]:
    """Those of a profile's ``traits`` that this class has; the others are dropped, as traitlets does.

    Raises ConfigError for a setting of the hub's.
    """
    settings = {name: value for name, value in traits.items() if name in spawner_class.class_traits()}
    for name in sorted(settings):
        if spawner_class.class_traits()[name].metadata.get("of_the_hub"):
            raise ConfigError(
                f"{name} is the same for all servers.",
                where=where,
                hint=f"Set it as c.{spawner_class.__name__}.{name}.",
            )
    return settings


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
        own = {name: traits[name] for name in VARIABLES if isinstance(traits.get(name), Mapping)}
        return {**traits, **{name: {**self.of_site(name), **variables} for name, variables in own.items()}}

    def checked(self, settings: Mapping[str, Any], *, where: str) -> dict[str, Any]:
        """The same settings as their traits take them; raises ConfigError, which names ``where`` they stand."""
        try:
            return {
                name: self._as_set(name, copy.deepcopy(value))
                for name, value in settings.items()
                if self.has_trait(name)  # others of a profile are named by `gpuspawner check`
            }
        except (TraitError, TypeError) as error:  # JupyterHub's sizes raise TypeError
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

    def leave_profile(self) -> None:
        """What a profile has set is what it was without one."""
        for name, value in self._without_profile.items():
            setattr(self, name, value)
        self._without_profile.clear()

    @contextmanager
    def without_profile(self) -> Iterator[None]:
        """Within it no profile, or another one, has set anything; afterwards everything is as before."""
        own = {name: getattr(self, name) for name in self._without_profile}
        without = dict(self._without_profile)
        self.leave_profile()
        try:
            yield
        finally:
            self.leave_profile()
            for name, value in own.items():
                setattr(self, name, value)
            self._without_profile = without

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


class SlurmSettings(OwnSettings, SlurmSpawner):
    """batchspawner's Slurm spawner with the settings of ours; set them as ``c.GPUSlurmSpawner.NAME``."""

    batch_script = Unicode(
        "",
        config=True,
        help="""Your own template, as for batchspawner, with the `req_*` values by name and `{cmd}`. Empty (the
        default): the script is built from typed values; `gpuspawner show` prints it.""",
    )
    template_variables: Dict[str, Any] = Dict(
        key_trait=Unicode(),
        config=True,
        help="""Further variables of your own `batch_script`, such as `{"conda_env": "/opt/torch"}` for `{conda_env}`;
        those of a profile's `traits` are added. A class of your own has them as settings that begin with `req_`.""",
    )
    exec_prefix = Unicode(
        "sudo -n -E -u {username}",
        config=True,
        help="""Prefix that runs a command as the server's user. It is split into words and never passed to a shell.
        Empty if jobs belong to the hub's own account. It is used for `sbatch --parsable`, `sbatch --test-only` and
        `scancel`, and, if the hub runs as root, for `tail` of a log. With `wrapper_dir`, set it to
        `sudo -n -u {username}`; `gpuspawner files DIR --sudoers` writes the rules for sudo. Without `wrapper_dir` it
        must preserve the environment, which contains the job's token: sudo needs `-E`, and SETENV in the sudoers file.
        A hub that runs as root may use `runuser -u {username} --`.""",
    )
    dangerously_run_servers_as_root = Bool(
        False,
        config=True,
        help="""Whether servers may run as root, where `exec_prefix` does not run sbatch as another account: whoever
        signs in is then root of the cluster. Only for tests on a machine that nobody else uses. Otherwise such a hub
        does not start, and a job that turns out to be root's is cancelled.""",
    ).tag(of_the_hub=True)
    wrapper_dir = Unicode(
        "",
        config=True,
        help="""Folder of the scripts `submit`, `trial`, `cancel`, `log` and others, which `gpuspawner files DIR
        --wrappers` writes. They run as the server's user in place of sbatch and scancel, and read the end of a log.
        With a prefix that begins with ssh, it is a folder of the login node. They take only standard input, so that
        sudo can allow exactly these scripts, without `-E`. Empty: run sbatch and scancel directly.""",
    )
    query_prefix = Unicode(
        "",
        config=True,
        help="""Prefix that runs the script `query` of `wrapper_dir`, such as `ssh login`, for everything that the hub
        asks Slurm: squeue, scontrol show, sinfo, sacctmgr show, sshare, and the accounts of its users (getent). The
        hub's machine then needs neither Slurm nor munge nor its users' accounts. It is split into words, without a
        shell; after ssh's destination each word is quoted for the shell of the other machine. `exec_prefix` begins with
        the same words: `ssh login sudo -n -u {username}`. Scripts of `wrapper_dir` that extensions add, such as `twin`,
        are run in the same way. Empty: the commands on the hub's machine.""",
    )
    req_homedir = OptionText(
        "",
        config=True,
        help="Home folder of the job's user; `{username}` is replaced. Empty: the home of the user's account.",
    )
    req_nnodes = Unicode(
        "", config=True, help="Number of nodes if the profile sets none; the server runs on the first."
    )
    req_constraint = Unicode(
        "", config=True, help="Slurm's `--constraint` if the profile sets none, such as `a100&nvlink`."
    )
    req_nice = Unicode(
        "", config=True, help="Slurm's `--nice` if the profile sets none: by how much jobs give way, such as `100`."
    )
    gpus_option = Enum(
        ("gres", "gpus"),
        "gres",
        config=True,
        help="""The option of sbatch with which a server on one node asks for its GPUs: `--gres=gpu:2` or `--gpus=2`.
        Where gres.conf has `Links=`, or `AutoDetect=nvml` sets it, Slurm 24.11 and 26.05 grant linked GPUs for `--gpus`
        alone, and for `--gres` those with the fewest links. A job_submit plugin of the site must know the option:
        `tres_per_job` instead of `tres_per_node`. Your own `batch_script` is not changed.""",
    )
    hub_name = Unicode(
        config=True,
        help="""Name of this hub in the comments of its jobs. It must stay the same over restarts, and differ between
        the hubs of a cluster.""",
    )
    job_name = OptionText(
        "jupyterhub-{start}",
        config=True,
        help="""Slurm's job name. `{start}` is replaced by a unique id, by which the hub finds a job again if a plugin
        of the site replaces comments; without it, jobs cannot be found there. Your own `batch_script` sets the name
        itself.""",
    )
    log_dir = OptionText(
        OWN_LOG_DIR,
        config=True,
        help="""Folder of the jobs' logs, as a path on the nodes; `{homedir}` and `{username}` are replaced. The default
        folder is made by the jobs, and has the last twenty logs of each person: Slurm opens a log in the home, and the
        job moves it as it begins. Any other folder must exist, and is yours to clean up.""",
    )
    slurm_bin_dir = Unicode("", config=True, help="Folder of Slurm's commands. Empty: they are found through PATH.")
    slurm_conf = Unicode(
        "",
        config=True,
        help="""Path of the slurm.conf that the commands read. Empty: that of the hub's `SLURM_CONF`, or Slurm's usual
        place.""",
    )
    req_cluster = OptionText(
        "",
        config=True,
        help="""Name of another cluster in the slurmdbd of this machine's Slurm, to which all commands are sent
        (`--clusters`, `-M`). Empty: the cluster of slurm.conf. In a federation it is the name of that cluster, too:
        servers then start there alone.""",
    )
    clusters = ClusterSettings(
        config=True,
        help="""The clusters on which the hub starts servers, by name, each with the settings that are its own:
        `{"juniper": {}, "cedar": {"query_prefix": "ssh cedar", "exec_prefix": "ssh cedar sudo -n -u {username}",
        "wrapper_dir": "/opt/gpuspawner"}}`. Any setting of this class may be among them, except names of the hub and
        of its jobs; one that is left out has the value that it has for all. A server is on the cluster that
        `slurm.cluster` of its profile names, or else on the first. Empty: one cluster, without a name.""",
    )

    cluster = Unicode("", help="The name of the server's cluster in `clusters`; empty in a hub that names none.")
    slurm_timeout = Seconds(
        DEFAULT_TIMEOUT,
        low=0.5,
        high=600,
        config=True,
        help="""Time-out of a Slurm command, in seconds. The default is a little longer than the commands themselves try
        to reach a slurmctld that is down, so that they can say so.""",
    )
    queue_timeout = Wait(
        "UNLIMITED",
        config=True,
        help="""How long a job may wait in Slurm's queue before its start is given up, if the profile sets nothing: a
        time such as `4:00:00`, or UNLIMITED. `start_timeout` counts from the allocation, so a start that waits in the
        queue is not given up for any other reason than this one. A job that has a deadline of its own (`--deadline`) is
        removed by Slurm.""",
    )
    placement_policy = Enum(POLICIES, "best-effort", config=True, help="Placement policy if the profile sets none.")
    memory_policy = Enum(
        MEMORY_POLICIES,
        "preferred",
        config=True,
        help="""How servers get memory of the NUMA nodes of their CPUs (set_mempolicy(2)): of these nodes first
        (`preferred`), of no others (`bind`), or as the kernel decides (`none`).""",
    )
    port_range = PortRange(
        "", config=True, help="Range of ports for servers on the nodes, such as `20000-20999`. Empty: any port."
    )
    topology_file = Unicode(
        "",
        config=True,
        help="Topology file to use instead of discovery on the nodes; `{node}` is replaced by the node's name.",
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hub_state = state_for(self)
        """What the hub keeps for all of its servers."""
        self.submit_command = SubmitCommand()
        self._command_fault: ConfigError | None = None
        self._take_submit_command()
        self._timeout_of_all = self.slurm_timeout  # as configured, whatever a profile, a group or a hook sets later
        own = {name for settings in self.clusters.values() for name in settings}
        self._of_all_clusters = {name: copy.deepcopy(getattr(self, name)) for name in own}
        for name, value in self.cluster_settings(self.first_cluster).items():
            setattr(self, name, value)

    def _take_submit_command(self) -> None:
        """Have batchspawner's ``batch_submit_cmd`` mean what it meant there: its prefix, folder and options."""
        try:
            if self.batch_submit_cmd == SUBMIT and not needs_shell(self.exec_prefix):
                return
            where = self.configured_as("batch_submit_cmd")
            self.submit_command = submit_command(self.exec_prefix, self.batch_submit_cmd, where=where)
        except ConfigError as fault:  # with which the hub does not start
            self._command_fault = fault
            return
        self.exec_prefix, self.batch_submit_cmd = self.submit_command.prefix, SUBMIT
        self.slurm_bin_dir = self.slurm_bin_dir or self.submit_command.bin_dir
        named = [option.value for option in self.submit_command.options if option.name == "clusters"]
        self.req_cluster = named[-1] if named else self.req_cluster

    def check_command(self, of: Effective | SlurmSettings) -> None:
        """Raise ConfigError for a ``batch_submit_cmd`` that could not be taken over."""
        if self._command_fault is not None:
            raise self._command_fault
        if of.batch_submit_cmd != SUBMIT:
            raise ConfigError(
                "batch_submit_cmd is the same for all servers.",
                where=self.configured_as("batch_submit_cmd"),
                hint=COMMAND_HINT,
            )

    def check_account(self, settings: Effective | None = None) -> None:
        """Raise ConfigError where servers would run as root; by default with the settings of this server's start.

        Reads the account database, so it may block.
        """
        of = settings or self
        self.check_command(of)
        if not self.dangerously_run_servers_as_root and runs_as_root(command_prefix(of.exec_prefix, "somebody")):
            raise as_root(self.configured_as("exec_prefix"))

    @validate("start_timeout", "http_timeout")
    def _at_least_a_second(self, proposal: Any) -> int:
        """JupyterHub defines these without bounds, and every start would fail with them."""
        value: int = proposal["value"]
        if value < 1:
            raise TraitError(f"{proposal['trait'].name}: {value} must be at least 1 second.")
        return value

    @validate("req_cluster")
    def _one_cluster(self, proposal: Any) -> str:
        """Slurm takes several names, and ``all``; the jobs of all would be printed as if they were one's."""
        name: str = proposal["value"]
        if name and (name == "all" or not _CLUSTER.fullmatch(name)):
            raise TraitError(f"req_cluster: {name!r} must be the name of one cluster.")
        return name

    @default("hub_name")
    def _hub_name_default(self) -> str:
        port = self.hub.port if self.hub is not None else JUPYTERHUB_PORT
        return socket.gethostname() if port == JUPYTERHUB_PORT else f"{socket.gethostname()}-{port}"

    @property
    def first_cluster(self) -> str:
        """The cluster of servers whose profile names none; empty in a hub that names no clusters."""
        return next(iter(self.clusters), "")

    def cluster_settings(self, name: str) -> dict[str, Any]:
        """Each setting that any cluster has as its own, as it is on this one; raises ConfigError for an unknown one.

        Empty in a hub that names no clusters.
        """
        if not self.clusters and not name:
            return {}
        if name not in self.clusters:
            named = f"Clusters of this hub are {', '.join(self.clusters)}." if self.clusters else "This hub names none."
            raise ConfigError(f"There is no cluster {name!r} in clusters.", where="slurm.cluster", hint=named)
        return copy.deepcopy({**self._of_all_clusters, **self.clusters[name], "cluster": name})

    def effective(self, cluster: str, traits: Mapping[str, Any] = NOTHING, *, where: str = "") -> Effective:
        """The settings of servers on a cluster, with those of a profile's ``traits``; raises ConfigError."""
        own = self.checked(self.cluster_settings(cluster), where=f"{self.configured_as('clusters')}: {cluster}")
        return Effective(self, own | self.checked(self.with_site(traits), where=where))

    def configured_as(self, name: str) -> str:
        """A setting as the admin wrote it, such as ``c.GPUSlurmSpawner.req_partition``."""
        raise NotImplementedError

    def connection(self, settings: Effective | None = None) -> Cluster:
        """The cluster of these settings, by default of this server's; all servers there share it."""
        of = settings or self
        at = Location(
            of.cluster,
            bin_dir=of.slurm_bin_dir,
            slurm_conf=of.slurm_conf,
            req_cluster=of.req_cluster,
            wrapper_dir=of.wrapper_dir,
            query_prefix=fixed_prefix(of.query_prefix, where="query_prefix"),
            timeout=self.clusters.get(of.cluster, {}).get("slurm_timeout", self._timeout_of_all),
        )
        return self.hub_state.of(Clusters)[at]

    def as_user(self) -> tuple[str, ...]:
        """``exec_prefix`` as words: the prefix that runs a command as the server's user."""
        return command_prefix(self.exec_prefix, self.user.name)

    contact: Any = CONTACT
    """Whom participants may ask; an admin sets it for a hub with profiles."""

    def expected_identity(self) -> JobIdentity:
        """Owner and comment of this server's jobs, whatever their start."""
        return JobIdentity(
            owner=job_owner(self.exec_prefix, self.user.name), tag=tag(self.hub_name, self.user.name, self.name)
        )

    def requested(self) -> tuple[str, ...]:
        """Names of the ``req_*`` settings, without those that batchspawner takes from the account database."""
        plain = (name for cls in type(self).__mro__ for name, value in vars(cls).items() if not callable(value))
        names = dict.fromkeys((*self.trait_names(), *plain))  # also a subclass's attributes
        return tuple(name for name in names if name.startswith("req_") and name not in OF_THE_ACCOUNT)
