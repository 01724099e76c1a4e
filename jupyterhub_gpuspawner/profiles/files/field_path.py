"""The path of a field as errors about a file show it: as far as the schema knows its names.

Other keys come from the file and may be anything, a secret among them, so the path ends before the first of them.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, get_args

from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.schema import Frozen, dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TABLES = ("profile_options", "choices", "variables", "traits", "dates")
"""Fields whose keys the author chooses."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def shown_path(path: Sequence[str | int]) -> str:
    """``slurm.extra[0]``, or the beginning of the path that the schema knows."""
    around = ("", *path)

    def known(step: tuple[str | int, str | int]) -> bool:
        before, name = step
        return isinstance(name, int) or name in _FIELDS or (before in _TABLES and _NAME.fullmatch(name) is not None)

    return dotted([name for _, name in takewhile(known, zip(around, path, strict=False))])


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
