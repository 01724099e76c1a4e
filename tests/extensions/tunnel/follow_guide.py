"""Follows the guide to nodes out of reach: ``python -m tests.extensions.tunnel.follow_guide FOLDER ENV``.

It runs as root, in namespaces of its own, as :mod:`tests.docs.follow` does. One machine is the hub's, the login node
and the nodes, with the address 10.0.0.10; the hub reaches its servers by ssh and sshd as on three. The output is a JSON
document with the commands of the guide.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.docs.follow import Reader, blocks, cluster, commands, prepare
from tests.waiting import wait_until

MACHINE = """
mount -t tmpfs none /run && mkdir /run/sshd
install -d -m 700 /run/jupyterhub
useradd --system --create-home --home-dir /var/lib/jupyterhub jupyterhub
chown jupyterhub /run/jupyterhub
echo 10.0.0.10 login.cluster.example >>/etc/hosts
echo 'jupyterhub ALL=(ada) NOPASSWD: ALL' >/etc/sudoers.d/jupyterhub
ssh-keygen -A
printf 'Include /etc/ssh/sshd_config.d/*.conf\\n' >/etc/ssh/sshd_config
install -d -o jupyterhub /etc/jupyterhub/ssh
ssh-keygen -q -t ed25519 -N '' -C jupyterhub@hub -f /etc/jupyterhub/ssh/id_ed25519
chown jupyterhub /etc/jupyterhub/ssh/id_ed25519
sed "s/^/login.cluster.example /" /etc/ssh/ssh_host_ed25519_key.pub >/etc/jupyterhub/ssh/known_hosts
"""
"""What the guide takes for granted: an account, a key and the login node's."""
CONFIGURATION = """
c = get_config()
c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.hub_ip = "10.0.0.10"
c.Authenticator.allow_all = True
c.GPUSlurmSpawner.exec_prefix = "sudo -n -u {username}"
c.GPUProfilesSpawner.profiles = [
    {"display_name": "One GPU", "slug": "one-gpu", "slurm": {"partition": "gpu", "gpus": 1, "memory": "1G"}}
]
"""
CONFIG = Path("/etc/jupyterhub/jupyterhub_config.py")
SSH = CONFIG.parent / "ssh"


def shell(lines: str) -> None:
    """Run lines that must not fail."""
    done = subprocess.run(["sh", "-ec", lines], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{lines}: {done.stderr}")


class TunnelReader(Reader):
    """Somebody who follows the guide."""

    def __init__(self) -> None:
        super().__init__("howto/nodes-out-of-reach.md", SSH, CONFIG)
        self.sshd: subprocess.Popen[bytes] | None = None
        self.stand_ins["systemctl reload ssh"] = lambda _: self.restart_sshd()

    def restart_sshd(self) -> None:
        """Start sshd with its present configuration, and wait until it listens."""
        self.sshd = subprocess.Popen(["/usr/sbin/sshd", "-D"], stderr=subprocess.DEVNULL)
        ask = ["ssh-keyscan", "-t", "ed25519", "login.cluster.example"]
        wait_until(lambda: subprocess.run(ask, capture_output=True, check=False).stdout != b"", "sshd answers")

    def follow(self) -> None:
        """Do what its first two sections say."""
        _, on_login_node, on_hub, *_ = self.page.split("\n## ")
        for kind, text in (*blocks(on_login_node), *blocks(on_hub)):
            if kind == "python":
                CONFIG.write_text(f"{CONFIGURATION}{text}", "utf-8")
            elif kind == "console":
                for command, shown in commands(text):
                    self.step(command, shown)
                    if "gpuspawner tunnel" in command:
                        self.write_lines(str(self.steps[-1].output))

    def write_lines(self, printed: str) -> None:
        """Write them into sshd's file, in place of its lines with the same names."""
        file = SSH / "tunnel_sshd_config"
        lines = file.read_text("utf-8").splitlines()
        for line in printed.splitlines():
            name = line.partition(" ")[0]
            at = next(number for number, old in enumerate(lines) if old.split()[:1] == [name])
            lines[at] = f"    {line}"
        file.write_text("\n".join([*lines, ""]), "utf-8")


def main(folder: Path, environment: Path) -> None:
    """Follow the guide, and print what was seen."""
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    prepare(folder, environment)
    shell(MACHINE)
    with cluster(folder):
        reader = TunnelReader()
        reader.follow()
        assert reader.sshd is not None
        reader.sshd.terminate()
        print(json.dumps({"steps": [asdict(step) for step in reader.steps]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
