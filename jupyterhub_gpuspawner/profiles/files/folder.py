"""Profiles in YAML files: a folder of them, read anew when a file changes; faults by file and line.

Whoever may write there need not be the admin, so nothing in the folder is more than data: regular files alone are read,
their size, depth and number are bounded, what they may say is (:mod:`.profile_rights`), whatever goes wrong with
one is that file's fault alone, and no fault quotes a value. Reading blocks, so a hub does it in a thread.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.environment import Container, Environment
from jupyterhub_gpuspawner.profiles.files.regular_file import (
    FOLDER_FLAGS,
    Signature,
    UnfitFile,
    look_at,
    read_regular,
    signature,
)
from jupyterhub_gpuspawner.profiles.files.rights import NOTHING, Rights, require, require_traits
from jupyterhub_gpuspawner.profiles.files.yaml_text import Document, YamlFault, read_document
from jupyterhub_gpuspawner.profiles.option import ListedChoice, ProfileOption, Range, UnlistedChoice
from jupyterhub_gpuspawner.profiles.options_schema import options_schema
from jupyterhub_gpuspawner.profiles.placement_rules import PlacementRules
from jupyterhub_gpuspawner.profiles.profile import Allow, Profile, parse_profile
from jupyterhub_gpuspawner.profiles.reservation import ReservationRule
from jupyterhub_gpuspawner.profiles.resolve import permitted, resolve
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.profiles.schema import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SIZE_LIMIT = 1024 * 1024
"""Bytes of a profile file."""
PROFILES_LIMIT = 500
"""Profiles of one folder: each form looks at all of them."""
FILES_LIMIT = 200
"""Files of profiles of one folder."""
VALUES_LIMIT = 50_000
"""Values in all files of a folder."""
ENTRIES_LIMIT = 200_000
"""Entries of a folder that one look goes through."""
ENDINGS = (".yaml", ".yml")

_MODELS = (
    *(Profile, Resources, ReservationRule, Environment, Container, PlacementRules, Allow),
    *(ProfileOption, ListedChoice, UnlistedChoice, Range),
)
_FIELDS = frozenset(info.alias or name for model in _MODELS for name, info in model.model_fields.items())
_TABLES = ("profile_options", "choices", "variables", "traits", "dates")
"""Fields whose keys are names of the author's own."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class FileContent:
    """What one file holds."""

    profiles: tuple[Profile, ...]
    values: int = 0
    """Values of its YAML."""


def read_profiles(path: Path, rights: Rights = NOTHING) -> tuple[Profile, ...]:
    """The profiles of one file: a profile, a list of them, or ``profiles:`` with a list.

    Raises ConfigError with file, line and field, and none of the file's values: ``course.yaml:12: slurm.memory: …``.
    ``rights`` are what the admin lets such files say beside plain requests.
    """
    try:
        folder = os.open(path.parent, FOLDER_FLAGS)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=shown_name(path.name)) from None
    try:
        return _content(folder, path.name, rights).profiles
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=shown_name(path.name)) from None
    finally:
        os.close(folder)


def shown_name(name: str) -> str:
    """A file's name as it may stand in a sentence: who gives a file its name may be anybody."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= 80 else text[:77] + "..."


def _content(folder: int, name: str, rights: Rights) -> FileContent:
    """Raises ConfigError, and OSError where the file cannot be read now."""
    shown = shown_name(name)
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
        # of any other the name alone: its text may quote the file
        raise ConfigError(f"the file cannot be understood ({type(error).__name__})", where=shown) from None
    return FileContent(profiles, document.count)


def _try(profile: Profile) -> None:
    """Do once, where it harms nobody, what each form does with the profile; lets any error through but a refusal."""
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
                "must hold one profile, a list of profiles, or 'profiles:' with a list and nothing else",
                where=f"{name}:{document.line(('profiles',))}",
            )
        value, base = value["profiles"], ("profiles",)
    items = (
        [((*base, position), item) for position, item in enumerate(value)]
        if isinstance(value, list)
        else [(base, value)]
    )
    if len(items) > PROFILES_LIMIT:
        raise ConfigError(f"the file holds more than {PROFILES_LIMIT} profiles", where=name)
    found: dict[str, Profile] = {}
    for path, item in items:

        def where(inner: Sequence[str | int], path: tuple[str | int, ...] = path) -> str:
            place = f"{name}:{document.line((*path, *map(_step, inner)))}"
            shown = dotted(_shown(inner))
            return f"{place}: {shown}" if shown else place

        require_traits(item, where)
        profile = parse_profile(item, where, quoting=False)
        require(profile, rights, where)
        if profile.slug in found:
            raise ConfigError(f"{profile.slug!r} is the slug of an earlier profile, too", where=where(("slug",)))
        found[profile.slug] = profile
    return tuple(found.values())


def _step(step: str | int) -> str | int:
    return step if isinstance(step, int) else str(step)


def _shown(path: Sequence[str | int]) -> list[str | int]:
    """As much of a path as the schema knows: what else stands for a key is the file's, and may be anything."""
    around = ("", *path)

    def known(step: tuple[str | int, str | int]) -> bool:
        before, name = step
        return isinstance(name, int) or name in _FIELDS or (before in _TABLES and _NAME.fullmatch(name) is not None)

    return [name for _, name in takewhile(known, zip(around, path, strict=False))]


# --- the folder ---------------------------------------------------------------------------------------


@dataclass
class _File:
    """One file of the folder, as far as it is known."""

    since: tuple[int, int, str]
    """When it came: the look that first saw it, then the time of its last change, then its name."""
    signature: Signature | None = None
    """None: it is to be read at the next look, come what may."""
    good: FileContent | None = None
    fault: ConfigError | None = None


class ProfileFolder:
    """All profiles of a folder's ``*.yaml`` files, by file name; hidden files are left out.

    A slug belongs to the file that had it first; of files that were all there at the first look, to the one whose
    status (st_ctime) changed longest ago.
    """

    def __init__(self, path: str | Path, rights: Rights = NOTHING) -> None:
        self.path = Path(path)
        self.rights = rights
        self.crowded = False
        """The folder holds so many files that a look takes its time."""
        self.missing = False
        """At the last look there was no such folder."""
        self._looks = 0
        self._files: dict[str, _File] = {}
        self._owners: dict[str, str] = {}
        self._profiles: tuple[Profile, ...] = ()
        self._of_the_folder: tuple[ConfigError, ...] = ()
        self._in_files: tuple[ConfigError, ...] = ()

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """What was wrong at the last look; a file with a fault goes on with its last good version."""
        return (*self._of_the_folder, *self._in_files)

    def profiles(self) -> tuple[Profile, ...]:
        """The profiles as they are now. Costs a scan and one stat a file when nothing has changed; never raises."""
        self._looks += 1
        self.missing = False
        try:
            folder = os.open(self.path, FOLDER_FLAGS)
            try:
                if self._look(folder):
                    self._join()
            finally:
                os.close(folder)
        except OSError as error:
            self.missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            self._fault(f"the folder cannot be read: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - such as MemoryError: the last profiles are still good
            self._fault(f"the folder cannot be read ({type(error).__name__})")
        return self._profiles

    def _fault(self, sentence: str) -> None:
        self._of_the_folder = (ConfigError(sentence, where=str(self.path)),)

    def _look(self, folder: int) -> bool:
        """Read what has changed; whether anything has."""
        self._of_the_folder = ()
        statuses: dict[str, os.stat_result] = {}
        for name in self._names(folder):
            try:
                statuses[name] = look_at(folder, name)
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
        """Files of profiles, those known already among them: a look that does not come to the end removes none."""
        names: set[str] = set()
        entries_seen = 0
        with os.scandir(folder) as entries:
            for entry in entries:
                entries_seen += 1
                if entries_seen > ENTRIES_LIMIT:
                    break
                if entry.name.endswith(ENDINGS) and not entry.name.startswith("."):
                    names.add(entry.name)
        self.crowded = entries_seen > ENTRIES_LIMIT or len(names) > FILES_LIMIT
        if self.crowded:
            self._fault(
                f"the folder holds more than {FILES_LIMIT} files of profiles, or {ENTRIES_LIMIT} of any kind; "
                f"those that came last are left out"
            )
        return names | self._files.keys()

    def _read(self, folder: int, name: str, file: _File, seen: Signature) -> None:
        try:
            file.good, file.fault, file.signature = _content(folder, name, self.rights), None, seen
        except ConfigError as error:
            file.fault, file.signature = error, seen
        except OSError as error:  # may end without any change of the file
            file.fault = ConfigError(f"the file cannot be read: {error.strerror}", where=shown_name(name))
            file.signature = None

    def _join(self) -> None:
        """What is offered of all files: those that came first have the first say."""
        slugs = {
            name: {profile.slug for profile in file.good.profiles}
            for name, file in self._files.items()
            if file.good is not None
        }
        owners = {slug: name for slug, name in self._owners.items() if slug in slugs.get(name, ())}
        faults = {(name, ""): file.fault for name, file in self._files.items() if file.fault is not None}
        found: dict[str, list[Profile]] = {}
        profiles = values = 0
        for name, file in sorted(self._files.items(), key=lambda item: item[1].since):
            if file.good is None:
                continue
            profiles += len(file.good.profiles)
            values += file.good.values
            if profiles > PROFILES_LIMIT or values > VALUES_LIMIT:
                profiles -= len(file.good.profiles)
                values -= file.good.values
                faults[name, "*"] = ConfigError(
                    f"with this file the folder would hold more than {PROFILES_LIMIT} profiles, or {VALUES_LIMIT} "
                    "values in its YAML; it is left out",
                    where=shown_name(name),
                )
                continue
            for profile in file.good.profiles:
                owner = owners.setdefault(profile.slug, name)
                if owner == name:
                    found.setdefault(name, []).append(profile)
                else:
                    faults[name, profile.slug] = ConfigError(
                        f"{profile.slug!r} is the slug of a profile in {shown_name(owner)}, too; this one is left out",
                        where=shown_name(name),
                    )
        self._owners = owners
        self._profiles = tuple(profile for name in sorted(found) for profile in found[name])
        self._in_files = tuple(faults[key] for key in sorted(faults))
