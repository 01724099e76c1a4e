"""YAML files with profiles, which people other than the admin may write: a file's value, and a folder of such files.

Their content is treated as data: only regular files are read; their size, depth and number are bounded, as are the
fields they may use (:mod:`.file_rights`); a fault affects one file only, names file and line, and quotes no value,
since a file may contain secrets. Reading blocks, so the hub does it in a thread.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import yaml

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.file_rights import NOTHING, Rights, require, require_traits
from jupyterhub_gpuspawner.profiles.profile import Allow, Profile, SlugTaken, parse_profile
from jupyterhub_gpuspawner.profiles.resolve import permitted, resolve
from jupyterhub_gpuspawner.profiles.schema import Frozen, dotted
from jupyterhub_gpuspawner.profiles.user_options import options_schema

# The value of a YAML file and the line of each part, with bounded depth, size and time.
#
# YAML 1.2's core schema is used: ``8:00:00`` and ``no`` are text, where YAML 1.1 reads 28800 and false. The file is
# read event by event, since libyaml builds its tree by recursion and a file of brackets would crash the process.

NODE_LIMIT = 10_000
"""Maximum number of values in a file; an alias counts each time it is used."""
DEPTH_LIMIT = 50
"""Maximum nesting depth of tables and lists."""
_TOO_DEEP = f"tables and lists are nested more than {DEPTH_LIMIT} deep"

_CORE = {
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?[0-9]{1,18}"),
    "float": re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
    "null": re.compile("~|null|Null|NULL|"),
}
_TAG = "tag:yaml.org,2002:"
_DIRECTIVE = re.compile(r"(?m)^%")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

FieldPath = tuple[str | int, ...]


class YamlFault(Exception):
    """What is wrong with the text, in a sentence that does not quote it, and the line."""

    def __init__(self, sentence: str, line: int | None = None) -> None:
        super().__init__(sentence)
        self.line = line


@dataclass
class _Part:
    """A value with the number of values in it and their depth."""

    value: Any
    count: int = 1
    depth: int = 0


@dataclass
class _Open:
    """A table or list whose end has not been read yet."""

    path: FieldPath
    anchor: str | None
    part: _Part
    key: Any = None
    keyed: bool = False


@dataclass
class Document:
    """A file's value, the number of values in it, and the line on which each part begins."""

    value: Any = None
    count: int = 0
    lines: dict[FieldPath, int] = field(default_factory=dict)

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the part at ``path``, or of the nearest enclosing part."""
        steps = tuple(path)
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return self.lines.get(steps, 1)


def read_document(text: str) -> Document:
    """The value of one YAML document; raises YamlFault."""
    directive = _DIRECTIVE.search(text)
    if directive is not None:  # libyaml compares each with all before it, and nothing can stop it
        line = text.count("\n", 0, directive.start()) + 1
        raise YamlFault("YAML directives (lines that begin with %) are not supported", line)
    reader = _Reader()
    for event in _events(text):
        reader.take(event)
    document = reader.document
    document.count = reader.count
    return document


def _events(text: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        message = ", ".join(part for part in (error.context, error.problem) if part)
        if _LOADER is yaml.SafeLoader:  # the Python implementation quotes what it found
            message = re.sub(r"\W*['\"].*", "", message, flags=re.DOTALL)
        mark = error.problem_mark or error.context_mark
        if mark is not None and "\t" in _indentation(text, mark.line):
            message = "the line is indented with a tab: use spaces"
        if "nesting depth" in message:  # of libyaml from 0.2.6 on, which reads on to 1,000 before its first event
            message = _TOO_DEEP
        raise YamlFault(message or "this is not YAML", mark.line + 1 if mark is not None else None) from None
    except yaml.YAMLError:
        raise YamlFault("the file contains a character that YAML does not allow") from None


def _indentation(text: str, line: int) -> str:
    rows = text.split("\n")[line : line + 1]
    return rows[0][: len(rows[0]) - len(rows[0].lstrip())] if rows else ""


class _Reader:
    """Builds the value from the events of a document, without recursion."""

    def __init__(self) -> None:
        self.document = Document()
        self.count = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, _Part | None] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise YamlFault("a file contains one document: a second '---' is not allowed", line)
        elif isinstance(event, yaml.AliasEvent):
            part = self._anchors.get(str(event.anchor))
            if part is None:
                raise YamlFault("an alias refers to no part that is complete before it", line)
            self._put(part, None, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._put(_Part(_scalar(event, line)), event.anchor, line)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._begin(event, line)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            ended = self._open.pop()
            self._put(ended.part, ended.anchor, line, ended=True)

    def _begin(self, event: Any, line: int) -> None:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in (None, "!", f"{_TAG}{'seq' if is_list else 'map'}"):
            raise YamlFault("unknown tag", line)
        if self._open and self._waits_for_key(self._open[-1]):
            raise YamlFault("a key must be text", line)
        if len(self._open) >= DEPTH_LIMIT:
            raise YamlFault(_TOO_DEEP, line)
        path = self._next_path()
        self.document.lines.setdefault(path, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._count(1, line)
        self._open.append(_Open(path, event.anchor, _Part([] if is_list else {})))

    def _put(self, part: _Part, anchor: str | None, line: int, *, ended: bool = False) -> None:
        """Store a complete value where it belongs: as a key, a table's value, a list's item, or the whole document."""
        if not ended:
            self._count(part.count, line)
        if anchor is not None:
            self._anchors[anchor] = part
        if not self._open:
            self.document.lines.setdefault((), line)
            self.document.value = part.value
            return
        around = self._open[-1]
        if not ended and self._waits_for_key(around):
            self._key(around, part, line)
            return
        if len(self._open) + part.depth > DEPTH_LIMIT:
            raise YamlFault(_TOO_DEEP, line)
        self.document.lines.setdefault(self._next_path(), line)
        holder = around.part
        holder.count += part.count
        holder.depth = max(holder.depth, part.depth + 1)
        if isinstance(holder.value, list):
            holder.value.append(part.value)
        else:
            holder.value[around.key] = part.value
            around.keyed = False

    def _key(self, around: _Open, part: _Part, line: int) -> None:
        if isinstance(part.value, (list, dict)):
            raise YamlFault("a key must be text", line)
        if part.value in around.part.value:
            raise YamlFault("duplicate key", line)
        around.part.count += 1
        around.key, around.keyed = part.value, True
        self.document.lines[(*around.path, str(part.value))] = line

    @staticmethod
    def _waits_for_key(around: _Open) -> bool:
        return isinstance(around.part.value, dict) and not around.keyed

    def _next_path(self) -> FieldPath:
        if not self._open:
            return ()
        around = self._open[-1]
        held = around.part.value
        return (*around.path, len(held) if isinstance(held, list) else str(around.key))

    def _count(self, more: int, line: int) -> None:
        self.count += more
        if self.count > NODE_LIMIT:
            raise YamlFault(f"the file contains more than {NODE_LIMIT} values", line)


def _scalar(event: Any, line: int) -> Any:
    text: str = event.value
    if event.tag is None or event.tag == "!":
        plain = event.tag is None and event.implicit[0]
        name = next((name for name, pattern in _CORE.items() if pattern.fullmatch(text)), "str") if plain else "str"
    else:
        name = event.tag.removeprefix(_TAG)
        if name != "str" and name not in _CORE:
            raise YamlFault("unknown tag", line)
        if name != "str" and _CORE[name].fullmatch(text) is None:
            raise YamlFault(f"a value does not match its tag !!{name}", line)
    if name == "int":
        return int(text)
    if name == "float":
        number = float(text)
        if not math.isfinite(number):
            raise YamlFault("a number is too large", line)
        return number
    if name == "bool":
        return text.lower() == "true"
    return None if name == "null" else text


# Safe reading in a folder that others write to: regular files only, no links followed, bounded size.

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


def snapshot_of(folder: int, name: str) -> os.stat_result:
    """The status of a directory entry, without following links; raises OSError."""
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def read_regular(folder: int, name: str, *, limit: int) -> bytes:
    """The content of ``name`` in the open folder ``folder``; raises UnfitFile or OSError.

    ``O_NOFOLLOW`` and ``O_NONBLOCK`` (open(2)) protect against an entry replaced after the check: a link is then an
    error, and opening a pipe does not wait for a writer.
    """
    for _ in range(_ATTEMPTS):
        _require_regular(snapshot_of(folder, name))
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
    raise UnfitFile(next((text for test, text in _KINDS if test(status.st_mode)), "is a device, not a file"))


# The path of a field as errors about a file show it: as far as the schema knows its names.
#
# Other keys come from the file and may be anything, a secret among them, so the path ends before the first of them.

_TABLES = ("profile_options", "choices", "variables", "traits", "dates")
"""Fields whose keys the author chooses."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def shown_path(path: Sequence[str | int]) -> str:
    """``slurm.extra[0]``, or the beginning of the path that the schema knows."""
    around = ("", *path)

    def in_schema(step: tuple[str | int, str | int]) -> bool:
        before, name = step
        return isinstance(name, int) or name in _FIELDS or (before in _TABLES and _NAME.fullmatch(name) is not None)

    return dotted([name for _, name in takewhile(in_schema, zip(around, path, strict=False))])


def _names(model: type[Frozen]) -> Iterator[str]:
    """The fields of a model and of all models within it, by the names that a file uses."""
    for name, info in model.model_fields.items():
        yield info.alias or name
        for part in _models(info.annotation):
            yield from _names(part)


def _models(annotation: object) -> Iterator[type[Frozen]]:
    """The models in a field's type, such as the one in ``dict[str, ProfileOption] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


_FIELDS = frozenset(_names(Profile))


SIZE_LIMIT = 1024 * 1024
"""Maximum size of a profile file in bytes."""
PROFILES_LIMIT = 500
"""Maximum number of profiles in a folder; every form evaluates all of them."""
FILES_LIMIT = 200
"""Maximum number of profile files in a folder."""
VALUES_LIMIT = 50_000
"""Maximum number of YAML values in all files of a folder."""
ENTRIES_LIMIT = 200_000
"""Maximum number of directory entries examined in one scan."""
ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class FileContent:
    """The content of one file."""

    profiles: tuple[Profile, ...]
    values: int = 0
    """Number of YAML values."""


def read_profiles(path: Path, rights: Rights = NOTHING) -> tuple[Profile, ...]:
    """The profiles of one file: a profile, a list of them, or ``profiles:`` with a list.

    Raises ConfigError with file, line and field, and none of the file's values: ``course.yaml:12: slurm.memory: …``.
    ``rights`` lists what the admin allows in such files beyond plain requests.
    """
    try:
        folder = os.open(path.parent, FOLDER_FLAGS)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=shown_name(path.name)) from None
    try:
        return _folder_content(folder, path.name, rights).profiles
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=shown_name(path.name)) from None
    finally:
        os.close(folder)


def shown_name(name: str) -> str:
    """A file name made safe for messages, since anybody may have chosen it."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."


def _folder_content(folder: int, name: str, rights: Rights) -> FileContent:
    """Raises ConfigError, and OSError if the file cannot be read now."""
    shown = shown_name(name)
    if name.encode("utf-8", "replace") != os.fsencode(name):  # pages and the hub's database take UTF-8 alone
        raise ConfigError("the name of the file is not UTF-8", where=shown)
    try:
        document = read_document(read_regular(folder, name, limit=SIZE_LIMIT).decode("utf-8"))
        profiles = _profiles(shown, document, rights)
        for profile in profiles:
            _try(profile)
    except (ConfigError, OSError):
        raise
    except UnfitFile as error:
        raise ConfigError(f"the file {error}", where=shown) from None
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8", where=shown) from None
    except YamlFault as error:
        raise ConfigError(str(error), where=shown if error.line is None else f"{shown}:{error.line}") from None
    except Exception as error:  # noqa: BLE001 - it belongs to this one file
        # only the type's name, since the message may quote the file
        raise ConfigError(f"the file cannot be understood ({type(error).__name__})", where=shown) from None
    return FileContent(profiles, document.count)


def _try(profile: Profile) -> None:
    """Evaluate the profile once as a form would; lets every error through except a refusal."""
    now = datetime.now().astimezone()
    permitted(profile, "", (), now)
    options_schema(profile)
    open_one = profile.model_copy(update={"allow": Allow()})
    with suppress(RequestError):  # such as a table of reservations without today's
        resolve((open_one,), {"profile": profile.slug}, username="", groups=(), server_name="", now=now)


def _profiles(name: str, document: Document, rights: Rights) -> tuple[Profile, ...]:
    value = document.value
    base: tuple[str | int, ...] = ()
    if isinstance(value, dict) and "profiles" in value:
        if len(value) > 1 or not isinstance(value["profiles"], list):
            raise ConfigError(
                "must contain one profile, a list of profiles, or only 'profiles:' with a list",
                where=f"{name}:{document.line(('profiles',))}",
            )
        value, base = value["profiles"], ("profiles",)
    items = (
        [((*base, position), item) for position, item in enumerate(value)]
        if isinstance(value, list)
        else [(base, value)]
    )
    if len(items) > PROFILES_LIMIT:
        raise ConfigError(f"the file contains more than {PROFILES_LIMIT} profiles", where=name)
    profiles: dict[str, Profile] = {}
    for path, item in items:

        def where(inner: Sequence[str | int], path: tuple[str | int, ...] = path) -> str:
            location = f"{name}:{document.line((*path, *map(_step, inner)))}"
            shown = shown_path(inner)
            return f"{location}: {shown}" if shown else location

        require_traits(item, where)
        profile = parse_profile(item, where, quoting=False)
        require(profile, rights, where)
        if profile.slug in profiles:
            raise ConfigError(f"{profile.slug!r} is already the slug of an earlier profile", where=where(("slug",)))
        profiles[profile.slug] = profile
    return tuple(profiles.values())


def _step(step: str | int) -> str | int:
    return step if isinstance(step, int) else str(step)


# --- the folder ---------------------------------------------------------------------------------------


@dataclass
class _File:
    """What is known of one file of the folder."""

    since: tuple[int, int, str]
    """Order of arrival: number of the scan that first found it, time of its last change, name."""
    signature: Signature | None = None
    """None: to be read at the next scan in any case."""
    last_valid: FileContent | None = None
    fault: ConfigError | None = None


class ProfileFolder:
    """The profiles of a folder's ``*.yaml`` files, ordered by file name; hidden files are ignored.

    A slug belongs to the file that used it first; of files present at the first scan, to the one that :attr:`owners`
    names, else to the one with the oldest st_ctime.
    """

    def __init__(self, path: str | Path, rights: Rights = NOTHING) -> None:
        self.path = Path(path)
        self.rights = rights
        self.crowded = False
        """The folder contains so many files that a scan is slow."""
        self.missing = False
        """The folder did not exist at the last scan."""
        self._looks = 0
        self._files: dict[str, _File] = {}
        self.owners: dict[str, str] = {}
        """The file of each slug; may be set before the first scan, to what an earlier process found."""
        self._profiles: tuple[Profile, ...] = ()
        self._of_the_folder: tuple[ConfigError, ...] = ()
        self._in_files: tuple[ConfigError, ...] = ()

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """Faults found at the last scan; a faulty file keeps its last good version."""
        return (*self._of_the_folder, *self._in_files)

    def profiles(self) -> tuple[Profile, ...]:
        """The current profiles. Costs a scan and one stat per file if nothing has changed; never raises."""
        self._looks += 1
        self.missing = False
        try:
            folder = os.open(self.path, FOLDER_FLAGS)
            try:
                if self._scan(folder):
                    self._join()
            finally:
                os.close(folder)
        except OSError as error:
            self.missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            self._fault(f"the folder cannot be read: {error.strerror}")
        except Exception as error:  # noqa: BLE001  the job is kept, and looked up again after the next answer
            self._fault(f"the folder cannot be read ({type(error).__name__})")
        return self._profiles

    def _fault(self, sentence: str) -> None:
        self._of_the_folder = (ConfigError(sentence, where=str(self.path)),)

    def _scan(self, folder: int) -> bool:
        """Read the files that have changed; returns whether there were any."""
        self._of_the_folder = ()
        statuses: dict[str, os.stat_result] = {}
        for name in self._names(folder):
            try:
                statuses[name] = snapshot_of(folder, name)
            except FileNotFoundError:  # removed just now
                continue
        gone = self._files.keys() - statuses.keys()
        for name in gone:
            del self._files[name]
        changed = bool(gone)
        new = [(status.st_ctime_ns, name) for name, status in statuses.items() if name not in self._files]
        for changed_at, name in sorted(new)[: max(0, FILES_LIMIT - len(self._files))]:
            self._files[name] = _File(since=(self._looks, changed_at, name))
        for name, file in self._files.items():
            if file.signature != signature(statuses[name]):
                self._read(folder, name, file, signature(statuses[name]))
                changed = True
        return changed

    def _names(self, folder: int) -> Iterable[str]:
        """Profile files, including those already known, so that an incomplete scan removes none."""
        names: set[str] = set()
        number = 0
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries, 1):
                if number > ENTRIES_LIMIT:
                    break
                if entry.name.endswith(ENDINGS) and not entry.name.startswith("."):
                    names.add(entry.name)
        self.crowded = number > ENTRIES_LIMIT or len(names) > FILES_LIMIT
        if self.crowded:
            self._fault(
                f"the folder contains more than {FILES_LIMIT} profile files, or {ENTRIES_LIMIT} files of any kind; "
                f"the newest ones are ignored"
            )
        return names | self._files.keys()

    def _read(self, folder: int, name: str, file: _File, signature: Signature) -> None:
        try:
            file.last_valid, file.fault, file.signature = _folder_content(folder, name, self.rights), None, signature
        except ConfigError as error:
            file.fault, file.signature = error, signature
        except OSError as error:  # may go away without a change of the file
            file.fault = ConfigError(f"the file cannot be read: {error.strerror}", where=shown_name(name))
            file.signature = None

    def _join(self) -> None:
        """Combine the profiles of all files; files that arrived first take precedence."""
        slugs = {
            name: {profile.slug for profile in file.last_valid.profiles}
            for name, file in self._files.items()
            if file.last_valid is not None
        }
        names = self._files.keys()  # a file that has been faulty from the first scan on keeps its slugs, too
        owners = {slug: name for slug, name in self.owners.items() if name in names and slug in slugs.get(name, {slug})}
        faults = {(name, ""): file.fault for name, file in self._files.items() if file.fault is not None}
        by_slug: dict[str, list[Profile]] = {}
        profiles = values = 0
        for name, file in sorted(self._files.items(), key=lambda item: item[1].since):
            if file.last_valid is None:
                continue
            profiles += len(file.last_valid.profiles)
            values += file.last_valid.values
            if profiles > PROFILES_LIMIT or values > VALUES_LIMIT:
                profiles -= len(file.last_valid.profiles)
                values -= file.last_valid.values
                faults[name, "*"] = ConfigError(
                    f"with this file the folder would contain more than {PROFILES_LIMIT} profiles, or {VALUES_LIMIT} "
                    "YAML values; it is ignored",
                    where=shown_name(name),
                )
                continue
            for profile in file.last_valid.profiles:
                owner = owners.setdefault(profile.slug, name)
                if owner == name:
                    by_slug.setdefault(name, []).append(profile)
                else:
                    faults[name, profile.slug] = SlugTaken(
                        f"{profile.slug!r} is already a slug in {shown_name(owner)}; this profile is ignored",
                        where=shown_name(name),
                    )
        self.owners = owners
        self._profiles = tuple(profile for name in sorted(by_slug) for profile in by_slug[name])
        self._in_files = tuple(faults[key] for key in sorted(faults))
