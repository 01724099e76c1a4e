"""The people of a course: names, ranges such as ``train[001-050]``, JupyterHub groups, or a CSV file."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import model_validator

from jupyterhub_gpuspawner.profiles.schema import BadValue, Checked, Frozen, OneOrMany, Text, matching
from jupyterhub_gpuspawner.units import expand_nodelist

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PEOPLE_LIMIT = 2000
"""Maximum number of people in a roster."""
_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")


def _names(value: object) -> str:
    text = str(value).strip()
    try:
        found = expand_nodelist(text) if not isinstance(value, (bool, dict, list)) else ()
    except ValueError:
        found = ()
    if not found or any(_NAME.fullmatch(name) is None for name in found):
        raise BadValue("must be a user name, or names with a range such as train[001-050]", value)
    if len(found) > PEOPLE_LIMIT:
        raise BadValue(f"names more than {PEOPLE_LIMIT} people", value)
    return text


UserNames = Annotated[str, Checked(_names, {"type": "string", "examples": ["ada", "train[001-050]"]})]
FileName = Annotated[
    str, matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}\.csv", "the name of a CSV file beside the course's file")
]


class Roster(Frozen):
    """The people of a course; a name that occurs twice counts once."""

    names: Annotated[tuple[UserNames, ...], OneOrMany] = ()
    """User names, and ranges such as ``train[001-050]``."""
    groups: Annotated[tuple[Text, ...], OneOrMany] = ()
    """JupyterHub groups: all their members."""
    file: FileName | None = None
    """A CSV file in the same folder, with a user name on each line."""
    column: Text = "username"
    """The column of the file with the user names; without a header of this name, the first column."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        """A name or a list of names stands for ``names``."""
        return {"names": value} if isinstance(value, (str, list)) else value

    @model_validator(mode="after")
    def _somebody(self) -> Roster:
        if not (self.names or self.groups or self.file):
            raise BadValue("must name people: names, groups, or a file")
        if sum(len(expand_nodelist(each)) for each in self.names) > PEOPLE_LIMIT:
            raise BadValue(f"names more than {PEOPLE_LIMIT} people")
        return self


@dataclass(frozen=True)
class People:
    """The user names of a roster, and the groups that do not exist."""

    names: tuple[str, ...] = ()
    unknown_groups: tuple[str, ...] = ()


def people(roster: Roster, listed: Collection[str], groups: Mapping[str, Collection[str]]) -> People:
    """Everybody on the roster, in its order. ``listed``: the names in its file; ``groups``: the hub's, with members."""
    found: dict[str, None] = {}
    for text in roster.names:
        found.update(dict.fromkeys(expand_nodelist(text)))
    for group in roster.groups:
        found.update(dict.fromkeys(sorted(groups.get(group, ()))))
    found.update(dict.fromkeys(listed))
    return People(tuple(found), tuple(group for group in roster.groups if group not in groups))


def parse_people(text: str, column: str = "username") -> tuple[str, ...]:
    """The user names in a CSV file; raises BadValue, which names the line and quotes nothing.

    Separators are commas, semicolons or tabs, whichever the first line has. A line without a name is skipped.
    """
    lines = text.lstrip("\ufeff").splitlines()
    first = lines[0] if lines else ""
    separator = max(",;\t", key=first.count)
    header = [cell.strip().lower() for cell in next(csv.reader([first], delimiter=separator), [])]
    wanted = column.strip().lower()
    position, skipped = (header.index(wanted), 1) if wanted in header else (0, 0)
    found: dict[str, None] = {}
    for number, row in enumerate(csv.reader(lines[skipped:], delimiter=separator), skipped + 1):
        name = row[position].strip() if position < len(row) else ""
        if not name:
            continue
        if _NAME.fullmatch(name) is None:
            raise BadValue(f"line {number} has no valid user name in column {position + 1}")
        found[name] = None
        if len(found) > PEOPLE_LIMIT:
            raise BadValue(f"the file names more than {PEOPLE_LIMIT} people")
    return tuple(found)
