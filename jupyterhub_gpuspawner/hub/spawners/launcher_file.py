"""The launcher as a file, for servers on the hub's own machine."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from jupyterhub_gpuspawner.batch.launcher import launcher_archive


class LauncherFile:
    """The launcher as a file that every user may read and only the hub may write, created on first use.

    A cleaner of temporary files may remove it while the hub runs for weeks; the next start then creates another one. To
    avoid that, the folder is locked (flock(2)), which systemd-tmpfiles(8) respects, and each start sets the times of
    folder and file to now, for cleaners that go by age. Inodes are compared before the file is used: once it is gone,
    any user may create one of the same name.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._folder = self._file = -1

    def path(self) -> Path:
        """The path of the file, created if it is not there; raises OSError."""
        if self._path is None or not self._is_there(self._path):
            self.remove()
            self._path = self._make()
        return self._path

    def _make(self) -> Path:
        folder = _new_folder()
        path = folder / "launch.pyz"
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._folder, fcntl.LOCK_SH)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(os.dup(self._file), "wb") as file:
            file.write(launcher_archive())
        path.chmod(0o644)
        folder.chmod(0o755)
        return path

    def _is_there(self, path: Path) -> bool:
        try:
            for descriptor, place in ((self._folder, path.parent), (self._file, path)):
                os.utime(descriptor)
                if not os.path.samestat(os.fstat(descriptor), os.lstat(place)):
                    return False
            return os.fstat(self._file).st_size == len(launcher_archive())
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file and its folder, unless somebody else's are in their place."""
        if self._path is not None and self._folder >= 0:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._folder), os.lstat(self._path.parent)):
                    shutil.rmtree(self._path.parent, ignore_errors=True)
        for descriptor in (self._folder, self._file):
            if descriptor >= 0:
                os.close(descriptor)
        self._path, self._folder, self._file = None, -1, -1


def _new_folder() -> Path:
    """A new folder in TMPDIR or, if that is gone, in one of the usual places; raises OSError."""
    for place in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a folder that was not there
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="gpuspawner-launcher-", dir=place))
    return Path(tempfile.mkdtemp(prefix="gpuspawner-launcher-", dir="/var/tmp"))


LAUNCHER = LauncherFile()
"""The file of this hub process."""
atexit.register(LAUNCHER.remove)
