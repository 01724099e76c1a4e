"""Safe reading in a folder that others write to: regular files only, no links followed, bounded size."""

from __future__ import annotations

import os
import stat

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "is a symbolic link, which is not followed: use a copy of the file"),
    (stat.S_ISDIR, "is a folder, not a file"),
    (stat.S_ISFIFO, "is a named pipe, not a file"),
    (stat.S_ISSOCK, "is a socket, not a file"),
)
_ATTEMPTS = 3

Signature = tuple[int, int, int, int, int]


class UnfitFile(Exception):
    """Why a file is not read; the message is a sentence without its subject."""


def signature(status: os.stat_result) -> Signature:
    """Values that change when a file is written or replaced, or its mode or owner changes."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)


def look_at(folder: int, name: str) -> os.stat_result:
    """The status of a directory entry, without following links; raises OSError."""
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def read_regular(folder: int, name: str, *, limit: int) -> bytes:
    """The content of ``name`` in the open folder ``folder``; raises UnfitFile or OSError.

    ``O_NOFOLLOW`` and ``O_NONBLOCK`` (open(2)) protect against an entry replaced after the check: a link is then an
    error, and opening a pipe does not wait for a writer.
    """
    for _ in range(_ATTEMPTS):
        _require_regular(look_at(folder, name))
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
        try:
            before = os.fstat(descriptor)
            _require_regular(before)
            if before.st_size > limit:
                raise UnfitFile(f"is larger than {limit} bytes")
            content = _content(descriptor, limit)
            if signature(os.fstat(descriptor)) == signature(before):
                return content
        finally:
            os.close(descriptor)
    raise UnfitFile("changed while it was being read")


def _content(descriptor: int, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit + 1
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise UnfitFile(f"is larger than {limit} bytes")
    return b"".join(parts)


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    raise UnfitFile(next((says for test, says in _KINDS if test(status.st_mode)), "is a device, not a file"))
