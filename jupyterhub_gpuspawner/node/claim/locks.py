"""Claims on GPUs by file locks, on nodes where Slurm does not allocate them.

In a folder that all jobs of a node share, each user has one file per GPU. A GPU is claimed while one of its files is
locked (flock(2)). The lock belongs to an open file that the server inherits, so it ends with the server, however that
ends. To claim a GPU is to lock one's own file and then to find no other user's file locked: of two servers that try at
the same time, at most one succeeds. Nobody can remove or replace another user's file, since the folder belongs to root
and is sticky; the most that a hostile user can do is to claim GPUs without using them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PREFIX = "gpuspawner-claim"
TURN = 2.0
"""Seconds to wait while other servers choose; after that the choice may be worse, but is still safe."""
_STEP = 0.005
_FIRST = 100
"""Lowest file descriptor for locks: scripts use the small numbers for their own files."""
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9+-]+", re.ASCII)


class ClaimError(Exception):
    """The folder cannot be used for claims; the text says why, and what would be right."""


@dataclass(frozen=True)
class Claim:
    """The GPUs claimed by this process, and by the server it becomes, until that ends."""

    gpus: tuple[int, ...] = ()
    """In the order in which they were chosen."""
    claimed_elsewhere: tuple[int, ...] = ()
    """GPUs claimed by other servers."""
    problems: tuple[str, ...] = ()


def claim(
    folder: str,
    names: Mapping[int, str],
    choose: Callable[[Sequence[int]], Sequence[int]],
    *,
    turn: float = TURN,
) -> Claim:
    """Claim the GPUs that ``choose`` picks from the unclaimed ones; raises :class:`ClaimError`.

    ``names`` gives each GPU a name on which all jobs that use the folder agree. ``a+b`` is a part of ``a`` (a MIG
    device): a claim on either excludes a claim on the other. ``choose`` gets the free GPUs, and is called again if
    another server was faster.
    """
    problems: list[str] = []
    directory = _open_folder(folder)
    try:
        with _turn(directory, turn) as mine:
            if not mine:
                problems.append(f"Other servers took more than {turn:g} s to choose GPUs; this one did not wait.")
            return _claim(directory, names, choose, problems)
    finally:
        os.close(directory)


def _claim(
    directory: int,
    names: Mapping[int, str],
    choose: Callable[[Sequence[int]], Sequence[int]],
    problems: list[str],
) -> Claim:
    files = {gpu: f"{PREFIX}.{_NOT_IN_A_NAME.sub('_', name)}" for gpu, name in names.items()}
    claimed = [gpu for gpu, file in files.items() if _is_claimed(directory, file, "")]
    while True:
        free = [gpu for gpu in files if gpu not in claimed]
        held: dict[int, int] = {}
        for gpu in choose(free) if free else ():
            try:
                descriptor = _lock(directory, files[gpu])
            except OSError as error:
                problems.append(f"The lock of {names[gpu]} cannot be used: {error.strerror}.")
                descriptor = None
            if descriptor is None:
                claimed.append(gpu)
                break
            held[gpu] = descriptor
        else:
            for descriptor in held.values():
                _keep(descriptor)
            return Claim(tuple(held), tuple(claimed), tuple(problems))
        for descriptor in held.values():
            os.close(descriptor)


def _lock(directory: int, file: str) -> int | None:
    """Lock this user's file of a GPU; None if the GPU is claimed. Raises OSError if the file has another owner."""
    own = f"{file}.{os.geteuid()}"
    descriptor = _make(own, os.O_CREAT, directory)
    try:
        if _is_ours(descriptor, own, directory) and not _is_claimed(directory, file, own):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _make(name: str, flags: int, directory: int) -> int:
    """Open the file, or create it, readable for all whatever the umask is: others must be able to see its lock."""
    umask = os.umask(0o022)
    try:
        return os.open(name, os.O_RDWR | flags | _SAFE, 0o644, dir_fd=directory)
    finally:
        os.umask(umask)


def _is_ours(descriptor: int, own: str, directory: int) -> bool:
    """Lock our own file; False if another process of this user has it, or the folder now holds another file."""
    opened = os.fstat(descriptor)
    if not stat.S_ISREG(opened.st_mode) or opened.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"{own} is not a file of this user's")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.utime(descriptor)  # programs that clean up old files go by the time
    there = os.stat(own, dir_fd=directory, follow_symlinks=False)
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def _is_claimed(directory: int, file: str, own: str) -> bool:
    """Whether a file of this GPU, other than ``own``, is locked. A file counts only if its name has its owner's uid."""
    for name in os.listdir(directory):
        base, _, uid = name.rpartition(".")
        if name != own and _overlap(base, file) and _is_locked(directory, name, uid):
            return True
    return False


def _overlap(one: str, other: str) -> bool:
    """Whether the files belong to the same GPU, or to a GPU and a part of it."""
    return one == other or one.startswith(f"{other}+") or other.startswith(f"{one}+")


def _is_locked(directory: int, name: str, uid: str) -> bool:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or uid != str(status.st_uid):
            return False
        descriptor = os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    except PermissionError:  # its owner's doing: _make creates it readable
        return _some_process_locks(status.st_ino)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _some_process_locks(inode: int) -> bool:
    """Whether the kernel lists a lock on a file with this number, on any device (proc_locks(5)); True if unknown."""
    try:
        with open("/proc/locks", encoding="ascii") as file:
            return any(f":{inode} " in line for line in file)
    except OSError:
        return True


def _keep(descriptor: int) -> None:
    """Keep the file open across exec, with a descriptor that scripts do not use."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST)
    except OSError:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - its one argument
    else:
        os.close(descriptor)


def _open_folder(folder: str) -> int:
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        hint = f"create it with: install -d -o root -m 1777 {folder}" if error.errno == errno.ENOENT else ""
        raise ClaimError(f"the claims folder {folder}: {error.strerror}{hint and '; '}{hint}") from None
    status = os.fstat(directory)
    fault = ""
    if status.st_uid not in (0, os.geteuid()):
        fault = f"belongs to uid {status.st_uid}, who could remove claims; root must own it"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        fault = "lets others remove claims; it must have mode 1777"
    if fault:
        os.close(directory)
        raise ClaimError(f"the claims folder {folder} {fault}")
    return directory


@contextmanager
def _turn(directory: int, seconds: float) -> Iterator[bool]:
    """Wait for this server's turn to choose, since all see the same free GPUs; yields False if it took too long."""
    try:
        descriptor = _open_turn(directory)
    except OSError:
        yield False
        return
    try:
        yield _wait(descriptor, seconds)
    finally:
        os.close(descriptor)


def _open_turn(directory: int) -> int:
    """Open the file that every server locks while it chooses; the first one creates it."""
    name = f"{PREFIX}.turn"
    try:
        return os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)
    except FileNotFoundError:
        pass
    try:
        return _make(name, os.O_CREAT | os.O_EXCL, directory)
    except FileExistsError:
        return os.open(name, os.O_RDONLY | _SAFE, dir_fd=directory)


def _wait(descriptor: int, seconds: float) -> bool:
    ends_at = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends_at:
                return False
            time.sleep(_STEP)
        else:
            return True
