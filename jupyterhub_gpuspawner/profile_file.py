"""Profiles in YAML files: a folder of them, read anew when a file changes; faults by file and line.

The YAML is 1.2's core schema: ``8:00:00`` and ``no`` are text, where YAML 1.1 makes them 28800 and false.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profile import Profile, parse_profile
from jupyterhub_gpuspawner.schema import dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE_LIMIT = 1024 * 1024
"""Bytes of a profile file."""
NODE_LIMIT = 50_000
"""Values in a file, each alias counted as often as it is used."""
ENDINGS = (".yaml", ".yml")

_CORE = (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?[0-9]{1,18}", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
)

if TYPE_CHECKING:
    from yaml import SafeLoader as _AnyLoader
else:
    _AnyLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_AnyLoader):
    """PyYAML's loader with YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own way; not added to its base class's


for _name, _pattern, _first in _CORE:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first))


class _Document:
    """A file's value, and the line on which each part of it begins."""

    def __init__(self, text: str) -> None:
        self.lines: dict[tuple[str | int, ...], int] = {}
        self._left = NODE_LIMIT
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        self.value = self._read(node, ()) if node is not None else None

    def _read(self, node: yaml.Node, path: tuple[str | int, ...]) -> Any:
        self._left -= 1
        if self._left < 0 or len(path) > 50:
            raise yaml.MarkedYAMLError(problem="the file holds too many values", problem_mark=node.start_mark)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, (*path, position)) for position, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return _scalar(node)
        table: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=key_node.start_mark)
            key = _scalar(key_node)
            if key in table:
                raise yaml.MarkedYAMLError(problem=f"{key!r} stands here twice", problem_mark=key_node.start_mark)
            self.lines[(*path, str(key))] = key_node.start_mark.line + 1
            table[key] = self._read(value_node, (*path, str(key)))
        return table

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the part at ``path``, or of the nearest part around it."""
        steps = tuple(path)
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return self.lines.get(steps, 1)


def _scalar(node: Any) -> Any:
    name = node.tag.removeprefix("tag:yaml.org,2002:")
    if name == "str":
        return node.value
    if name == "int":
        return int(node.value)
    if name == "float":
        return float(node.value)
    if name == "bool":
        return node.value.lower() == "true"
    if name == "null":
        return None
    raise yaml.MarkedYAMLError(problem=f"the tag {node.tag} is not known here", problem_mark=node.start_mark)


def read_profiles(path: Path) -> tuple[Profile, ...]:
    """The profiles of one file: a profile, a list of them, or ``profiles:`` with a list.

    Raises ConfigError with file, line and field: ``course.yaml:12: slurm.memory: …``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
        if len(content) > SIZE_LIMIT:
            raise ConfigError(f"the file is larger than {SIZE_LIMIT} bytes", where=path.name)
        document = _Document(content.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=path.name) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the file is not UTF-8: {error.reason}", where=path.name) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path.name}:{mark.line + 1}" if mark is not None else path.name
        says = ", ".join(part for part in (getattr(error, "context", ""), getattr(error, "problem", "")) if part)
        raise ConfigError(says or str(error), where=place) from None
    return _profiles(path.name, document)


def _profiles(name: str, document: _Document) -> tuple[Profile, ...]:
    value = document.value
    base: tuple[str | int, ...] = ()
    if isinstance(value, dict) and "profiles" in value:
        if len(value) > 1 or not isinstance(value["profiles"], list):
            raise ConfigError(
                "must hold one profile, a list of profiles, or 'profiles:' with a list and nothing else",
                where=f"{name}:{document.line(('profiles',))}",
            )
        value, base = value["profiles"], ("profiles",)
    items = (
        [((*base, position), item) for position, item in enumerate(value)]
        if isinstance(value, list)
        else [(base, value)]
    )
    found: dict[str, Profile] = {}
    for path, item in items:

        def where(inner: Sequence[str | int], path: tuple[str | int, ...] = path) -> str:
            place = f"{name}:{document.line((*path, *inner))}"
            return f"{place}: {dotted(inner)}" if inner else place

        profile = parse_profile(item, where)
        if profile.slug in found:
            raise ConfigError(f"{profile.slug!r} is the slug of an earlier profile, too", where=where(("slug",)))
        found[profile.slug] = profile
    return tuple(found.values())


_Signature = tuple[int, int, int]


class ProfileFolder:
    """All profiles of a folder's ``*.yaml`` files, by file name; hidden files are left out."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._signatures: dict[str, _Signature] | None = None
        self._good: dict[str, tuple[Profile, ...]] = {}
        self._faults: dict[str, ConfigError] = {}
        self._profiles: tuple[Profile, ...] = ()
        self._unreadable: tuple[ConfigError, ...] = ()
        self._in_files: tuple[ConfigError, ...] = ()

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """What was wrong at the last look; a file with a fault goes on with its last good version."""
        return self._unreadable or self._in_files

    def profiles(self) -> tuple[Profile, ...]:
        """The profiles as they are now. Costs one stat a file when nothing has changed; never raises."""
        try:
            signatures = self._look()
        except OSError as error:
            self._unreadable = (ConfigError(f"the folder cannot be read: {error.strerror}", where=str(self.path)),)
            return self._profiles
        self._unreadable = ()
        if signatures != self._signatures:
            self._read(signatures)
        return self._profiles

    def _look(self) -> dict[str, _Signature]:
        found: dict[str, _Signature] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(ENDINGS) and not entry.name.startswith("."):
                    try:
                        status = entry.stat()
                    except FileNotFoundError:  # removed just now, or a dangling link
                        continue
                    found[entry.name] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return found

    def _read(self, signatures: dict[str, _Signature]) -> None:
        before = self._signatures or {}
        for name in before.keys() - signatures.keys():
            self._good.pop(name, None)
            self._faults.pop(name, None)
        for name, signature in signatures.items():
            if before.get(name) != signature:
                try:
                    self._good[name] = read_profiles(self.path / name)
                    self._faults.pop(name, None)
                except ConfigError as error:
                    self._faults[name] = error
        self._signatures = signatures
        self._join()

    def _join(self) -> None:
        owners: dict[str, str] = {}
        found: list[Profile] = []
        faults = dict(self._faults)
        for name in sorted(self._good):
            for profile in self._good[name]:
                owner = owners.setdefault(profile.slug, name)
                if owner == name:
                    found.append(profile)
                else:
                    faults[f"{name} {profile.slug}"] = ConfigError(
                        f"{profile.slug!r} is the slug of a profile in {owner}, too; this one is left out", where=name
                    )
        self._profiles = tuple(found)
        self._in_files = tuple(faults[name] for name in sorted(faults))
