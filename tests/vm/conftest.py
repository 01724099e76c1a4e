"""A virtual machine with a real two-socket Linux kernel: the node of a workshop in 2017, under software emulation.

Two sockets of 12 cores, NUMA distances 10 and 21, CPUs 0-11 and 12-23; two GPU boards of two GPUs each behind a PCIe
switch, one board on each socket; a network adapter on the second. No root, no KVM; about 5 s to boot.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.batch.carried import Carried
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from tests.fixtures.qemu import CPU, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "scripts"
SECONDS = 1000
"""Time limit for boot and all jobs, in seconds; a tenth of it is enough on two cores that run nothing else."""
PROGRAMS = ("qemu-system-x86_64", "busybox", "cpio", "numactl", "setpriv", "ldd")
LIBRARY_LEFT_OUT = ("config-*", "test", "idlelib", "lib2to3", "ensurepip", "tkinter", "*-packages", "pydoc_data")
MACHINE = (
    "-nodefaults -no-user-config -no-reboot -display none "
    f"-machine q35,hpet=off,smbus=off,sata=off,usb=off,graphics=off -accel tcg,thread=multi -cpu {CPU} "
    "-smp 24,sockets=2,cores=12,threads=1 -m 768M "
    "-object memory-backend-ram,id=m0,size=384M -numa node,nodeid=0,cpus=0-11,memdev=m0 "
    "-object memory-backend-ram,id=m1,size=384M -numa node,nodeid=1,cpus=12-23,memdev=m1 "
    "-numa dist,src=0,dst=1,val=21 "
    # Socket 0: GPU0 and GPU1.
    "-device pxb-pcie,id=s0,bus=pcie.0,bus_nr=16,numa_node=0 -device pcie-root-port,id=r0,bus=s0,chassis=1,slot=1 "
    "-device x3130-upstream,id=u0,bus=r0 "
    "-device xio3130-downstream,id=d0,bus=u0,chassis=2 -device pci-testdev,bus=d0 "
    "-device xio3130-downstream,id=d1,bus=u0,chassis=3 -device pci-testdev,bus=d1 "
    # Socket 1: GPU2 and GPU3, and the network adapter.
    "-device pxb-pcie,id=s1,bus=pcie.0,bus_nr=128,numa_node=1 -device pcie-root-port,id=r1,bus=s1,chassis=4,slot=2 "
    "-device x3130-upstream,id=u1,bus=r1 "
    "-device xio3130-downstream,id=d2,bus=u1,chassis=5 -device pci-testdev,bus=d2 "
    "-device xio3130-downstream,id=d3,bus=u1,chassis=6 -device pci-testdev,bus=d3 "
    "-device pcie-root-port,id=r2,bus=s1,chassis=7,slot=3 -device edu,bus=r2"
)


@pytest.fixture(scope="session")
def boot(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[dict[str, Any]]]:
    """``boot(jobs, files, suite)`` boots the machine, runs the jobs and returns the guest's output.

    The contents of the folder ``files`` are in ``/guest`` on the machine. ``suite``: the Debian suite of its kernel;
    empty for that of this system. ``carried``: what extensions add to the launcher.
    """
    if platform.machine() != "x86_64":
        pytest.skip(f"the virtual machine is x86_64; this machine is {platform.machine()}")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (scripts/apt-vm.txt names the packages)")
    cache = request.config.cache

    def run(
        jobs: list[dict[str, Any]], files: Path, suite: str = "", carried: tuple[Carried, ...] = ()
    ) -> list[dict[str, Any]]:
        name = f"vm-kernel-{suite}" if suite else "vm-kernel"
        linux = kernel(cache.mkdir(name) if cache else tmp_path_factory.mktemp(name), suite)
        folder = tmp_path_factory.mktemp("vm")
        root = folder / "root"
        fill(root)
        (root / "guest" / "launch.pyz").write_bytes(launcher_archive(carried))
        (root / "guest" / "jobs.json").write_text(json.dumps(jobs))
        shutil.copytree(files, root / "guest", dirs_exist_ok=True)
        (root / "guest").chmod(0o755)
        image = pack(root, folder / "initramfs.cpio")
        shutil.rmtree(root)
        try:
            return power_on(linux, image, folder)
        finally:
            image.unlink()

    return run


def kernel(folder: Path, suite: str) -> Path:
    """A kernel to boot: the one in ``GPUSPAWNER_VM_KERNEL``, or Debian's, downloaded once into ``folder``."""
    named = os.environ.get("GPUSPAWNER_VM_KERNEL") if not suite else None
    if named:
        return Path(named)
    try:
        command = [str(SCRIPTS / "vm-kernel"), str(folder), *filter(None, [suite])]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no kernel for the virtual machine: {error}")
    if done.returncode != 0:
        pytest.skip(f"no kernel for the virtual machine: {done.stderr.strip()}")
    return Path(done.stdout.strip())


def power_on(kernel: Path, image: Path, folder: Path) -> list[dict[str, Any]]:
    """Run the machine until it powers off; returns the objects that it wrote to its second serial line."""
    console, results = folder / "console", folder / "results"
    command = [
        # Kill the machine if the tests are killed.
        *["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *MACHINE.split()],
        *["-serial", f"file:{console}", "-serial", f"file:{results}"],
        *["-kernel", str(kernel), "-initrd", str(image), "-append", "console=ttyS0 quiet panic=-1"],
    ]
    for path in (console, results):
        path.touch()
    with (folder / "qemu").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as machine:
        try:
            machine.wait(SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            machine.kill()
    documents = [json.loads(line) for line in results.read_text().splitlines() if line.endswith("}")]
    if not documents or "end" not in documents[-1]:
        tail = (console.read_text(errors="replace") + (folder / "qemu").read_text())[-3000:]
        pytest.fail(f"the machine did not come to its end (at most {SECONDS} s); its last words:\n{tail}")
    return documents


def fill(root: Path) -> None:
    """The machine's files: busybox, numactl, the system's Python with its library, and ``guest/``."""
    for name in ("proc", "sys", "dev", "bin", "usr/bin"):
        (root / name).mkdir(parents=True)
    shutil.copytree(HERE / "guest", root / "guest")
    (root / "guest" / "init").rename(root / "init")
    add(root, shutil.which("busybox"), "bin/busybox")
    for name in ("numactl", "setpriv"):
        add(root, shutil.which(name), f"usr/bin/{name}")
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    ask = "import json, sys, sysconfig; print(json.dumps([sys.executable, sysconfig.get_path('stdlib')]))"
    answer = subprocess.run([python, "-I", "-c", ask], capture_output=True, check=True)
    _, library = json.loads(answer.stdout)
    add(root, python, "usr/bin/python3")
    shutil.copytree(library, root / library.lstrip("/"), ignore=shutil.ignore_patterns(*LIBRARY_LEFT_OUT))
    for path in needed(Path(library).glob("lib-dynload/*.so")):
        add(root, path)


def add(root: Path, source: str | None, target: str = "") -> None:
    """Copy a file, and the shared libraries that it needs, into the machine."""
    assert source is not None
    path = root / (target or source.lstrip("/"))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)
    if target:
        for library in needed([Path(source)]):
            add(root, library)


def needed(programs: Iterable[Path]) -> list[str]:
    """Paths of the shared libraries that the dynamic linker finds for ``programs``."""
    answer = subprocess.run(["ldd", *map(str, programs)], check=False, capture_output=True, text=True)
    words = {word for line in answer.stdout.splitlines() for word in line.split() if word.startswith("/")}
    return sorted(word for word in words if not word.endswith(":"))
