"""The hub's machine and its way to the nodes: address, environment, paths, secrets, clock, name and time-outs."""

from __future__ import annotations

import binascii
import os
import re
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from jupyterhub_gpuspawner.batch.job import OBSERVE_SECONDS
from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, ServerExtensions, chosen, names_for
from jupyterhub_gpuspawner.site.configuration import COOKIE_FILE, application, sqlite_file
from jupyterhub_gpuspawner.site.configured import CLEANUP, KEEP_SERVERS, ends_servers, exposed_mode
from jupyterhub_gpuspawner.site.database import DEFAULT, is_readable
from jupyterhub_gpuspawner.slurm.job import Phase, hub_mark, parse_tag, start_of
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState
from jupyterhub_gpuspawner.tasks import resolved

LOOPBACK = Code(
    "hub-address-loopback",
    "Nodes are told a loopback address of the hub, or the hub listens on one alone, and there are nodes on other "
    "machines.",
)
FOREIGN = Code(
    "hub-address-foreign", "The hub's settings have it listen on an address that this machine does not have."
)
UNRESOLVED = Code(
    "node-unresolved", "This machine cannot resolve the address of a node, so it reaches no server there."
)
SAMPLE = 8
"""Nodes that are looked at, one for each partition at least."""
_ANY = ("", "0.0.0.0", "::")
_SETTINGS = ("hub_connect_url", "hub_connect_ip", "hub_bind_url", "hub_ip")
_AWAY = frozenset(("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "FUTURE", "CLOUD", "DOWN"))
"""States of nodes whose address may not be known yet."""


@dataclass(frozen=True)
class HubAddress:
    """Where the hub listens, and where nodes look for it."""

    url: str
    """The URL of the hub's API that a job gets."""
    setting: str
    """The setting that decides it, such as ``c.JupyterHub.hub_ip``."""
    listens: str
    """The address that the hub binds; empty for all of the machine's, and for a Unix socket."""
    port: int

    @property
    def host(self) -> str:
        """The host of :attr:`url`."""
        return urlsplit(self.url).hostname or ""


def hub_address(context: Context) -> HubAddress:
    """Work out the hub's addresses as JupyterHub does; raises ConfigError."""
    config, hub = context.site.config, application(context.site.config).hub
    spawner: Any = context.spawner
    setting = next((name for name in _SETTINGS if config.JupyterHub.get(name)), "hub_ip")
    url, setting = str(hub.api_url), f"c.JupyterHub.{setting}"
    if spawner.hub_connect_url is not None:
        url = spawner.hub_connect_url.rstrip("/") + urlsplit(url).path
        setting = context.setting("hub_connect_url")
    own = spawner.environment.get("JUPYTERHUB_API_URL")
    if isinstance(own, str):
        url, setting = own, context.setting("environment")
    listens = "" if hub.ip in _ANY else str(hub.ip)
    return HubAddress(url, setting, listens, int(hub.port or 0))


async def check_address(context: Context) -> AsyncIterator[Finding]:
    """Compare the hub's address with those of the nodes."""
    if context.snapshot is None:
        return
    try:
        hub = hub_address(context)
    except ConfigError:  # which the check of names reports
        return
    elsewhere: tuple[str, str] | None = None
    for node in sample(context.snapshot):
        addresses = await resolved(node.address)
        if not addresses and not any(ways_of(context.spawner).each(WithServer.carries)):
            yield UNRESOLVED.warning(
                f"node {node.name}",
                f"this machine cannot resolve {node.address!r}, the node's address in Slurm (NodeAddr).",
                "Add the name to DNS or to /etc/hosts of the hub's machine: the hub's proxy connects to it.",
            )
        elif addresses and not any(map(is_own, addresses)):
            elsewhere = elsewhere or (node.name, addresses[0])
    for finding in _of_loopback(hub, *elsewhere) if elsewhere is not None else ():
        yield finding
    if elsewhere is not None and is_loopback(str(context.spawner.ip)):
        text = f"servers listen on {context.spawner.ip} alone, and {elsewhere[0]} is another machine than the hub's."
        yield LOOPBACK.error(context.setting("ip"), text, "Remove it: by default they listen on all addresses.")
    if hub.listens and not is_loopback(hub.listens) and not _is_own_host(await resolved(hub.listens)):
        yield FOREIGN.warning(
            f"c.JupyterHub.{'hub_bind_url' if context.site.config.JupyterHub.get('hub_bind_url') else 'hub_ip'}",
            f"the hub would listen on {hub.listens}, which is not an address of this machine: a hub that is started "
            "here exits.",
            "Use an address that `ip address` lists, and hub_connect_ip if nodes reach the hub at another one.",
        )


def ways_of(spawner: Any) -> ServerExtensions:
    """What the extensions of the hub keep with one server: in this program, no hub has them."""
    return HubExtensions(chosen(names_for(spawner)), spawner.hub_state).with_server(spawner)


def _of_loopback(hub: HubAddress, node: str, address: str) -> Iterator[Finding]:
    fix = f"Set c.JupyterHub.hub_ip to the address of this machine in the cluster's network{_suggested(address)}."
    if is_loopback(hub.host):
        yield LOOPBACK.error(
            hub.setting,
            f"nodes are told to reach the hub at {hub.url}, which on {node} is {node} itself: no server could report "
            "to the hub.",
            fix,
        )
    elif is_loopback(hub.listens) and _is_own_host((hub.host,)) and urlsplit(hub.url).port == hub.port:
        text = f"the hub listens on {hub.listens} alone, and {node} is told to reach it at {hub.url}."
        yield LOOPBACK.error("c.JupyterHub.hub_ip", text, fix)


def sample(snapshot: ClusterSnapshot) -> Sequence[NodeState]:
    """Some nodes that are up: the first one of each partition, then others."""
    nodes = {node.name: node for node in snapshot.nodes if node.address and not node.states & _AWAY}
    firsts = [next((name for name in partition.nodes if name in nodes), None) for partition in snapshot.partitions]
    names = dict.fromkeys(name for name in (*firsts, *nodes) if name is not None)
    return [nodes[name] for name in list(names)[:SAMPLE]]


def is_loopback(host: str) -> bool:
    """Whether a host is the machine that asks, whichever that is."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_own(address: str) -> bool:
    """Whether this machine has an address: whether a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _is_own_host(hosts: Sequence[str]) -> bool:
    """The same for addresses; a name that is not resolved is taken for this machine's."""
    return not hosts or any(is_own(host) for host in hosts)


def _suggested(node: str) -> str:
    """``, such as ADDRESS``: the one from which this machine reaches a node; empty if there is no route."""
    own = own_address(node)
    return f", such as {own}" if own else ""


def own_address(node: str) -> str:
    """The address from which this machine reaches a node; empty if there is no route, or the node is this machine."""
    family = socket.AF_INET6 if ":" in node else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((node, 9))  # of UDP: chooses a route, and sends nothing
            own = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if is_loopback(own) else own


# Variables of the job's environment that change what sbatch does.
#
# sbatch's variables (``SBATCH_...``) come before the ``#SBATCH`` lines of a script (sbatch(1), INPUT ENVIRONMENT
# VARIABLES). The hub's own environment does not reach sbatch, except for what ``environment`` and ``env_keep`` pass
# on; with the wrapper scripts nothing of it does, but the job still gets it.

VARIABLE = Code(
    "slurm-variable",
    "A variable of Slurm's commands (SBATCH_..., SLURM_...) is passed to every job, and overrides what it asks for or "
    "what Slurm says in it.",
)
_HARMLESS = frozenset(("SLURM_CONF",))


@names_no_cluster
def check_environment(context: Context) -> Iterator[Finding]:
    """Look at the variables that servers are given."""
    spawner = context.spawner
    by_sbatch = not (spawner.wrapper_dir and spawner.exec_prefix.strip())
    names = [("environment", name) for name in sorted(spawner.environment)]
    names += [("env_keep", name) for name in sorted(spawner.env_keep) if name in os.environ]
    for setting, name in names:
        where = f"{context.setting(setting)}: {name}"
        if name == "SBATCH_EXPORT" and by_sbatch:
            text = "this variable keeps the hub's variables from every job, so that no server can sign in to the hub."
            yield VARIABLE.error(where, text, "Remove it.")
        elif name.startswith("SBATCH_") and by_sbatch:
            text = "this variable is read by sbatch, and overrides what profiles request."
            yield VARIABLE.error(where, text, "Remove it.")
        elif name.startswith(("SBATCH_", "SLURM_")) and name not in _HARMLESS:
            text = "this variable changes what Slurm's commands do within every server."
            yield VARIABLE.warning(where, text, "Remove it.")


# Paths on the nodes that are made of settings: whether everything in them that looks like a variable is replaced.

LITERAL = Code(
    "path-not-replaced",
    "log_dir or req_homedir contains a field that is not replaced, or a variable or ~, which no shell reads there.",
)
FIELDS = {"log_dir": ("{homedir}", "{username}"), "req_homedir": ("{username}",)}
"""What is replaced in each setting."""
_LIKE_A_VARIABLE = re.compile(r"\{\w*\}|\$\{?\w+\}?|^~\w*")


@names_no_cluster
def check_paths(context: Context) -> Iterator[Finding]:
    """Look at the settings alone."""
    for name, fields in FIELDS.items():
        value = str(getattr(context.spawner, name))
        literal = [part for part in _LIKE_A_VARIABLE.findall(value) if part not in fields]
        if literal:
            yield LITERAL.error(
                context.setting(name),
                f"{literal[0]} in {value!r} is not replaced, so jobs would look for a folder that is called so.",
                f"Write {' or '.join(fields)}, or the path itself.",
            )


# The certificate and the key of the hub: whether they are there, and who can read the key.

TLS = Code("tls-file", "A certificate or key of the hub's is missing, or its key can be read by every account.")


@names_no_cluster
def check_secrets(context: Context) -> Iterator[Finding]:
    """Look at the files' modes."""
    hub = context.site.config.JupyterHub
    for name in ("ssl_key", "ssl_cert"):
        where, file = f"c.JupyterHub.{name}", hub.get(name)
        if not isinstance(file, str) or not file:
            continue
        path = context.site.file(file)
        if path is None:
            text = f"{file} is in the working directory of the hub, which is not known here."
            yield TLS.warning(where, text, "Give the full path of a file in PEM format.")
            continue
        try:
            mode = exposed_mode(path, stat.S_IROTH)
        except FileNotFoundError:
            yield TLS.error(where, f"there is no file {file}.", "Give the full path of a file in PEM format.")
            continue
        except OSError:  # this account may not look
            continue
        if name == "ssl_key" and mode:
            yield TLS.error(where, f"every account can read {file} (mode {mode:04o}).", f"Run chmod 600 {file}.")


# The hub's database, which other checks leave out where this account may not read it.

UNREAD = Code(
    "database-unread",
    "The account that runs the check may not read the hub's SQLite database. Who else can read it, whether it takes "
    "changes, and its users and groups are not checked.",
)


@names_no_cluster
def check_database(context: Context) -> Iterator[Finding]:
    """Look whether this account may read it."""
    path = context.site.file(sqlite_file(str(context.site.config.JupyterHub.get("db_url", DEFAULT))))
    try:
        if path is not None:
            is_readable(path)
    except ConfigError as error:
        yield UNREAD.warning("database", error.message, error.hint)


# Whether another hub submits jobs under this hub's name.
#
# Every job's comment names the hub, and ends in a mark made from the hub's cookie secret; see
# :mod:`jupyterhub_gpuspawner.slurm.job`. Jobs with the name and another mark belong to another hub, or to this one
# before it lost its secret.

START = "check"
"""The mark in the comments of this command's own jobs, in place of a hub's."""
SAME_NAME = Code(
    "hub-name-shared",
    "Slurm has jobs of this hub's name that another hub submitted, or this one with another cookie secret.",
)


async def check_same_name(context: Context) -> AsyncIterator[Finding]:
    """Look at the marks of the jobs that carry this hub's name."""
    if context.snapshot is None:
        return
    name, mine = context.spawner.hub_name, _own_mark(context)
    marks: dict[str, str] = {}
    for job_id, job in (await context.client.every_job()).items():
        tag, mark = parse_tag(job.tag), start_of(job.tag).partition("-")[0]
        if tag is not None and tag[0] == name and mark not in ("", START, mine) and job.phase is not Phase.ENDED:
            marks[job_id] = mark
    hubs = len(set(marks.values()))
    if not hubs or (mine is None and hubs < 2):  # one hub: probably this one
        return
    listed = ", ".join(sorted(marks, key=int)[:3]) + (", ..." if len(marks) > 3 else "")
    whose = "of another hub, or of this one with an earlier cookie secret" if mine else f"of {hubs} hubs"
    yield SAME_NAME.error(
        context.setting("hub_name"),
        f"Slurm has {len(marks)} jobs {whose} under the name {name!r} (job {listed}).",
        "Give each hub of the cluster a hub_name of its own; after the loss of a cookie secret, cancel these jobs.",
    )


def _own_mark(context: Context) -> str | None:
    """The mark of this hub; None if its secret is not known to this account, or there is none yet."""
    secret = context.site.config.JupyterHub.get("cookie_secret") or os.environ.get("JPY_COOKIE_SECRET")
    if isinstance(secret, bytes):
        return hub_mark(secret)
    try:
        if not isinstance(secret, str):
            file = context.site.file(str(context.site.config.JupyterHub.get("cookie_secret_file", COOKIE_FILE)))
            secret = file.read_text("ascii").strip() if file is not None else ""
        return hub_mark(binascii.a2b_hex(secret)) or None
    except (OSError, ValueError):
        return None


# What becomes of the servers when the hub is stopped.

ENDS_SERVERS = Code("servers-end-with-hub", "A hub that is stopped cancels all jobs, which nobody has decided.")


@names_no_cluster
def check_hub_stop(context: Context) -> Iterator[Finding]:
    """Look at JupyterHub's setting, whose default suits servers that are processes of the hub's own machine."""
    if ends := ends_servers(context.site.config):
        yield ENDS_SERVERS.warning(CLEANUP, ends, KEEP_SERVERS)


# Time-outs of a start that are shorter than what happens meanwhile.

START_TIMEOUT = Code(
    "start-timeout-short",
    "start_timeout is shorter than what happens between the job's start and the launcher's report.",
)
LAUNCHER = 20.0
"""Seconds that the launcher may take for its first report, beside reading the hardware (``node/main.py``)."""


@names_no_cluster
def check_timeouts(context: Context) -> Iterator[Finding]:
    """Compare the settings with the launcher's time."""
    site, least = context.spawner, OBSERVE_SECONDS + LAUNCHER
    starts = {context.setting("start_timeout"): site.start_timeout}
    for profile in context.of_slurm():
        if profile.start_timeout is not None:
            starts[f"profile {profile.slug}: start_timeout"] = profile.start_timeout
    for where, seconds in starts.items():
        if seconds < least:
            yield START_TIMEOUT.warning(
                where,
                f"{seconds} s is less than the launcher may take on a node ({least:g} s), without the modules or the "
                "environment of a profile.",
                "Use the default of 300, or more; time in the queue does not count.",
            )
