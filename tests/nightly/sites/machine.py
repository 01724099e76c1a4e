"""A virtual machine with the kernel and the userland of a Debian suite, as a compute node or a file server of a site.

Two sockets of four cores with 1 GiB each, NUMA distances 10 and 21; two GPU boards of two GPUs each, one board on each
socket, as in ``tests/vm``. It runs under software emulation, and boots in about fifteen seconds, without systemd. It
has a network with this host only, over a tap device that ends with it, and folders of this host by virtiofs, at the
same path. Needs root: for debootstrap, which makes its disk once in ``GPUSPAWNER_ROOTS``, and for the tap device.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import platform
import random
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from typing_extensions import Self

from jupyterhub_gpuspawner.demo.slurm_cluster import SEARCH_PATH
from scripts.debian_suites import mirror
from tests.fixtures.qemu import CPU, pack
from tests.waiting import wait_until

ROOTS = Path(os.environ.get("GPUSPAWNER_ROOTS", "/var/tmp/gpuspawner-roots"))
PROGRAMS = ("qemu-system-x86_64", "busybox", "cpio", "debootstrap", "mkfs.ext4", "setpriv", "ip")
VIRTIOFSD = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
PACKAGES = ("busybox-static", "kmod", "iproute2", "procps", "python3", "numactl", "linux-image-cloud-amd64")
"""Packages of every machine, in addition to Debian's minimal system."""
DRIVERS = ("virtio_pci", "virtio_blk")
"""Kernel modules that the disk needs; ext4 is part of Debian's kernel."""
LEFT_OUT = ("boot", "usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists")
PORT = 5000
"""At which the machine's agent runs commands; only this host reaches it."""
HARDWARE = (
    "-nodefaults -no-user-config -no-reboot -display none "
    f"-machine q35,hpet=off,smbus=off,sata=off,usb=off,graphics=off -accel tcg,thread=multi -cpu {CPU} "
    "-smp 8,sockets=2,cores=4,threads=1 -m 2G "
    "-object memory-backend-memfd,id=m0,size=1G,share=on -numa node,nodeid=0,cpus=0-3,memdev=m0 "
    "-object memory-backend-memfd,id=m1,size=1G,share=on -numa node,nodeid=1,cpus=4-7,memdev=m1 "
    "-numa dist,src=0,dst=1,val=21 "
    "-device pxb-pcie,id=s0,bus=pcie.0,bus_nr=16,numa_node=0 -device pcie-root-port,id=r0,bus=s0,chassis=1,slot=1 "
    "-device x3130-upstream,id=u0,bus=r0 "
    "-device xio3130-downstream,id=d0,bus=u0,chassis=2 -device pci-testdev,bus=d0 "
    "-device xio3130-downstream,id=d1,bus=u0,chassis=3 -device pci-testdev,bus=d1 "
    "-device pxb-pcie,id=s1,bus=pcie.0,bus_nr=128,numa_node=1 -device pcie-root-port,id=r1,bus=s1,chassis=4,slot=2 "
    "-device x3130-upstream,id=u1,bus=r1 "
    "-device xio3130-downstream,id=d2,bus=u1,chassis=5 -device pci-testdev,bus=d2 "
    "-device xio3130-downstream,id=d3,bus=u1,chassis=6 -device pci-testdev,bus=d3"
)
APPEND = "console=ttyS0 earlyprintk=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off nokaslr no_timer_check"
GPUS = (("0000:13:00.0", 0), ("0000:14:00.0", 0), ("0000:83:00.0", 1), ("0000:84:00.0", 1))
"""PCI address and NUMA node of each GPU; its device file is /dev/nvidia0, 1, 2, 3. There is no driver for it."""

INITRAMFS = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /disk
/bin/busybox --install -s /bin
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do insmod "$module"; done
until mount -t ext4 /dev/vda /disk; do sleep 0.1; done
mount -t tmpfs tmpfs /disk/run
cp -r /machine /disk/run/machine
umount /dev
exec switch_root /disk /run/machine/init
"""
INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
{cgroups}
modprobe virtio_net
hostname {name}
printf '127.0.0.1 localhost\\n{address} {name}\\n{host} {host_name}\\n' >/etc/hosts
ip link set lo up
ip address add {address}/30 dev eth0
ip link set eth0 up
{shares}
# A GPU is any device where it sits; only vendor and class are NVIDIA's in name, so that sysfs calls it a GPU.
echo 0x10de >/run/vendor
echo 0x030200 >/run/class
for device in /sys/bus/pci/devices/*; do
    if [ "$(cat "$device/vendor"):$(cat "$device/device")" = 0x1b36:0x0005 ]; then
        mount --bind /run/vendor "$device/vendor"
        mount --bind /run/class "$device/class"
    fi
done
mknod -m 666 /dev/nvidiactl c 195 255
for minor in 0 1 2 3; do mknod -m 666 /dev/nvidia$minor c 195 $minor; done
echo '::respawn:/usr/bin/python3 /run/machine/agent.py' >/etc/inittab
exec busybox init
"""
CGROUPS_1 = """
mount -t tmpfs tmpfs /sys/fs/cgroup
for controller in cpuset cpu,cpuacct memory devices freezer; do
    mkdir /sys/fs/cgroup/$controller
    mount -t cgroup -o $controller cgroup /sys/fs/cgroup/$controller
done
"""
CGROUPS_2 = """
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/system.slice
for folder in /sys/fs/cgroup /sys/fs/cgroup/system.slice; do
    echo +cpuset +cpu +memory +pids >$folder/cgroup.subtree_control
done
"""
"""With the slice that systemd makes for services: slurmd's ``IgnoreSystemd`` expects it."""
AGENT = f"""
import base64, json, socketserver, subprocess

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        question = json.loads(self.rfile.readline())
        done = subprocess.run(
            ["/bin/sh", "-c", question["command"]],
            input=base64.b64decode(question["input"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        answer = [done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")]
        self.wfile.write(json.dumps(answer).encode())

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

Server(("", {PORT}), Handler).serve_forever()
"""


class MachineFailed(RuntimeError):
    """The machine did not boot, or a command in it failed; the message ends with the output."""


class Machine:
    """A machine: ``with Machine("bullseye", CGROUPS_1) as machine: machine.run("uname -r")``.

    ``cgroups`` are shell lines that mount the hierarchies. ``packages`` are installed besides :data:`PACKAGES`; each
    choice has a disk of its own, and what is written on it is lost at the end. ``shares`` are folders of this host.
    """

    def __init__(
        self,
        suite: str,
        cgroups: str = CGROUPS_2,
        *,
        packages: tuple[str, ...] = (),
        shares: tuple[Path, ...] = (),
        name: str = "node",
    ) -> None:
        self.suite, self.name = suite, name
        self.host, self.address = _addresses()
        """Of this host, as the machine sees it, and of the machine."""
        self._cgroups, self._packages, self._shares = cgroups, packages, shares
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Boot, and wait until commands can be run. Raises MachineFailed with the end of the console."""
        kernel, disk, modules = files(self.suite, self._packages)
        folder = Path(tempfile.mkdtemp(prefix="machine-", dir="/var/tmp"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.console = folder / "console"
        up = folder / "up"
        up.write_text(f'#!/bin/sh\nip address add {self.host}/30 dev "$1" && ip link set "$1" up\n')
        up.chmod(0o755)
        command = ["qemu-system-x86_64", *HARDWARE.split(), "-serial", f"file:{self.console}"]
        command += ["-kernel", str(kernel), "-initrd", str(self._initramfs(folder, modules)), "-append", APPEND]
        command += ["-drive", f"file={disk},format=raw,if=none,id=disk,snapshot=on"]
        command += ["-device", "virtio-blk-pci,drive=disk,bus=pcie.0"]
        command += ["-netdev", f"tap,id=net,ifname=gpusvm%d,script={up},downscript=no"]
        command += ["-device", "virtio-net-pci,netdev=net,bus=pcie.0,romfile="]
        for number, share in enumerate(self._shares):
            line = folder / f"share{number}.socket"
            server = next(path for path in VIRTIOFSD if Path(path).exists())
            self._start(folder, server, f"--socket-path={line}", "-o", f"source={share}", "-o", "cache=auto")
            wait_until(line.exists, self._console)
            command += ["-chardev", f"socket,id=share{number},path={line}"]
            command += ["-device", f"vhost-user-fs-pci,chardev=share{number},tag=share{number},bus=pcie.0"]
        self._qemu = self._start(folder, *command)
        wait_until(self._answers, self._console, seconds=120)

    def stop(self) -> None:
        """Switch it off, as by its button."""
        self._stack.close()

    def run(self, command: str, *, content: bytes = b"", timeout: float = 120.0) -> str:
        """Run a line of shell as root in the machine, with ``content`` as its input, and return its output, stripped.

        Raises MachineFailed with its errors.
        """
        status, output, errors = self._ask(command, content, timeout)
        if status != 0:
            raise MachineFailed(f"{command!r} ended with status {status} in the machine: {errors}{output}")
        return str(output).strip()

    def write(self, path: Path | str, content: bytes | str, mode: int = 0o644) -> None:
        """Write a file in the machine, with the folders above it."""
        data = content if isinstance(content, bytes) else content.encode()
        self.run(f"mkdir -p '{Path(path).parent}' && cat >'{path}' && chmod {mode:o} '{path}'", content=data)

    def _ask(self, command: str, content: bytes, timeout: float) -> list[Any]:
        question = {"command": command, "input": base64.b64encode(content).decode()}
        with socket.create_connection((self.address, PORT), timeout=timeout) as line:
            line.sendall(json.dumps(question).encode() + b"\n")
            answer: list[Any] = json.loads(line.makefile("rb").read())
        return answer

    def _answers(self) -> bool:
        if self._qemu.poll() is not None:
            raise MachineFailed(f"The machine has ended.\n{self._console()}")
        try:
            return self._ask("true", b"", 2.0) == [0, "", ""]
        except (OSError, ValueError):
            return False

    def _console(self) -> str:
        """The end of what the kernel, QEMU and virtiofsd wrote."""
        paths = (self.console, self.console.with_name("output"))
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in paths if path.exists())

    def _start(self, folder: Path, *command: str) -> subprocess.Popen[bytes]:
        with (folder / "output").open("ab") as output:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],  # nothing survives the tests
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _initramfs(self, folder: Path, modules: Path) -> Path:
        root = folder / "initramfs"
        (root / "bin").mkdir(parents=True)
        shutil.copy(str(shutil.which("busybox")), root / "bin" / "busybox")
        shutil.copytree(modules, root / "modules")
        shares = "\n".join(
            f"mkdir -p '{share}' && modprobe virtiofs && mount -t virtiofs share{number} '{share}'"
            for number, share in enumerate(self._shares)
        )
        init = INIT.format(
            cgroups=self._cgroups, name=self.name, address=self.address, host=self.host,
            host_name=socket.gethostname(), shares=shares,
        )  # fmt: skip
        (root / "machine").mkdir()
        for path, text in (("init", INITRAMFS), ("machine/init", init), ("machine/agent.py", AGENT)):
            (root / path).write_text(text)
            (root / path).chmod(0o755)
        return pack(root, folder / "initramfs.cpio")


def needs_machine() -> None:
    """Skip where no machine can be made."""
    if platform.machine() != "x86_64":
        pytest.skip(f"the virtual machine is x86_64; this machine is {platform.machine()}")
    if os.geteuid() != 0:
        pytest.skip("only root can make the disk and the network of the virtual machine")
    missing = [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]
    if not any(Path(path).exists() for path in VIRTIOFSD):
        missing.append("virtiofsd")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (scripts/apt-vm.txt and apt-sites.txt name the packages)")
    if not Path("/dev/net/tun").exists():
        pytest.skip("there is no /dev/net/tun for the network of the virtual machine")


def files(suite: str, packages: tuple[str, ...]) -> tuple[Path, Path, Path]:
    """Kernel, disk, and the folder of modules for the disk; made once for each suite and choice of packages."""
    folder = ROOTS / "-".join(["machine", suite, *packages])
    kernel, disk, modules = folder / "vmlinuz", folder / "disk", folder / "modules"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not disk.exists():
            root = folder / "root"
            shutil.rmtree(root, ignore_errors=True)
            shutil.rmtree(modules, ignore_errors=True)
            try:
                _run("debootstrap", "--variant=minbase", f"--include={','.join((*PACKAGES, *packages))}", suite,
                     str(root), mirror())  # fmt: skip
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no disk for the virtual machine: {error.output[-500:]}")
            [image] = (root / "boot").glob("vmlinuz-*")
            shutil.copy(image, kernel)
            modules.mkdir()
            release = image.name.partition("-")[2]
            modprobe = ("chroot", str(root), "modprobe", "-S", release, "--show-depends")
            needed = "".join(_run(*modprobe, driver) for driver in DRIVERS).splitlines()
            for number, line in enumerate(dict.fromkeys(line for line in needed if line.startswith("insmod"))):
                shutil.copy(f"{root}{line.split()[1]}", modules / f"{number:02}.ko")
            for name in LEFT_OUT:
                shutil.rmtree(root / name, ignore_errors=True)
            _run("mkfs.ext4", "-q", "-F", "-d", str(root), f"{disk}.new", "4G")
            shutil.rmtree(root)
            disk.with_name("disk.new").rename(disk)
    return kernel, disk, modules


def _addresses() -> tuple[str, str]:
    """Two addresses of a network that this host does not have."""
    used = _run("ip", "-o", "address")
    third = random.choice([number for number in range(256) if f" 10.232.{number}." not in used])
    return f"10.232.{third}.1", f"10.232.{third}.2"


def _run(*command: str) -> str:
    environment = {**os.environ, "PATH": SEARCH_PATH, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=True,
    ).stdout  # fmt: skip
