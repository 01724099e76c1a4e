"""Files of a folder that others write to: read safely, read again when they change, and kept as they last were good.

Only regular files are read; no links are followed, and the size is bounded. Reading blocks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from jupyterhub_gpuspawner.errors import ConfigError

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "is a symbolic link, which is not followed: use a copy of the file"),
    (stat.S_ISDIR, "is a folder, not a file"),
    (stat.S_ISFIFO, "is a named pipe, not a file"),
    (stat.S_ISSOCK, "is a socket, not a file"),
)
_ATTEMPTS = 3

Signature = tuple[int, int, int, int, int]


def signature(status: os.stat_result) -> Signature:
    """Values that change when a file is written or replaced, or its mode or owner changes."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode)


def snapshot_of(folder: int, name: str) -> os.stat_result:
    """The status of a directory entry, without following links; raises OSError."""
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _signature_of(folder: int, name: str) -> Signature | None:
    try:
        return signature(snapshot_of(folder, name))
    except OSError:
        return None


def read_text(folder: int, name: str, *, limit: int, where: str) -> str:
    """The text of the file ``name`` in the open folder ``folder``; raises OSError, and ConfigError with ``where``.

    ``O_NOFOLLOW`` and ``O_NONBLOCK`` (open(2)) protect against an entry replaced after the check: a link is then an
    error, and opening a pipe does not wait for a writer.
    """
    for _ in range(_ATTEMPTS):
        _require_regular(snapshot_of(folder, name), where)
        with os.fdopen(os.open(name, _FILE_FLAGS, dir_fd=folder), "rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            _require_regular(before, where)
            content = bytearray()
            while len(content) <= limit and (part := file.read(limit + 1 - len(content))):
                content += part
            unchanged = signature(os.fstat(file.fileno())) == signature(before)
        if len(content) > limit:
            raise ConfigError(f"the file is larger than {limit} bytes", where=where)
        if not unchanged:
            continue
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ConfigError("the file is not UTF-8", where=where) from None
    raise ConfigError("the file changed while it was being read", where=where)


def _require_regular(status: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((text for test, text in _KINDS if test(status.st_mode)), "is a device, not a file")
        raise ConfigError(f"the file {kind}", where=where)


def shown_name(name: str) -> str:
    """A file name made safe for messages, since anybody may have chosen it."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."


Content = TypeVar("Content")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The open folder at ``path``; raises OSError."""
    folder = os.open(path, _FOLDER_FLAGS)
    try:
        yield folder
    finally:
        os.close(folder)


def folder_fault(path: Path, error: Exception) -> ConfigError:
    """Why the folder at ``path`` could not be read."""
    reason = error.strerror if isinstance(error, OSError) else type(error).__name__
    return ConfigError(f"the folder cannot be read: {reason}", where=str(path))


class Files:
    """Reads files of an open folder, and notes how each was, so that none is read again before it changes."""

    def __init__(self, folder: int) -> None:
        self.signatures: dict[str, Signature | None] = {}
        """The files that were read, as they were; None for one that could not be."""
        self._folder = folder

    def text(self, name: str, *, limit: int, where: str) -> str:
        """The text of a file; raises ConfigError with ``where``."""
        self.signatures[name] = _signature_of(self._folder, name)
        try:
            return read_text(self._folder, name, limit=limit, where=where)
        except OSError as error:  # may go away without a change of the file
            self.signatures[name] = None
            raise ConfigError(f"the file cannot be read: {error.strerror}", where=where) from None


@dataclass(frozen=True)
class FileState(Generic[Content]):
    """What is known of one file of a folder."""

    content: Content | None
    """The last good version; None if there has been none."""
    fault: ConfigError | None
    """What is wrong with the file as it is now."""
    signatures: Mapping[str, Signature | None]
    """See :attr:`Files.signatures`: it may name other files."""


def reread(
    folder: int, name: str, before: FileState[Content] | None, parse: Callable[[Files], Content]
) -> FileState[Content]:
    """The file ``name`` now: ``before``, unless a file that was read for it has changed. Never raises."""
    if before is not None and all(_signature_of(folder, file) == then for file, then in before.signatures.items()):
        return before
    files = Files(folder)
    try:
        return FileState(parse(files), None, files.signatures)
    except ConfigError as error:
        fault, signatures = error, files.signatures
    except Exception as error:  # noqa: BLE001 - it belongs to this one file
        # only the type's name, since the message may quote the file; it may go away without a change of the file
        fault = ConfigError(f"the file cannot be understood ({type(error).__name__})", where=shown_name(name))
        signatures = dict.fromkeys(files.signatures)
    return FileState(before.content if before is not None else None, fault, signatures)
