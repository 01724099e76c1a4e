"""Who else may listen at the hub's end of a forward, once nothing holds it. Pure but for :func:`this_machine`.

The proxy sends the requests of a server's user there, with their cookies. The hub and the holder of its ports let
nobody listen there (:mod:`.ports`). A proxy that goes on when both are ended, as by systemd with the hub's unit, has
its routes still: then no other account of the hub's machine may be able to listen at the ports.
"""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from traitlets.config import Config

NO_SHELLS = frozenset({"nologin", "false", "sync", "halt", "shutdown"})
DIRECTORIES = frozenset({"sss", "ldap", "winbind", "nis", "nisplus", "hesiod"})
"""Sources of accounts that need not list them (nsswitch.conf(5))."""
_PROC = Path("/proc/sys/net/ipv4")


@dataclass(frozen=True)
class Machine:
    """What this machine says of its ports and accounts."""

    unprivileged_from: int
    """The first port at which an account may listen without CAP_NET_BIND_SERVICE."""
    ephemeral: tuple[int, int]
    """The ports that the kernel gives to connections."""
    accounts: Sequence[tuple[str, int, str]]
    """Name, uid and shell."""
    directories: Sequence[str] = ()
    """Where there may be accounts that are not among these."""


def this_machine() -> Machine:
    """Read what this machine says; what it does not, as it is by default."""
    low, high = _numbers("ip_local_port_range", (32768, 60999))
    try:
        lines = Path("/etc/nsswitch.conf").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    sources = next((line.partition(":")[2].split() for line in lines if line.startswith("passwd:")), [])
    return Machine(
        _numbers("ip_unprivileged_port_start", (1024,))[0],
        (low, high),
        [(entry.pw_name, entry.pw_uid, entry.pw_shell) for entry in pwd.getpwall()],
        [source for source in sources if source in DIRECTORIES],
    )


def _numbers(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(map(int, (_PROC / name).read_text("ascii").split()))
    except (OSError, ValueError):
        return default


def outlives_hub(config: Config) -> bool:
    """Whether the proxy of a hub with this configuration may run when the hub has been stopped."""
    hub, proxy = config.JupyterHub, config.ConfigurableHTTPProxy
    return bool(hub.get("proxy_class")) or not (proxy.get("should_start", True) and hub.get("cleanup_proxy", True))


def is_reserved(ports: tuple[int, int], machine: Machine) -> bool:
    """Whether only processes with CAP_NET_BIND_SERVICE may listen at these ports, first and last."""
    return ports[1] < machine.unprivileged_from


def overlaps(ports: tuple[int, int], machine: Machine) -> bool:
    """Whether the kernel gives some of these ports to connections, so that they may be taken by chance."""
    return ports[0] <= machine.ephemeral[1] and machine.ephemeral[0] <= ports[1]


def others(machine: Machine, own: int) -> list[str]:
    """The accounts that may sign in, without root and the account with the uid ``own``, which runs the hub."""
    return sorted(
        name
        for name, uid, shell in machine.accounts
        if uid not in (0, own) and shell.rpartition("/")[2] not in NO_SHELLS
    )
