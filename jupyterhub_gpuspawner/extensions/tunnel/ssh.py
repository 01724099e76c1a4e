"""The words of ssh's commands that make, end and look after forwards, and what ssh says. Pure.

One ssh, the master, holds the connection; it is told what to forward through its control socket (ssh_config(5)).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.commands import fixed_prefix
from jupyterhub_gpuspawner.slurm.login_node import destination

LOOPBACK = "127.0.0.1"
"""Where the hub's end of a forward listens."""
_HINT = "Use ssh [OPTION]... LOGIN-NODE, such as ssh -F /etc/jupyterhub/ssh/tunnel_ssh_config tunnel."
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})", re.ASCII)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}", re.ASCII)
_PID = re.compile(r"Master running \(pid=([0-9]+)\)")
_OPTIONS = ("ClearAllForwardings=no", "ExitOnForwardFailure=no", "BatchMode=yes", "RemoteCommand=none")
"""Whatever ssh's configuration says: with ClearAllForwardings, a request to forward does nothing, and succeeds."""
_OF_MASTER = ("ControlMaster=auto", "ControlPersist=no", "RequestTTY=no", "PermitLocalCommand=no")
"""``auto`` removes the socket of a master that was killed; ``yes`` would leave it, and serve nobody."""


def tunnel_words(text: str, *, where: str) -> tuple[str, ...]:
    """The setting as words; raises ConfigError that names the setting for anything but an ssh with a destination."""
    words = fixed_prefix(text, where=where, hint=_HINT)
    if not words:
        return ()
    try:
        is_plain = PurePath(words[0]).name == "ssh" and destination(words) == words
    except ConfigError as error:
        raise ConfigError(error.message, where=where, hint=error.hint) from error
    if not is_plain:
        raise ConfigError(f"{text!r} is no ssh to a login node.", where=where, hint=_HINT)
    return words


@dataclass(frozen=True)
class Forward:
    """A port of the hub's machine that leads to a server."""

    local: int
    """The port of :data:`LOOPBACK`."""
    host: str
    """The server's host, as the login node knows it."""
    port: int

    @property
    def words(self) -> tuple[str, str]:
        """The option for ssh."""
        return "-L", f"{LOOPBACK}:{self.local}:{bracketed(self.host)}:{self.port}"


@dataclass(frozen=True)
class Reverse:
    """A port of the login node that leads to the hub."""

    listen: str
    """The address there."""
    port: int
    hub_host: str
    """Where the hub listens, as its own machine knows it."""
    hub_port: int

    @property
    def words(self) -> tuple[str, str]:
        """The option for ssh."""
        return "-R", f"{bracketed(self.listen)}:{self.port}:{bracketed(self.hub_host)}:{self.hub_port}"


def is_host(text: str) -> bool:
    """Whether a text can stand in a forward as its host, and be nothing else: a name or an address."""
    return _HOST.fullmatch(text) is not None or (":" in text and _IPV6.fullmatch(text) is not None)


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def control_path(configuration: str) -> str:
    """ControlPath in what ``ssh -G`` prints; empty where there is none."""
    words = (line.partition(" ") for line in configuration.splitlines())
    path = next((value for name, _, value in words if name.lower() == "controlpath"), "")
    return "" if path == "none" else path.strip()


def with_options(words: Sequence[str], options: Iterable[str], *flags: str) -> tuple[str, ...]:
    """ssh with these options before its own, which thereby count."""
    settings = (word for option in options for word in ("-o", option))
    return (words[0], *settings, *flags, *words[1:])


def start_command(words: Sequence[str], path: str) -> tuple[str, ...]:
    """Connects, and stays in the background as the master with this socket; fails where it cannot connect."""
    return with_options(words, (*_OPTIONS, *_OF_MASTER, f"ControlPath={path}"), "-f", "-N")


def control_command(words: Sequence[str], path: str, request: str, *forwards: Forward | Reverse) -> tuple[str, ...]:
    """Has the master with this socket ``check``, ``forward``, ``cancel`` or ``exit``."""
    options = (word for forward in forwards for word in forward.words)
    return with_options(words, (*_OPTIONS, f"ControlPath={path}"), "-O", request, *options)


def master_pid(printed: str) -> int:
    """The process id of the master in the answer to ``check``; 0 where there is none."""
    running = _PID.search(printed)
    return int(running[1]) if running else 0
