"""A stand-in for a server of homes: a FUSE file system, built from ``file_server.c``, that squashes root and may hang.

The host's kernel need not have NFS. What a client of NFS sees of it is real here: root is refused, errors of writing
come when a file is closed, and calls that are not answered cannot be killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until

SOURCE = Path(__file__).with_name("file_server.c")


def missing() -> str | None:
    """What a file server needs and this host lacks; None if it can run here."""
    if os.geteuid() != 0:
        return "only root can mount a file system for others"
    if not Path("/dev/fuse").exists():
        return "there is no FUSE here"
    if shutil.which("gcc") is None or _flags().returncode != 0:
        return "gcc and the package libfuse3-dev are not installed"
    return None


def _flags() -> subprocess.CompletedProcess[str]:
    if shutil.which("pkg-config") is None:
        return subprocess.CompletedProcess("pkg-config", 1, "")
    return subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False)


def build(folder: Path) -> Path:
    """Build the program in ``folder``."""
    program = folder / "file_server"
    command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCE), *_flags().stdout.split()]
    subprocess.run(command, check=True, timeout=60)
    return program


class FileServer:
    """Serves a folder in its own place: what is in it already is shown, to its owners."""

    def __init__(self, program: Path, folder: Path, control: Path) -> None:
        control.mkdir()
        self.folder = folder
        self._argv = [str(program), str(control), "-f", "-o", "allow_other,max_threads=64", str(folder)]
        self._hangs, self._over_quota = control / "hangs", control / "over-quota"

    @contextmanager
    def mounted(self) -> Iterator[FileServer]:
        """Serve the folder while the context lasts."""
        with subprocess.Popen(self._argv) as process:
            try:
                wait_until(lambda: os.path.ismount(self.folder), f"{self._argv} has not mounted {self.folder}")
                yield self
            finally:
                self._hangs.unlink(missing_ok=True)
                subprocess.run(["umount", "--lazy", str(self.folder)], check=False, timeout=60)
                process.terminate()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Answer nothing while the context lasts, and all that was asked afterwards."""
        self._hangs.touch()
        try:
            yield
        finally:
            self._hangs.unlink(missing_ok=True)

    @contextmanager
    def over_quota(self, *names: str) -> Iterator[None]:
        """Store nothing of what these users write while the context lasts."""
        self._over_quota.write_text("".join(f"{pwd.getpwnam(name).pw_uid}\n" for name in names))
        try:
            yield
        finally:
            self._over_quota.unlink()
