"""The files of a migration: the configuration, the profiles as YAML, and the list of differences."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.difference import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.migrate.difference import Difference
    from jupyterhub_gpuspawner.migrate.migration import Migration

CONFIGURATION = "jupyterhub_config.py"
PROFILES = "profiles/profiles.yaml"
DIFFERENCES = "differences.md"
TITLES = {
    Kind.DECIDE: "To decide",
    Kind.CHANGED: "Changed",
    Kind.DROPPED: "No longer needed",
    Kind.MOVED: "The same under another name",
}
"""Headings of the list, in its order."""


def files(migration: Migration) -> dict[str, str]:
    """The text of each file, by its path in the output folder."""
    found = {CONFIGURATION: configuration(migration), DIFFERENCES: differences_page(migration.differences)}
    if migration.in_files:
        found[PROFILES] = profiles_yaml(migration.in_files)
    return found


def configuration(migration: Migration) -> str:
    """The configuration: what stays of the old one, and the settings of this package."""
    lines = ["# --- Servers on Slurm, by jupyterhub-gpuspawner " + "-" * 40]
    if migration.in_files and "import os" not in migration.edited.split("\n"):
        lines.append("import os")
    lines += ["", 'c.JupyterHub.spawner_class = "gpu-profiles"']
    if migration.in_files:
        lines += [
            "# The profiles, beside this file. They are read again when they change.",
            "c.GPUProfilesSpawner.profiles_dir = os.path.join(os.path.dirname(os.path.abspath(__file__)), "
            f"{_literal(PROFILES.partition('/')[0])})",
        ]
    if migration.allows:
        lines.append(f"c.GPUProfilesSpawner.profiles_dir_allows = {_literal(list(migration.allows))}")
    if migration.classes:
        lines.append(f"c.GPUProfilesSpawner.profiles_dir_classes = {_literal(list(migration.classes))}")
    lines += [f"c.GPUSlurmSpawner.{name} = {_literal(value)}" for name, value in sorted(migration.settings.items())]
    if migration.in_configuration:
        lines += ["# Profiles with settings that a file may not have", "c.GPUProfilesSpawner.profiles = ["]
        lines += [f"    {_literal(document)}," for document in migration.in_configuration]
        lines.append("]")
    return "\n\n".join(filter(None, [migration.edited.rstrip("\n"), "\n".join(lines)])) + "\n"


def _literal(value: Any) -> str:
    """Python text of a value, with double quotes and readable line breaks."""
    if isinstance(value, str):
        if "\n" in value and value.isascii() and '"""' not in value and "\\" not in value and not value.endswith('"'):
            return f'"""{value}"""'
        return json.dumps(value) if value.isascii() and value.isprintable() else repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(each)}" for key, each in value.items()) + "}"
    if type(value) is list:
        return "[" + ", ".join(map(_literal, value)) + "]"
    return repr(value)


class _Dumper(yaml.SafeDumper):
    """Indents the items of a list."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)


def profiles_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """The profiles as one file."""
    text = [
        yaml.dump(
            [dict(each)], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
        )
        for each in documents
    ]
    return "# Written by gpuspawner migrate. docs/reference/profile.md lists all fields.\n\n" + "\n".join(text)


def differences_page(differences: Sequence[Difference]) -> str:
    """The list as Markdown."""
    return "# Differences\n" + differences_tables(differences, "##")


def differences_tables(differences: Sequence[Difference], heading: str) -> str:
    """A table for each kind, below a heading."""
    parts = []
    for kind, title in TITLES.items():
        rows = [each for each in differences if each.kind is kind]
        if not rows:
            continue
        columns = ("what", "was", "is", "why") + (("what to do",) if any(each.todo for each in rows) else ())
        parts.append(f"\n{heading} {title}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
        for each in rows:
            was, now = _code(each.was), each.now if kind is Kind.MOVED else _code(each.now)
            cells = [_code(each.where) + _of_profiles(each), was, _plain(now) if kind is Kind.MOVED else now]
            cells += [_plain(each.why), _plain(each.todo)][: len(columns) - 3]
            parts.append(f"| {' | '.join(cells)} |\n")
    return "".join(parts)


def _of_profiles(difference: Difference) -> str:
    return f" ({', '.join(difference.profiles)})" if difference.profiles else ""


def _code(text: str) -> str:
    if not text or text.startswith("("):
        return _plain(text)
    fence = "``" if "`" in text else "`"
    quoted = text.replace("|", "\\|")
    return f"{fence}{quoted}{fence}"


def _plain(text: str) -> str:
    for character in "|*_<>[]":
        text = text.replace(character, f"\\{character}")
    return text


def write(migration: Migration, folder: Path, *, source: Path, force: bool) -> list[Path]:
    """Write the files; raises ConfigError if one exists and ``force`` is not given, or if it cannot be written.

    The configuration gets the permissions of the old one, which may contain secrets.
    """
    texts = {folder / name: text for name, text in files(migration).items()}
    existing = [path for path in texts if path.exists()]
    if any(path.samefile(source) for path in existing):
        raise ConfigError(f"{source} is never written over.", hint="Name another folder with --output.")
    if existing and not force:
        names = ", ".join(map(str, existing))
        raise ConfigError(f"{names}: there is such a file already.", hint="--force writes over it.")
    contents = {path: text.encode("utf-8") for path, text in texts.items()}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = stat.S_IMODE(source.stat().st_mode) if path.name == CONFIGURATION else 0o644
            _replace(path, content, mode)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}.") from error
    return list(texts)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Write a file at once, so that the one of before stays if that fails."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
