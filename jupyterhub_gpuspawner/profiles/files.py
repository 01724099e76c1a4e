"""YAML files with profiles, which people other than the admin may write: one file, and a folder of them.

Their content is treated as data: their size, depth and number are bounded, as are the fields they may use
(:class:`.Rights`); a fault affects one file only, names file and line, and quotes no value, since a file may contain
secrets. Reading blocks, so the hub does it in a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.document import Document, FieldPath, read_document
from jupyterhub_gpuspawner.profiles.folder import (
    Files,
    FileState,
    folder_fault,
    opened,
    reread,
    shown_name,
    snapshot_of,
)
from jupyterhub_gpuspawner.profiles.option import UnlistedChoice
from jupyterhub_gpuspawner.profiles.parsing import as_fields, parse_profile
from jupyterhub_gpuspawner.profiles.profile import Allow, Profile, SlugTaken
from jupyterhub_gpuspawner.profiles.resolve import permitted, resolve
from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.profiles.schema import Frozen, Guarded
from jupyterhub_gpuspawner.profiles.sections import refuse_left_out

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


def _parsed(item: object, rights: Rights, where: Where) -> Profile:
    """A profile of a file; raises ConfigError for the first field that is wrong, or that ``rights`` do not allow."""
    fields = as_fields(item, where, quoting=False)
    traits = fields.get("traits") if isinstance(fields, dict) else None
    for name in sorted(map(str, traits)) if isinstance(traits, Mapping) else ():
        if name not in TRAITS:
            hint = f"Files may set {', '.join(TRAITS)}; a profile in jupyterhub_config.py may set any."
            raise _not_allowed(where(("traits", name)), hint)
    profile = parse_profile(fields, where, quoting=False)
    refuse_left_out(profile, rights.extensions, where)
    if profile.spawner_class is not None and profile.spawner_class not in rights.classes:
        raise _not_allowed(where(("spawner_class",)), f"The class in {CLASSES_SETTING} would allow it.")
    for path, word in allowances_of(profile):
        if word not in rights.allowed:
            raise _not_allowed(where(path), f'"{word}" in {SETTING} would allow it.')
    return profile


def allowances_of(profile: Profile) -> Iterator[tuple[FieldPath, str]]:
    """The words of :data:`ALLOWANCES` that a file with the profile needs, each with the field that needs it."""
    yield from ((("traits", name), "traits") for name in sorted(profile.traits))
    yield from _guarded_fields(profile)


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


def file_content(files: Files, name: str, rights: Rights) -> FileContent:
    """The profiles of one file: a profile, a list of them, or ``profiles:`` with a list.

    Raises ConfigError with file, line and field, and none of the file's values: ``course.yaml:12: slurm.memory: …``.
    ``rights`` lists what the admin allows in such files beyond plain requests.
    """
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
        profile = _parsed(item, rights, where)
        if profile.slug in profiles:
            raise ConfigError(f"{profile.slug!r} is already the slug of an earlier profile", where=where(("slug",)))
        profiles[profile.slug] = profile
    return tuple(profiles.values())


@dataclass(frozen=True)
class FolderContent:
    """What was found when the folder was read."""

    profiles: tuple[Profile, ...] = ()
    errors: tuple[ConfigError, ...] = ()
    """Its faults, then those of files; a faulty file keeps its last good version."""
    missing: bool = False
    """There is no such folder."""
    crowded: bool = False
    """It contains so many files that a scan is slow."""


class ProfileFolder:
    """The profiles of a folder's ``*.yaml`` files, ordered by file name; hidden files are ignored.

    A slug belongs to the file that used it first; of files present at the first scan, to the one that :attr:`owners`
    names, else to the one with the oldest st_ctime.
    """

    def __init__(self, path: str | Path, rights: Rights = NOTHING) -> None:
        self.path = Path(path)
        self.rights = rights
        self._files: dict[str, FileState[FileContent]] = {}
        """In the order in which they were first there, then in that of their last change."""
        self.owners: dict[str, str] = {}
        """The file of each slug; may be set before the first scan, to what an earlier process found."""
        self._profiles: tuple[Profile, ...] = ()
        self._faults: tuple[ConfigError, ...] = ()

    def read(self) -> FolderContent:
        """The current profiles. Costs a scan and two stats per file if nothing has changed; never raises."""
        fault, missing, crowded = None, False, False
        try:
            with opened(self.path) as folder:
                names, crowded = self._names(folder)
                if self._scan(folder, names):
                    self._join()
            if crowded:
                message = (
                    f"the folder contains more than {FILES_LIMIT} profile files, or {ENTRIES_LIMIT} files of any kind; "
                    f"the newest ones are ignored"
                )
                fault = ConfigError(message, where=str(self.path))
        except Exception as error:  # noqa: BLE001 - the profiles read last go on
            fault, missing = folder_fault(self.path, error), isinstance(error, (FileNotFoundError, NotADirectoryError))
        faults = (*filter(None, [fault]), *self._faults)
        return FolderContent(self._profiles, faults, missing, crowded)

    def _scan(self, folder: int, among: Iterable[str]) -> bool:
        """Read the files that have changed; returns whether there were any."""
        statuses: dict[str, os.stat_result] = {}
        for name in among:
            try:
                statuses[name] = snapshot_of(folder, name)
            except FileNotFoundError:  # removed just now
                continue
        before = self._files
        names = [name for name in before if name in statuses]
        new = sorted((status.st_ctime_ns, name) for name, status in statuses.items() if name not in before)
        names += [name for _, name in new[: max(0, FILES_LIMIT - len(names))]]
        self._files = {
            name: reread(folder, name, before.get(name), partial(file_content, name=name, rights=self.rights))
            for name in names
        }
        return self._files.keys() != before.keys() or any(self._files[name] is not before[name] for name in names)

    def _names(self, folder: int) -> tuple[Iterable[str], bool]:
        """Profile files, including those already known, so that an incomplete scan removes none; and if it is one."""
        names: set[str] = set()
        number = 0
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries, 1):
                if number > ENTRIES_LIMIT:
                    break
                if entry.name.endswith(ENDINGS) and not entry.name.startswith("."):
                    names.add(entry.name)
        return names | self._files.keys(), number > ENTRIES_LIMIT or len(names) > FILES_LIMIT

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
        self._faults = tuple(faults[key] for key in sorted(faults))
