"""The new hub, while it is being made and when it is done; and as text: settings, profiles as YAML, differences.

What the list says of a difference is a row of ``differences.yaml``, by its code.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cache
from inspect import isfunction
from pathlib import Path
from string import Template
from typing import Any

import yaml

from jupyterhub_gpuspawner.migrate.classes import new_name
from jupyterhub_gpuspawner.migrate.old_hub import OldHub, OldSetting
from jupyterhub_gpuspawner.migrate.old_script import OldProfile
from jupyterhub_gpuspawner.migrate.template import BatchTemplate
from jupyterhub_gpuspawner.profiles.schema import Replacing, Written
from jupyterhub_gpuspawner.slurm.submit_command import SubmitCommand

SHOWN_AT_MOST = 160
"""Characters of a value in the list of differences."""


class Kind(str, Enum):
    """What becomes of a setting, an option or a piece of code; in the order of the list, with its heading."""

    DECIDE = "decide"
    """The admin has to do something; ``todo`` says what."""
    CHANGED = "changed"
    """Jobs or servers differ in this."""
    DROPPED = "dropped"
    """It is not needed, or had no effect."""
    MOVED = "moved"
    """The same under another name."""


TITLES = {
    Kind.DECIDE: "To decide",
    Kind.CHANGED: "Changed",
    Kind.DROPPED: "No longer needed",
    Kind.MOVED: "The same under another name",
}


@dataclass(frozen=True)
class Difference:
    """One difference."""

    code: str
    """That of its row."""
    kind: Kind
    where: str
    """The setting, such as ``c.SlurmSpawner.req_srun``, or the option of sbatch, such as ``--export``."""
    was: str
    now: str
    why: str
    """A sentence without its full stop."""
    todo: str = ""
    """What the admin should do, as a sentence; empty if nothing."""
    profiles: tuple[str, ...] = ()
    """Slugs of the profiles that differ; empty: all of them, or it is of the whole hub."""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value, "profiles": list(self.profiles)}


@cache
def rows() -> Mapping[str, Mapping[str, str]]:
    """The rows by their codes."""
    document: Mapping[str, Mapping[str, str]] = yaml.safe_load(
        Path(__file__).with_name("differences.yaml").read_text("utf-8")
    )
    return document


def difference(
    code: str, where: str, was: str | None, now: str | None, profiles: tuple[str, ...] = (), **values: object
) -> Difference:
    """The difference of a row, with ``values`` for its names; None: what the row says."""
    row = rows()[code]
    was_of_row, now_of_row, why, todo = (
        Template(row.get(name, "")).substitute(values) for name in ("was", "now", "why", "todo")
    )
    return Difference(
        code,
        Kind(row["kind"]),
        where,
        was_of_row if was is None else was,
        now_of_row if now is None else now,
        why,
        todo,
        profiles,
    )


@dataclass
class ConvertedProfile:
    """A profile of the new hub, and the job that the old one would have submitted for the same choice."""

    document: dict[str, Any]
    old_options: Mapping[str, str] | None = None
    """sbatch's options; None if the profile is no Slurm job, or the old hub could not have made its script."""
    in_file: bool = True
    """A YAML file may have it."""
    where: str = ""
    """Where the old configuration has it; empty for one that is made of the hub's settings."""
    old: OldProfile | None = None
    """wrapspawner's, of which it is made."""
    unset: str = ""
    """The variable of a template that is kept which was empty, of two for GPUs."""

    @property
    def slug(self) -> str:
        return str(self.document["slug"])


@dataclass
class Migration:
    """The new hub."""

    old: OldHub
    template: BatchTemplate
    command: SubmitCommand = field(default_factory=SubmitCommand)
    """What ``batch_submit_cmd`` says."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of ``c.GPUSlurmSpawner``, whose values are written anew."""
    requests: dict[str, Any] = field(default_factory=dict)
    """``req_*`` values of the old hub that request something of Slurm."""
    in_options: set[str] = field(default_factory=set)
    """Those of them that the hub's ``req_options`` said."""
    profiles: list[ConvertedProfile] = field(default_factory=list)
    plain: ConvertedProfile | None = None
    """The job of a hub with a form of its own, which has no profiles, where nobody has chosen anything."""
    stays: list[str] = field(default_factory=list)
    """Settings of older sections that stay in the file, such as ``c.SlurmSpawner.options_form``."""
    differences: list[Difference] = field(default_factory=list)
    allows: tuple[str, ...] = ()
    """``profiles_dir_allows``."""
    classes: tuple[str, ...] = ()
    """``profiles_dir_classes``."""

    @property
    def site_class(self) -> type | None:
        """The site's own class from which that of the new hub is derived; None: the new hub's is this package's."""
        return self.old.kept_class

    @property
    def jobs(self) -> list[ConvertedProfile]:
        """All that is a Slurm job: the one without a profile, or those of the profiles."""
        jobs = [profile for profile in self.profiles if profile.document.get("kind", "slurm") == "slurm"]
        return [self.plain, *jobs] if self.plain is not None else jobs

    @property
    def in_files(self) -> list[dict[str, Any]]:
        """Profiles for a YAML file."""
        return [profile.document for profile in self.profiles if profile.in_file]

    @property
    def in_configuration(self) -> list[dict[str, Any]]:
        """Profiles that a file may not have."""
        return [profile.document for profile in self.profiles if not profile.in_file]

    def add(
        self,
        code: str,
        where: object,
        was: object = None,
        now: str | None = None,
        *,
        profile: str = "",
        **values: object,
    ) -> None:
        """Add a difference, see :func:`difference`; the same one of another profile is joined to it."""
        shown = None if was is None else _shown(was)
        new = difference(code, str(where), shown, now, (profile,) if profile else (), **values)
        for at, other in enumerate(self.differences):
            if replace(other, profiles=()) == replace(new, profiles=()):
                profiles = dict.fromkeys((*other.profiles, *new.profiles))
                self.differences[at] = replace(other, profiles=tuple(profiles))
                return
        self.differences.append(new)

    def moved(self, where: object, was: object, now: str) -> None:
        """Add the difference of a setting that has another name now."""
        self.add("moved", where, was, now)

    def of_kept_class(self, setting: OldSetting) -> bool:
        """Whether the class of the new hub sets it, since it is derived from the one that did."""
        return self.site_class is not None and setting.of_class

    def stay(self, code: str, where: str, was: object) -> None:
        """Add the difference of a statement of an older section that stays as it is."""
        self.stays.append(where)
        self.add(code, where, was)

    def keep(self, setting: OldSetting, code: str = "moved") -> None:
        """Keep the value of a setting, which may be one that cannot be written down, such as a function.

        ``code``: that of the difference where it can.
        """
        now = f"c.GPUSlurmSpawner.{setting.name}"
        if _is_literal(setting.value):
            self.settings[setting.name] = setting.value
            self.add(code, setting, setting.value, now)
        else:
            self.add("not_literal", setting, setting.value, new=now)


def _shown(value: object) -> str:
    """A value on one line, shortened; code by its name."""
    text = f"{value.__qualname__}()" if isfunction(value) else value if isinstance(value, str) else repr(value)
    text = "\\n".join(text.strip("\n").split("\n"))
    return text if len(text) <= SHOWN_AT_MOST else f"{text[: SHOWN_AT_MOST - 3]}..."


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def settings_text(migration: Migration) -> str:
    """The statements for jupyterhub_config.py."""
    lines = ["import os", ""] if migration.in_files else []
    cls = migration.site_class
    if cls is not None and cls.__module__ != "builtins":  # that of a class that the file itself defines
        lines.append(f"from {cls.__module__} import {cls.__name__}")
    if cls is not None:
        lines += ["from jupyterhub_gpuspawner import GPUSlurmSpawner", ""]
    sections = sorted(migration.old.old_sections & set(migration.old.config))
    if named := ", ".join([*(f"c.{name}" for name in sections), *migration.old.of_all_spawners()]):
        end = ", but for these, which stay as they are:" if migration.stays else ":"
        lines.append(f"# In place of all statements that set {named},\n# and of c.JupyterHub.spawner_class{end}")
    elif migration.stays:
        lines.append("# In place of c.JupyterHub.spawner_class; these stay as they are:")
    lines += [f"# - {name}" for name in migration.stays]
    if cls is not None:
        lines += [f"class {new_name(cls)}({cls.__name__}, GPUSlurmSpawner):"]
        lines += ['    """It starts its servers as this package does."""', "", ""]
    spawner = new_name(cls) if cls is not None else _literal("gpu-slurm" if migration.old.own_form else "gpu-profiles")
    lines.append(f"c.JupyterHub.spawner_class = {spawner}")
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

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)


_Dumper.add_representer(Replacing, yaml.SafeDumper.represent_str)
_Dumper.add_representer(Written, yaml.SafeDumper.represent_int)


def profiles_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """The profiles as one file; empty if there is none."""
    if not documents:
        return ""
    style: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": False}
    text = [yaml.dump([dict(document)], Dumper=_Dumper, **style) for document in documents]
    return '# Written by gpuspawner migrate. The reference "Profile fields" lists all.\n\n' + "\n".join(text)


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
            profiles = f" ({', '.join(row.profiles)})" if row.profiles else ""
            now = _plain(row.now) if kind is Kind.MOVED else _code(row.now)
            cells = (_code(row.where) + profiles, _code(row.was), now, _plain(row.why), _plain(row.todo))
            parts.append(f"| {' | '.join(cells[: len(columns)])} |\n")
    return "".join(parts)


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
