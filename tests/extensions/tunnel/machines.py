"""Three machines on this host: the hub's, which is this one, a login node, and a node that the hub cannot reach.

Login node and node are network namespaces. The hub has a route to the login node alone, which has one to the node; a
packet of the hub's to the node has no route. The login node has a real sshd with the lines that the extension ships.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from jupyterhub_gpuspawner.site.config_files import shipped_text
from tests.waiting import wait_until

PORTS = (20000, 20299)
"""Of the node, to which the login node forwards."""
NODE_IPV6 = "fd23::2"
"""Of the node, which the login node reaches as well."""
BACK = 25681
"""Of the login node, which leads to the hub."""
SERVER = """
import socket, sys, threading
def answer(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)
def serve(port):
    listening = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()
for port in map(int, sys.argv[1:]):
    threading.Thread(target=serve, args=(port,)).start()
print("ready", flush=True)
"""
"""Sends back what it gets, on each of these ports."""


def missing() -> str:
    """Why this cannot be tried here; empty if it can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in ("ip", "ssh", "ssh-keygen", "sshd", "unshare") if not shutil.which(name, path=path)]
    if absent:
        return f"{', '.join(absent)} not found (packages iproute2, openssh-client, openssh-server)"
    return subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False).stderr.strip()


@dataclass
class Machines:
    """The login node and the node; use :func:`machines`."""

    folder: Path
    permit_open: Sequence[str] = ()
    """Of sshd; empty: all :data:`PORTS` of the node."""
    sshd: subprocess.Popen[bytes] | None = None
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        number = os.getpid() % (1 << 14)
        net = f"10.232.{number >> 6}.{(number & 63) * 4}".rsplit(".", 1)
        self.hub_address, self.login_address = (f"{net[0]}.{int(net[1]) + host}" for host in (1, 2))
        net = f"10.233.{number >> 6}.{(number & 63) * 4}".rsplit(".", 1)
        self.inner_address, self.node_address = (f"{net[0]}.{int(net[1]) + host}" for host in (1, 2))
        self.login, self.node = f"gptl{os.getpid()}", f"gptn{os.getpid()}"
        self.port = 2222
        self.ssh_config = self.folder / "ssh_config"

    @property
    def tunnel(self) -> str:
        """The setting."""
        return f"ssh -F {self.ssh_config} tunnel"

    # --- the network -----------------------------------------------------------------------------

    def connect(self, stack: ExitStack) -> None:
        """Make both namespaces and the two links."""
        for name in (self.login, self.node):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("-n", name, "link", "set", "lo", "up")
        outside = f"gpt{os.getpid()}"
        ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", self.login)
        stack.callback(ip, "link", "del", outside)
        ip("addr", "add", f"{self.hub_address}/30", "dev", outside)
        ip("link", "set", outside, "up")
        ip("-n", self.login, "addr", "add", f"{self.login_address}/30", "dev", "eth0")
        ip("-n", self.login, "link", "set", "eth0", "up")
        ip("-n", self.login, "link", "add", "eth1", "type", "veth", "peer", "name", "eth0", "netns", self.node)
        for name, link, address, ipv6 in (
            (self.login, "eth1", self.inner_address, "fd23::1"),
            (self.node, "eth0", self.node_address, NODE_IPV6),
        ):
            ip("-n", name, "addr", "add", f"{address}/30", "dev", link)
            ip("-n", name, "addr", "add", f"{ipv6}/64", "dev", link, "nodad")
            ip("-n", name, "link", "set", link, "up")
        ip("route", "add", "unreachable", f"{self.node_address}/32")
        stack.callback(ip, "route", "del", "unreachable", f"{self.node_address}/32")

    def cut(self) -> None:
        """Take the link between the hub and the login node away."""
        ip("-n", self.login, "link", "set", "eth0", "down")

    def mend(self) -> None:
        """Have it back."""
        ip("-n", self.login, "link", "set", "eth0", "up")

    # --- sshd --------------------------------------------------------------------------------------

    def write(self) -> None:
        """Keys, and the shipped files with the lines marked SITE changed."""
        self.folder.mkdir(exist_ok=True)
        for key in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True)
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        (self.folder / "known_hosts").write_text(f"[{self.login_address}]:{self.port} {kind} {key}\n")
        first, last = PORTS
        allowed = self.permit_open or [
            f"{host}:{port}" for host in (self.node_address, f"[{NODE_IPV6}]") for port in range(first, last + 1)
        ]
        self._write(
            "authorized_keys",
            {"ssh-ed25519 AAAA... jupyterhub@hub": (self.folder / "key.pub").read_text()}
            | {"10.0.0.10": self.hub_address},
        )
        self._write(
            "sshd_config",
            {
                "User jupyterhub-tunnel": "User root",
                "PermitOpen 10.0.1.1:20000 10.0.1.1:20001": f"PermitOpen {' '.join(allowed)}",
                "AllowTcpForwarding local": "AllowTcpForwarding yes",
                "PermitListen none": f"PermitListen {self.inner_address}:{BACK}\n    GatewayPorts clientspecified",
            },
            f"ListenAddress {self.login_address}\nPort {self.port}\nHostKey {self.folder}/host_key\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPermitRootLogin prohibit-password\n"
            "PidFile none\nUsePAM no\nStrictModes no\nLogLevel VERBOSE\nMaxStartups 200\n",
        )
        self._write(
            "ssh_config",
            {
                "HostName login.cluster.example": f"HostName {self.login_address}\n    Port {self.port}",
                "User jupyterhub-tunnel": "User root",
                "/etc/jupyterhub/ssh/id_ed25519": f"{self.folder}/key",
                "/etc/jupyterhub/ssh/known_hosts": f"{self.folder}/known_hosts",
                "/run/jupyterhub/tunnel-%C": f"{self.folder}/t",
            },
        )

    def _write(self, name: str, values: dict[str, str], head: str = "") -> None:
        (self.folder / name).write_text(head + changed(name, values))
        (self.folder / name).chmod(0o600)

    def start_sshd(self) -> None:
        """Start sshd on the login node, and wait until it accepts connections."""
        Path("/run/sshd").mkdir(exist_ok=True)
        with (self.folder / "sshd.log").open("ab") as log:
            self.sshd = subprocess.Popen(
                ["ip", "netns", "exec", self.login, "/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd_config"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        probe = ["ssh-keyscan", "-T", "1", "-p", str(self.port), self.login_address]
        wait_until(lambda: subprocess.run(probe, capture_output=True, check=False).stdout, "sshd", seconds=30)

    def stop_sshd(self) -> None:
        """End sshd and every connection, as when the login node is rebooted."""
        sshd, self.sshd = self.sshd, None
        if sshd is None:
            return
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(sshd.pid)
            for each in [process, *process.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        sshd.wait()

    def masters(self) -> list[psutil.Process]:
        """The hub's connections."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "name"])
            if process.info["name"] == "ssh" and str(self.ssh_config) in (process.info["cmdline"] or [])
        ]

    def end_masters(self, number: int = signal.SIGKILL) -> None:
        """Send each a signal."""
        for process in self.masters():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    @property
    def holder(self) -> str:
        """The socket of what holds the ports."""
        return str(self.folder / "tunnel-ports")

    def end_holder(self) -> None:
        """End what holds the ports."""
        for process in processes_with(self.holder):
            process.kill()

    # --- the node ----------------------------------------------------------------------------------

    def serve(self, *ports: int) -> None:
        """Have something listen at these ports of the node, which sends back what it gets."""
        server = subprocess.Popen(
            ["ip", "netns", "exec", self.node, sys.executable, "-c", SERVER, *map(str, ports)], stdout=subprocess.PIPE
        )
        self.servers.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"

    def connect_from_node(self, host: str, port: int) -> None:
        """Connect to this address from the node; raises CalledProcessError."""
        program = f"import socket; socket.create_connection(({host!r}, {port}), 5)"
        subprocess.run(["ip", "netns", "exec", self.node, sys.executable, "-c", program], check=True)

    def close(self) -> None:
        """End whatever was started."""
        self.end_masters()
        self.end_holder()
        self.stop_sshd()
        for server in self.servers:
            server.kill()
            server.communicate()


@contextmanager
def machines(folder: Path, *, permit_open: Sequence[str] = ()) -> Iterator[Machines]:
    """Both machines, with sshd running."""
    made = Machines(folder, permit_open)
    made.write()
    with ExitStack() as stack:
        stack.callback(made.close)
        made.connect(stack)
        made.start_sshd()
        yield made


def changed(name: str, values: dict[str, str]) -> str:
    """A file as the extension ships it, with these changes."""
    text = shipped_text(f"ssh/tunnel_{name}")
    for example, value in values.items():
        assert example in text, example
        text = text.replace(example, value)
    return text


def ip(*words: str) -> None:
    """Run ``ip`` with these words."""
    subprocess.run(["ip", *words], check=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})


def processes_with(word: str) -> list[psutil.Process]:
    """The processes of this host with this word in their command line."""
    return [each for each in psutil.process_iter(["cmdline"]) if word in (each.info["cmdline"] or [])]


def free_range(number: int) -> tuple[int, int]:
    """So many ports of this machine, one after the other; up to three are all free, of more the first is."""
    while True:
        first = free_ports(1)[0]
        try:
            for port in range(first, first + min(number, 3)):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first, first + number - 1
