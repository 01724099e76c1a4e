"""YAML files with profiles, which people other than the admin may write: a file's value, and a folder of such files.

Their content is treated as data: only regular files are read; their size, depth and number are bounded, as are the
fields they may use (:class:`.Rights`); a fault affects one file only, names file and line, and quotes no value,
since a file may contain secrets. Reading blocks, so the hub does it in a thread.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import yaml

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.option import UnlistedChoice
from jupyterhub_gpuspawner.profiles.parsing import parse_profile
from jupyterhub_gpuspawner.profiles.profile import Allow, Profile, SlugTaken
from jupyterhub_gpuspawner.profiles.resolve import options_schema, permitted, resolve
from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.profiles.schema import Frozen, Guarded, dotted
from jupyterhub_gpuspawner.profiles.sections import profile_class, refuse_left_out

# Which fields a profile in a file may use, and which of them the admin has to allow first.
#
# By default a file may use typed Slurm requests, modules of the site, texts, times and options. Fields that name code
# or a path are :class:`~.schema.Guarded`. Nothing that would run as the hub's account, or be read by it, can be
# allowed: of the spawner's settings a file may set those in :data:`TRAITS` only. A list of forbidden settings would be
# outdated by the next release of JupyterHub, batchspawner or Slurm: ``ip`` sends people's requests to any address,
# ``env_keep`` reveals the hub's secrets, ``consecutive_failure_limit`` stops the hub, and ``server_token_scopes`` gives
# a server's token administrator rights.
#
# A profile in the hub's configuration may use every field, since its author has the hub's account anyway.

SETTING = "c.GPUProfilesSpawner.profiles_dir_allows"
CLASSES_SETTING = "c.GPUProfilesSpawner.profiles_dir_classes"
ALLOWANCES = {
    "software": "`environment.container`, `venv`, `module_use`, and `conda` with a path",
    "variables": "`environment.variables`",
    "command": "`command`",
    "setup": "`environment.setup`",
    "extra": "`slurm.extra`",
    "local": "`kind: local`, a server on the hub's machine",
    "traits": "`traits`, limited to a few",
}
"""What each word in the setting allows in files."""
TRAITS = ("cpu_guarantee", "cpu_limit", "disable_user_config", "mem_guarantee", "mem_limit")
"""Spawner settings that a file may set where ``traits`` is allowed: no paths, addresses, code or rights.

Other useful settings have fields of their own, with their own rules."""

FieldPath = tuple[str | int, ...]
Where = Callable[[Sequence[str | int]], str]


@dataclass(frozen=True)
class Rights:
    """What the admin allows in the files of a folder."""

    allowed: frozenset[str] = frozenset()
    """Words of :data:`ALLOWANCES`."""
    classes: frozenset[str] = frozenset()
    """Dotted names of spawner classes for ``kind: other``."""
    extensions: frozenset[str] | None = None
    """The extensions whose fields a profile may have; None: all that are installed."""


NOTHING = Rights()
EVERYTHING = Rights(frozenset(ALLOWANCES))
"""Everything that the one setting can allow; classes are not included."""


def _require_traits(traits: object, where: Where) -> None:
    """Raise ConfigError for the first of a file's ``traits`` that no setting allows."""
    for name in sorted(map(str, traits)) if isinstance(traits, Mapping) else ():
        if name not in TRAITS:
            hint = f"Files may set {', '.join(TRAITS)}; a profile in jupyterhub_config.py may set any."
            raise _not_allowed(where(("traits", name)), hint)


def require(profile: Profile, rights: Rights, where: Where) -> None:
    """Raise ConfigError for the first field of a file's profile that ``rights`` do not allow."""
    refuse_left_out(profile, rights.extensions, where)
    _require_traits(profile.traits, where)
    if profile.spawner_class is not None and profile.spawner_class not in rights.classes:
        raise _not_allowed(where(("spawner_class",)), f"The class in {CLASSES_SETTING} would allow it.")
    traits: list[tuple[FieldPath, str]] = [(("traits", name), "traits") for name in sorted(profile.traits)]
    for path, word in (*traits, *_guarded_fields(profile)):
        if word not in rights.allowed:
            raise _not_allowed(where(path), f'"{word}" in {SETTING} would allow it.')


def _not_allowed(where: str, hint: str) -> ConfigError:
    return ConfigError("this field is not allowed in a profile file.", where=where, hint=hint)


def _guarded_fields(part: Frozen, at: FieldPath = ()) -> Iterator[tuple[FieldPath, str]]:
    """The fields that are set in a part of a profile and need a word, with that word."""
    for name, field in type(part).model_fields.items():
        value, path = getattr(part, name), (*at, name)
        for mark in field.metadata:
            if isinstance(mark, Guarded) and value and not re.fullmatch(mark.free, str(value)):
                yield path, mark.word
        for key, inner in value.items() if isinstance(value, dict) else ():
            if isinstance(inner, Frozen):
                yield from _guarded_fields(inner, (*path, key))
        if isinstance(value, Frozen):
            yield from _guarded_fields(value, path)
    if isinstance(part, UnlistedChoice) and part.sets.startswith("environment."):
        field = Environment.model_fields[part.sets.split(".")[1]]
        yield from (((*at, "sets"), mark.word) for mark in field.metadata if isinstance(mark, Guarded))


# The value of a YAML file and the line of each part, with bounded depth, size and time.
#
# YAML 1.2's core schema is used: ``8:00:00`` and ``no`` are text, where YAML 1.1 reads 28800 and false. Digits after a
# leading zero are text, too: they are the name of an account, or a umask, and would lose it as a number.

NODE_LIMIT = 10_000
"""Maximum number of values in a file; an alias counts each time it is used."""
DEPTH_LIMIT = 50
"""Maximum nesting depth of tables and lists."""
_TOO_DEEP = f"tables and lists are nested more than {DEPTH_LIMIT} deep"

_TAG = "tag:yaml.org,2002:"
_CORE = {
    f"{_TAG}bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    f"{_TAG}int": re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z"),
    f"{_TAG}float": re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
    f"{_TAG}null": re.compile(r"(?:~|null|Null|NULL|)\Z"),
}
_DIRECTIVE = re.compile(r"(?m)^%")
_TAB = re.compile(r" *\t")
"""A line whose indentation contains a tab."""
_RANGE = re.compile(r"(?<![^\s,\[])([\w.@+-]+(?:\[[0-9, -]{1,400}\][\w.@+-]*)+)(?=\s*(?:[,\]#]|$))", re.ASCII)
"""A name with a range in a list in brackets."""
QUOTED_LINES = 10
"""Maximum number of lines of a file on which such names are put in quotes: each costs a reading of the file."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: ClassVar = {None: list(_CORE.items())}


class Document:
    """A file's value, the number of values in it, and the line on which each part begins."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The file's name, as errors show it."""
        self.value: Any = None
        self.count = 0
        self._lines: dict[FieldPath, int] = {}

    def where(self, path: Sequence[str | int], within: FieldPath = ()) -> str:
        """File, line, and the path in the part ``within``, as far as it may be shown: ``ml.yaml:4: slurm.memory``."""
        shown = shown_path(path)
        position = f"{self.name}:{self.line((*within, *path))}"
        return f"{position}: {shown}" if shown else position

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the part at ``path``, or of the nearest enclosing part."""
        steps = tuple(step if isinstance(step, int) else str(step) for step in path)
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps, 1)

    def read(self, node: Any, path: FieldPath = ()) -> Any:
        """The value of a node; its parts are counted, and their lines kept. Raises ConfigError."""
        line = node.start_mark.line + 1
        self._lines.setdefault(path, line)
        self.count += 1
        if self.count > NODE_LIMIT:
            raise self.fault(f"the file contains more than {NODE_LIMIT} values", line)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        if len(path) >= DEPTH_LIMIT:  # a part may contain itself
            raise self.fault(_TOO_DEEP, line)
        if node.tag not in (f"{_TAG}seq", f"{_TAG}map"):
            raise self.fault("unknown tag", line)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, position)) for position, item in enumerate(node.value)]
        table: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fault("a key must be text", line)
            key = self._scalar(key_node, line)
            if key in table:
                raise self.fault("duplicate key", line)
            self.count += 1
            self._lines[(*path, str(key))] = line
            table[key] = self.read(value_node, (*path, str(key)))
        return table

    def _scalar(self, node: Any, line: int) -> Any:
        text: str = node.value
        if node.tag == f"{_TAG}str":
            return text
        if node.tag not in _CORE:
            raise self.fault("unknown tag", line)
        if _CORE[node.tag].match(text) is None:
            raise self.fault(f"a value does not match its tag !!{node.tag.removeprefix(_TAG)}", line)
        if node.tag == f"{_TAG}int":
            return int(text)
        if node.tag == f"{_TAG}float":
            number = float(text)
            if not math.isfinite(number):
                raise self.fault("a number is too large", line)
            return number
        return text.lower() == "true" if node.tag == f"{_TAG}bool" else None

    def fault(self, sentence: str, line: int | None) -> ConfigError:
        """What is wrong with the text, in a sentence that does not quote it."""
        return ConfigError(sentence, where=self.name if line is None else f"{self.name}:{line}")


def read_document(text: str, name: str = "text") -> Document:
    """The YAML document in the file ``name``; raises ConfigError with file and line."""
    document = Document(name)
    directive = _DIRECTIVE.search(text)
    if directive is not None:  # libyaml compares each with all before it, and nothing can stop it
        line = text.count("\n", 0, directive.start()) + 1
        raise document.fault("YAML directives (lines that begin with %) are not supported", line)
    try:
        text = _with_quoted_ranges(document, text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        message = ", ".join(part for part in (error.context, error.problem) if part)
        message = re.sub(r"\W*['\"].*", "", message, flags=re.DOTALL)  # the Python implementation quotes the text
        at = next((mark.line for mark in (error.problem_mark, error.context_mark) if mark is not None), None)
        if at is not None and _TAB.match("".join(text.split("\n")[at : at + 1])):
            message = "the line is indented with a tab: use spaces"
        if "nesting depth" in message:  # of libyaml from 0.2.6 on, which reads on to 1,000 before its first event
            message = _TOO_DEEP
        raise document.fault(message or "this is not YAML", None if at is None else at + 1) from None
    except yaml.YAMLError:
        raise document.fault("the file contains a character that YAML does not allow", None) from None
    if node is not None:
        document.value = document.read(node)
    return document


def _with_quoted_ranges(document: Document, text: str) -> str:
    """The text with quotes around names such as ``train[1-12]`` in a list in brackets, where YAML has no such names.

    Everybody writes ``[train[1-12], ada]``. Raises ConfigError and YAMLError.
    """
    for _ in range(QUOTED_LINES):
        try:
            _check_structure(document, text)
        except yaml.MarkedYAMLError as error:
            mark, lines = error.problem_mark, text.split("\n")
            line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
            ranges = list(_RANGE.finditer(line))
            if mark is None or not any(match.start() < mark.column < match.end() for match in ranges):
                raise
            lines[mark.line] = _RANGE.sub(r'"\1"', line)
            text = "\n".join(lines)
        else:
            return text
    raise document.fault("put names with a range, such as train[1-12], in quotes", None)


def _check_structure(document: Document, text: str) -> None:
    """Raise ConfigError for a text that cannot be made into nodes: libyaml makes them by recursion."""
    depth = documents = 0
    event: Any
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if depth > DEPTH_LIMIT:
            raise document.fault(_TOO_DEEP, event.start_mark.line + 1)
        if documents > 1:
            message = "a file contains one document: a second '---' is not allowed"
            raise document.fault(message, event.start_mark.line + 1)


# Safe reading in a folder that others write to: regular files only, no links followed, bounded size.

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


# A file of such a folder: read again when it changes, and kept as it last was good.

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


# The path of a field as errors about a file show it: as far as the schema knows its names.
#
# Other keys come from the file and may be anything, a secret among them, so the path ends before the first of them.

_TABLES = ("profile_options", "choices", "variables", "traits", "dates", "options")
"""Fields whose keys the author chooses."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def shown_path(path: Sequence[str | int]) -> str:
    """``slurm.extra[0]``, or the beginning of the path that a schema knows."""
    profile_class()  # whose fields are among those of the schema
    shown: list[str | int] = []
    for before, step in zip(("", *path), path, strict=False):
        own = before in _TABLES and _NAME.fullmatch(str(step)) is not None
        if not (own or isinstance(step, int) or step in _schema_fields(Frozen)):
            break
        shown.append(step)
    return dotted(shown)


@cache
def _schema_fields(model: type[Frozen]) -> frozenset[str]:
    """The names that files use for the fields of this model and of all that are derived from it."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    return frozenset(names).union(*map(_schema_fields, model.__subclasses__()))


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
        with opened(path.parent) as folder:
            state = reread(folder, path.name, None, partial(_file_content, name=path.name, rights=rights))
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=shown_name(path.name)) from None
    if state.fault is not None:
        raise state.fault
    return state.content.profiles if state.content is not None else ()


def _file_content(files: Files, name: str, rights: Rights) -> FileContent:
    """Raises ConfigError."""
    shown = shown_name(name)
    if name.encode("utf-8", "replace") != os.fsencode(name):  # pages and the hub's database take UTF-8 alone
        raise ConfigError("the name of the file is not UTF-8", where=shown)
    document = read_document(files.text(name, limit=SIZE_LIMIT, where=shown), shown)
    profiles = _profiles(document, rights)
    for profile in profiles:
        _try(profile)
    return FileContent(profiles, document.count)


def _try(profile: Profile) -> None:
    """Evaluate the profile once as a form would; lets every error through except a refusal."""
    now = datetime.now().astimezone()
    permitted(profile, "", (), now)
    options_schema(profile)
    open_one = profile.model_copy(update={"allow": Allow()})
    with suppress(RequestError):  # such as a table of reservations without today's
        resolve((open_one,), {"profile": profile.slug}, username="", groups=(), server_name="", now=now)


def _profiles(document: Document, rights: Rights) -> tuple[Profile, ...]:
    value = document.value
    base: FieldPath = ()
    if isinstance(value, dict) and "profiles" in value:
        if len(value) > 1 or not isinstance(value["profiles"], list):
            message = "must contain one profile, a list of profiles, or only 'profiles:' with a list"
            raise ConfigError(message, where=document.where((), ("profiles",)))
        value, base = value["profiles"], ("profiles",)
    items: dict[FieldPath, Any] = {base: value}
    if isinstance(value, list):
        items = {(*base, position): item for position, item in enumerate(value)}
    if len(items) > PROFILES_LIMIT:
        raise ConfigError(f"the file contains more than {PROFILES_LIMIT} profiles", where=document.name)
    profiles: dict[str, Profile] = {}
    for path, item in items.items():
        where = partial(document.where, within=path)
        _require_traits(item.get("traits") if isinstance(item, dict) else None, where)
        profile = parse_profile(item, where, quoting=False)
        require(profile, rights, where)
        if profile.slug in profiles:
            raise ConfigError(f"{profile.slug!r} is already the slug of an earlier profile", where=where(("slug",)))
        profiles[profile.slug] = profile
    return tuple(profiles.values())


# --- the folder ---------------------------------------------------------------------------------------


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
        self._files: dict[str, FileState[FileContent]] = {}
        """In the order in which they were first there, then in that of their last change."""
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
        """The current profiles. Costs a scan and two stats per file if nothing has changed; never raises."""
        self.missing = False
        try:
            with opened(self.path) as folder:
                if self._scan(folder):
                    self._join()
        except Exception as error:  # noqa: BLE001 - the profiles read last go on
            self.missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            self._of_the_folder = (folder_fault(self.path, error),)
        return self._profiles

    def _scan(self, folder: int) -> bool:
        """Read the files that have changed; returns whether there were any."""
        self._of_the_folder = ()
        statuses: dict[str, os.stat_result] = {}
        for name in self._names(folder):
            try:
                statuses[name] = snapshot_of(folder, name)
            except FileNotFoundError:  # removed just now
                continue
        before = self._files
        names = [name for name in before if name in statuses]
        new = sorted((status.st_ctime_ns, name) for name, status in statuses.items() if name not in before)
        names += [name for _, name in new[: max(0, FILES_LIMIT - len(names))]]
        self._files = {
            name: reread(folder, name, before.get(name), partial(_file_content, name=name, rights=self.rights))
            for name in names
        }
        return self._files.keys() != before.keys() or any(self._files[name] is not before[name] for name in names)

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
            message = (
                f"the folder contains more than {FILES_LIMIT} profile files, or {ENTRIES_LIMIT} files of any kind; "
                f"the newest ones are ignored"
            )
            self._of_the_folder = (ConfigError(message, where=str(self.path)),)
        return names | self._files.keys()

    def _join(self) -> None:
        """Combine the profiles of all files; files that arrived first take precedence."""
        slugs = {
            name: {profile.slug for profile in file.content.profiles}
            for name, file in self._files.items()
            if file.content is not None
        }
        names = self._files.keys()  # a file that has been faulty from the first scan on keeps its slugs, too
        owners = {slug: name for slug, name in self.owners.items() if name in names and slug in slugs.get(name, {slug})}
        faults = {(name, ""): file.fault for name, file in self._files.items() if file.fault is not None}
        by_slug: dict[str, list[Profile]] = {}
        profiles = values = 0
        for name, file in self._files.items():
            if file.content is None:
                continue
            profiles += len(file.content.profiles)
            values += file.content.values
            if profiles > PROFILES_LIMIT or values > VALUES_LIMIT:
                profiles -= len(file.content.profiles)
                values -= file.content.values
                faults[name, "*"] = ConfigError(
                    f"with this file the folder would contain more than {PROFILES_LIMIT} profiles, or {VALUES_LIMIT} "
                    "YAML values; it is ignored",
                    where=shown_name(name),
                )
                continue
            for profile in file.content.profiles:
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
