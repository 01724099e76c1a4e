"""Follows the page about a hub without Slurm on two fresh machines: ``python -m tests.docs.follow_ssh FOLDER``.

It runs as root in namespaces of its own, as ``tests.docs.follow`` does. The login node is this process's machine, with
an sshd and a Slurm. The hub's machine has a network and a file system of its own, in which there are no commands of
Slurm, no configuration of it, and no account of a user. Each block of the page is done in its order, on the machine
that its heading names; where the page refers to the tutorial, the tutorial's block is done. The output is a JSON
document with the commands, what the pages show and what they said, and the jobs that Slurm had.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.docs.follow import PASSWORD, ROOT, Reader, blocks, cluster, end_of, prepare, section
from tests.fixtures.login_node import OF_SLURM
from tests.waiting import wait_until

PAGE = "howto/hub-without-slurm.md"
TUTORIAL = "tutorial/hub-without-root.md"
LOGIN, HUB = "10.0.0.1", "10.0.0.10"
SITE = f"""
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {PASSWORD!r}
c.Authenticator.allow_all = True
c.Spawner.http_timeout = 120
"""
"""What the page leaves to the site: a stand-in for its authenticator, and time for a busy machine."""


# --- the hub's machine ----------------------------------------------------------------------------


class OnTheHub(Reader):
    """Somebody who follows the page on the hub's machine."""

    def __init__(self, page: str, folder: Path) -> None:
        super().__init__(page, folder / "clone", Path("/etc/jupyterhub/jupyterhub_config.py"))


def make_a_key(folder: Path) -> list[dict[str, Any]]:
    """Follow the part that makes a key; before, the machine is prepared."""
    hidden = [f"mount --bind /dev/null {path}" for name in OF_SLURM if (path := shutil.which(name))]
    hosts = f"echo {LOGIN} login.cluster.example >>/etc/hosts"
    prepare(folder, "hub", "mount -t tmpfs none /run", "rm -rf /etc/slurm /etc/slurm-llnl /etc/munge", hosts, *hidden)
    reader = OnTheHub(PAGE, folder)
    reader.follow("A key on the hub's machine")
    return [asdict(step) for step in reader.steps]


def run_the_hub(folder: Path) -> list[dict[str, Any]]:
    """Follow the last part, use a server, and stop it."""
    tutorial = OnTheHub(TUTORIAL, folder)
    tutorial.follow("Install")
    text = next(text for kind, text in blocks(section(tutorial.page, "Configure it")) if kind == "python")
    tutorial.config.write_text(text)
    unit = next(text for kind, text in blocks(section(tutorial.page, "Run it as a service")) if kind == "ini")
    tutorial.unit.write_text("".join(line for line in unit.splitlines(True) if "SupplementaryGroups" not in line))

    reader = OnTheHub(PAGE, folder)
    reader.unit = Path(f"{tutorial.unit}.d", "ssh.conf")
    reader.follow("On the hub's machine")
    print(*reader.steps, sep="\n", file=sys.stderr)  # if the rest fails, it is most likely for one of them
    with reader.config.open("a") as file:
        file.write(SITE)
    reader.hub.by_unit(tutorial.unit)
    reader.start_a_notebook()
    reader.stop_it()
    wait_until(
        lambda: not reader.serves(),
        lambda: f"the server is not stopped; the log ends:\n{end_of(reader.hub.log)}",
        seconds=150,
    )
    reader.hub.stop()
    assert reader.account == "jupyterhub"
    return [asdict(step) for step in (*tutorial.steps, *reader.steps)]


# --- the login node -------------------------------------------------------------------------------


class OnTheLoginNode(Reader):
    """Somebody who follows the page on the login node, where sshd runs."""

    def __init__(self, folder: Path, hub: int) -> None:
        super().__init__(PAGE, folder / "clone", folder / "none")
        self.sshd = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-E", f"{folder}/sshd.log"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        wait_until(listens, "sshd does not listen")
        hubs_files = Path("/proc", str(hub), "root")  # proc(5): the file system as that process sees it
        self.public_key = hubs_files / "etc/jupyterhub/ssh/id_ed25519.pub"
        self.stand_ins["systemctl reload ssh"] = lambda _: self.reload_sshd()
        self.after["install -o jupyterhub -g jupyterhub -m 600 config/ssh/authorized_keys"] = self.allow_the_key

    def reload_sshd(self) -> None:
        """What systemd does."""
        self.sshd.send_signal(signal.SIGHUP)
        time.sleep(1)  # it closes its socket, and is started again with the same process id
        wait_until(listens, "sshd does not listen again")

    def allow_the_key(self) -> None:
        """Replace the public key in the file that was installed."""
        file = Path("/var/lib/jupyterhub/.ssh/authorized_keys")
        text = file.read_text()
        example = "ssh-ed25519 AAAA... jupyterhub@hub"
        assert text.count(example) == 1
        file.write_text(text.replace(example, self.public_key.read_text().strip()))


def listens() -> bool:
    """Whether something listens on sshd's port."""
    with suppress(OSError), socket.create_connection((LOGIN, 22), timeout=5):
        return True
    return False


def on_the_hub(hub: int, folder: Path, part: str) -> list[dict[str, Any]]:
    """Follow a part of the page on the hub's machine, whose first process is ``hub``."""
    inside = ["nsenter", f"--target={hub}", "--mount", "--net", "--uts", "env", "-C", str(ROOT)]
    command = [*inside, sys.executable, "-m", "tests.docs.follow_ssh", str(folder), part]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{part} failed\n{(folder / 'sshd.log').read_text()}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def main(folder: Path) -> None:
    """Follow the page on both machines, and print what was seen."""
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    own = Path("/proc/self/ns/net").readlink()
    hub = subprocess.Popen(["unshare", "--mount", "--net", "--uts", "--propagation", "private", "sleep", "infinity"])
    wait_until(lambda: Path(f"/proc/{hub.pid}/ns/net").readlink() != own, "unshare failed")
    addresses = f"ip addr add {LOGIN}/24 dev cluster && ip link set cluster up"
    there = f"nsenter --target={hub.pid} --net"
    prepare(
        folder,
        "login",
        "mount -t tmpfs none /run",
        "mkdir -m 755 /run/sshd",
        "ssh-keygen -A",
        f"ip link add cluster type veth peer name eth0 netns {hub.pid}",
        addresses,
        f"{there} ip addr add {HUB}/24 dev eth0 && {there} ip link set eth0 up",
    )
    with cluster(folder) as slurm:
        for node in slurm.cluster.nodes:
            slurm.run("scontrol", "update", f"NodeName={node.name}", f"NodeAddr={LOGIN}")
        login = OnTheLoginNode(folder, hub.pid)
        steps = on_the_hub(hub.pid, folder, "make_a_key")
        login.follow("On the login node")
        steps += [asdict(step) for step in login.steps]
        steps += on_the_hub(hub.pid, folder, "run_the_hub")
        wait_until(lambda: slurm.run("squeue", "-h") == "", "the job goes on")
        print(
            json.dumps({"steps": steps, "jobs": slurm.run("squeue", "--states=all", "-h", "-o", "%u %T").splitlines()})
        )
        login.sshd.terminate()


if __name__ == "__main__":
    where, *which = sys.argv[1:]
    if which:
        print(json.dumps({"make_a_key": make_a_key, "run_the_hub": run_the_hub}[which[0]](Path(where))))
    else:
        main(Path(where))
