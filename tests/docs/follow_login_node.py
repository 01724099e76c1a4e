"""Follows the guide to a hub without Slurm: ``python -m tests.docs.follow_login_node FOLDER ENV``.

It runs as root, in namespaces of its own, as :mod:`tests.docs.follow` does. One machine is the hub's and the login
node: both have the address 10.0.0.10, and the hub reaches Slurm by ssh and sshd as on two. The output is a JSON
document with the commands of the guide, and whether the hub of its unit serves a notebook.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.docs.follow import Reader, blocks, cluster, commands, prepare, section
from tests.waiting import wait_until

GUIDE = "howto/hub-without-slurm.md"
MACHINE = """
mount -t tmpfs none /run && mkdir /run/sshd
mount -t tmpfs -o mode=700 none ~root && mkdir -m 700 ~root/.ssh
echo 10.0.0.10 login.cluster.example >>/etc/hosts
ssh-keygen -A
ssh-keygen -q -t ed25519 -N '' -f ~root/.ssh/id_ed25519
cp ~root/.ssh/id_ed25519.pub ~root/.ssh/authorized_keys
echo StrictHostKeyChecking no >~root/.ssh/config
printf 'PermitRootLogin yes\\nInclude /etc/ssh/sshd_config.d/*.conf\\n' >/etc/ssh/sshd_config
"""
"""Root may sign in by ssh, as the guide's copy of files takes for granted."""
SAME_ACCOUNT = """
usermod --shell /bin/sh jupyterhub
install -d -o jupyterhub -g jupyterhub /var/lib/jupyterhub
"""
"""In place of the second machine's useradd."""
SIGN_IN = 'c.JupyterHub.authenticator_class = "dummy"\nc.Authenticator.allow_all = True\n'
"""In place of an identity provider."""


def shell(lines: str) -> None:
    """Run lines that must not fail."""
    subprocess.run(["sh", "-ec", lines], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class LoginNodeReader(Reader):
    """Somebody who follows the guide."""

    def __init__(self, folder: Path) -> None:
        super().__init__(GUIDE, folder, Path("/etc/jupyterhub/jupyterhub_config.py"))
        self.sshd: subprocess.Popen[bytes] | None = None
        self.stand_ins["useradd --system --create-home"] = lambda _: shell(SAME_ACCOUNT)
        self.stand_ins["systemctl reload ssh"] = lambda _: self.restart_sshd()

    def restart_sshd(self) -> None:
        """Start sshd with its present configuration, and wait until it listens."""
        if self.sshd is not None:
            self.sshd.terminate()
            self.sshd.wait(60)
        self.sshd = subprocess.Popen(["/usr/sbin/sshd", "-D"], stderr=subprocess.DEVNULL)
        ask = ["ssh-keyscan", "-t", "ed25519", "login.cluster.example"]
        wait_until(lambda: subprocess.run(ask, capture_output=True, check=False).stdout != b"", "sshd answers")

    def follow(self) -> None:
        """Do what the guide and the sections of the tutorial that it names say."""
        tutorial = section("tutorial/hub-without-root.md", "Configure it")
        configuration = "".join(text for kind, text in blocks(tutorial) if kind == "python")
        for kind, text in blocks(self.page):
            if kind == "python":
                self.config.write_text(configuration + text + SIGN_IN, "utf-8")
                shell(f"chown root:jupyterhub {self.config}; chmod 640 {self.config}")
            elif kind == "ini":
                unit = (self.config.parent / self.unit.name).read_text("utf-8")
                self.unit.write_text(unit.replace("[Service]\n", f"[Service]\n{text}"), "utf-8")
            elif kind == "console":
                for command, shown in commands(text):
                    self.step(command, shown)


def main(folder: Path, environment: Path) -> None:
    """Follow the guide, start and stop a notebook at the hub of its unit, and print what was seen."""
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    prepare(folder, environment)
    shell(MACHINE)
    with cluster(folder) as slurm:
        root = folder / "root"
        root.mkdir()
        reader = LoginNodeReader(root)
        reader.restart_sshd()
        reader.follow()
        shell("rm -r /run/jupyterhub")  # the unit makes it
        reader.hub.by_unit(reader.unit)
        reader.start_a_notebook()
        owner = slurm.run("squeue", "-h", "-o", "%u").strip()
        reader.stop_it()
        wait_until(lambda: slurm.run("squeue", "-h") == "", "the job ends with its server", seconds=150)
        reader.hub.stop()
        assert reader.sshd is not None
        reader.sshd.terminate()
        print(json.dumps({"owner": owner, "steps": [asdict(step) for step in reader.steps]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
