"""The people of a course: names, ranges such as ``train[001-050]``, JupyterHub groups, or a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, model_validator

from jupyterhub_gpuspawner.profiles.schema import TEXT_LIMIT, BadValue, Checked, Frozen, OneOrMany, Text, matching
from jupyterhub_gpuspawner.units import TooManyNames, expand_nodelist

PEOPLE_LIMIT = 2000
"""Maximum number of people whom a roster names, and of those in its file."""
INSTRUCTORS_LIMIT = 100
"""Maximum number of instructors whom a course names."""
GROUPS_LIMIT = 100
"""Maximum number of groups in a roster, and of groups of instructors."""
_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")


def _names(value: object) -> str:
    names = _expanded(value, PEOPLE_LIMIT)
    if not names or any(_NAME.fullmatch(name) is None for name in names):
        raise BadValue("must be a user name, or names with a range such as train[001-050]", value)
    return str(value).strip()


def _expanded(value: object, limit: int) -> tuple[str, ...]:
    """The names of one text; empty if it is none. Raises TooManyNames."""
    if isinstance(value, (bool, dict, list)) or len(text := str(value).strip()) > TEXT_LIMIT:
        return ()
    try:
        return expand_nodelist(text, limit=limit)
    except TooManyNames:
        raise
    except ValueError:
        return ()


def _at_most(limit: int) -> Callable[[object], object]:
    """Refuses a list of names and ranges as soon as there are more than ``limit``, before the rest is looked at."""

    def count(value: object) -> object:
        left = limit
        for item in value if isinstance(value, list) else ():
            try:
                left -= max(1, len(_expanded(item, left)))
            except TooManyNames:
                left = -1
            if left < 0:
                raise BadValue(f"names more than {limit} people")
        return value

    return count


def _few_groups(value: object) -> object:
    if isinstance(value, list) and len(value) > GROUPS_LIMIT:
        raise BadValue(f"names more than {GROUPS_LIMIT} groups")
    return value


def _every_name(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for text in value for name in expand_nodelist(text)))


UserNames = Annotated[str, Checked(_names, {"type": "string", "examples": ["ada", "train[001-050]"]})]
FileName = Annotated[
    str, matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}\.csv", "the name of a CSV file beside the course's file")
]
# pydantic calls the last of the validators before a value first
RosterNames = Annotated[
    tuple[UserNames, ...], BeforeValidator(_at_most(PEOPLE_LIMIT)), OneOrMany, AfterValidator(_every_name)
]
"""Every name in a list of names and ranges, each once."""
InstructorNames = Annotated[
    tuple[UserNames, ...], BeforeValidator(_at_most(INSTRUCTORS_LIMIT)), OneOrMany, AfterValidator(_every_name)
]
Groups = Annotated[tuple[Text, ...], BeforeValidator(_few_groups), OneOrMany]


class Roster(Frozen):
    """The people of a course; a name that occurs twice counts once."""

    names: RosterNames = ()
    """User names, and ranges such as ``train[001-050]``."""
    groups: Groups = ()
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
        return self


@dataclass(frozen=True)
class People:
    """The user names of a roster, and the groups that do not exist."""

    names: tuple[str, ...] = ()
    unknown_groups: tuple[str, ...] = ()


def people(roster: Roster, listed: Collection[str], groups: Mapping[str, Collection[str]]) -> People:
    """Everybody on the roster, in its order. ``listed``: the names in its file; ``groups``: the hub's, with members."""
    names = dict.fromkeys(roster.names)
    for group in roster.groups:
        names.update(dict.fromkeys(sorted(groups.get(group, ()))))
    names.update(dict.fromkeys(listed))
    return People(tuple(names), tuple(group for group in roster.groups if group not in groups))


def parse_people(text: str, column: str = "username") -> tuple[str, ...]:
    """The user names in a CSV file; raises BadValue, which names the line and quotes nothing.

    Separators are commas, semicolons or tabs, whichever the first line has. A line without a name is skipped.
    """
    lines = text.lstrip("\ufeff").splitlines()
    first = lines[0] if lines else ""
    separator = max(",;\t", key=first.count)
    header = [cell.strip().lower() for _, row in _rows([first], separator, 1) for cell in row]
    wanted = column.strip().lower()
    position, skipped = (header.index(wanted), 1) if wanted in header else (0, 0)
    names: dict[str, None] = {}
    for number, row in _rows(lines[skipped:], separator, skipped + 1):
        name = row[position].strip() if position < len(row) else ""
        if not name:
            continue
        if _NAME.fullmatch(name) is None:
            raise BadValue(f"line {number} has no valid user name in column {position + 1}")
        names[name] = None
        if len(names) > PEOPLE_LIMIT:
            raise BadValue(f"the file names more than {PEOPLE_LIMIT} people")
    return tuple(names)


def _rows(lines: Sequence[str], separator: str, number: int) -> Iterator[tuple[int, list[str]]]:
    """The rows of these lines, the first of which has ``number``; raises BadValue."""
    rows = csv.reader(lines, delimiter=separator)
    while True:
        try:
            row = next(rows, None)
        except csv.Error:  # such as a cell of more than 128 KiB
            raise BadValue(f"line {number} is not a row of a CSV file") from None
        if row is None:
            return
        yield number, row
        number += 1
