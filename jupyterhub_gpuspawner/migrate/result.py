"""The result of a migration as text: the settings, the profiles as YAML, and the list of differences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from jupyterhub_gpuspawner.migrate.draft import Difference, Kind
from jupyterhub_gpuspawner.migrate.migration import Migration

TITLES = {
    Kind.DECIDE: "To decide",
    Kind.CHANGED: "Changed",
    Kind.DROPPED: "No longer needed",
    Kind.MOVED: "The same under another name",
}
"""Headings of the list, in its order."""


def settings_text(migration: Migration) -> str:
    """The statements for jupyterhub_config.py."""
    lines = ["import os", ""] if migration.in_files else []
    if migration.old_sections:
        sections = ", ".join(f"c.{name}" for name in migration.old_sections)
        lines.append(f"# In place of all statements that set {sections},\n# and of c.JupyterHub.spawner_class:")
    lines.append('c.JupyterHub.spawner_class = "gpu-profiles"')
    if migration.in_files:
        lines += [
            "# The folder of profiles.yaml, beside this file. It is read again when it changes.",
            'c.GPUProfilesSpawner.profiles_dir = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")',
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
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    """Python text of a value, with double quotes and readable line breaks."""
    if isinstance(value, str):
        if "\n" in value and value.isascii() and '"""' not in value and "\\" not in value and not value.endswith('"'):
            return f'"""{value}"""'
        return json.dumps(value) if value.isascii() and value.isprintable() else repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
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
            [dict(document)], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
        )
        for document in documents
    ]
    return "# Written by gpuspawner migrate. docs/reference/profile.md lists all fields.\n\n" + "\n".join(text)


def differences_tables(differences: Sequence[Difference], heading: str) -> str:
    """A table for each kind, below a heading."""
    parts = []
    for kind, title in TITLES.items():
        rows = [difference for difference in differences if difference.kind is kind]
        if not rows:
            continue
        columns = ("what", "was", "is", "why") + (("what to do",) if any(row.todo for row in rows) else ())
        parts.append(f"\n{heading} {title}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
        for row in rows:
            was, now = _code(row.was), row.now if kind is Kind.MOVED else _code(row.now)
            cells = [_code(row.where) + _of_profiles(row), was, _plain(now) if kind is Kind.MOVED else now]
            cells += [_plain(row.why), _plain(row.todo)][: len(columns) - 3]
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
