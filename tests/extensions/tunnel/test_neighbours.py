"""Who else may listen at the hub's end of a forward."""

from __future__ import annotations

import os
import subprocess

import pytest

from jupyterhub_gpuspawner.extensions.tunnel.neighbours import Machine, is_reserved, others, overlaps, this_machine

OWN = 990
SYSTEM = [
    ("root", 0, "/bin/bash"),
    ("daemon", 1, "/usr/sbin/nologin"),
    ("sync", 4, "/bin/sync"),
    ("jupyterhub", OWN, "/bin/sh"),
    ("nobody", 65534, "/usr/sbin/nologin"),
]
USUAL = Machine(1024, (32768, 60999), SYSTEM)


@pytest.mark.parametrize(
    ("accounts", "names"),
    [
        ([], []),
        ([("ada", 1000, "/bin/bash")], ["ada"]),
        ([("postgres", 114, "/bin/bash"), ("ada", 1000, "/usr/bin/zsh")], ["ada", "postgres"]),
        ([("ben", 1001, "/usr/sbin/nologin"), ("eve", 1002, "/bin/false")], []),
        ([("toor", 0, "/bin/sh")], []),
        ([("plain", 1003, "")], ["plain"]),
    ],
)
def test_others_are_those_who_may_sign_in(accounts: list[tuple[str, int, str]], names: list[str]) -> None:
    """Neither root nor the hub's own account; an empty shell is /bin/sh (passwd(5))."""
    assert others(Machine(1024, (32768, 60999), [*SYSTEM, *accounts]), OWN) == names


@pytest.mark.parametrize(
    ("ports", "unprivileged_from", "reserved"),
    [((26000, 27999), 1024, False), ((26000, 27999), 28000, True), ((26000, 27999), 27999, False)],
)
def test_ports_are_reserved_below_where_any_account_may_listen(
    ports: tuple[int, int], unprivileged_from: int, *, reserved: bool
) -> None:
    """All of them (ip_unprivileged_port_start)."""
    assert is_reserved(ports, Machine(unprivileged_from, (32768, 60999), SYSTEM)) is reserved


@pytest.mark.parametrize(
    ("ports", "ephemeral", "both"),
    [
        ((26000, 27999), (32768, 60999), False),
        ((32000, 32768), (32768, 60999), True),
        ((60999, 61500), (32768, 60999), True),
        ((26000, 27999), (1024, 65535), True),
        ((61000, 61500), (32768, 60999), False),
    ],
)
def test_ports_that_the_kernel_gives_to_connections_are_named(
    ports: tuple[int, int], ephemeral: tuple[int, int], *, both: bool
) -> None:
    """Ends included."""
    assert overlaps(ports, Machine(1024, ephemeral, SYSTEM)) is both


def test_this_machine_says_what_the_kernel_and_the_account_database_do() -> None:
    """The kernel's own files."""
    machine = this_machine()

    assert 0 <= machine.unprivileged_from <= 65536
    assert 0 < machine.ephemeral[0] < machine.ephemeral[1] < 65536
    assert "root" in [name for name, _, _ in machine.accounts]


LISTEN = "import socket; socket.create_server(('127.0.0.1', 26000)).close()"


@pytest.mark.users
@pytest.mark.parametrize(
    ("first_free", "capability", "listens"),
    [("1024", "", True), ("28000", "", False), ("28000", "+net_bind_service", True)],
)
def test_another_account_cannot_listen_at_reserved_ports(first_free: str, capability: str, *, listens: bool) -> None:
    """What `check` advises: only who has the capability can, as ssh that a hub with it starts."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    account = ["setpriv", "--reuid=64043", "--regid=64043", "--clear-groups"]
    if capability:
        account += [f"--inh-caps={capability}", f"--ambient-caps={capability}"]
    setting = f'echo {first_free} > /proc/sys/net/ipv4/ip_unprivileged_port_start; ip link set lo up; exec "$@"'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", setting, "sh", *account, "/usr/bin/python3", "-c", LISTEN],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )

    assert (done.returncode == 0, "Permission denied" in done.stderr) == (listens, not listens), done.stderr
