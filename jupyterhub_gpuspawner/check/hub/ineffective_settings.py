"""Settings that are accepted, and do not mean what they seem to."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub.traitlets import Command
from traitlets import Dict, List, Set
from traitlets.config.loader import LazyConfigValue

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.site.values import given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traitlets import TraitType
    from traitlets.config import Config, Configurable

    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.site.values import Given

LOST = Code(
    "addition-ignored",
    "The configuration adds to a setting by a method of another type, such as `append` to a set, which has no effect.",
)
ONE_WORD = Code(
    "command-not-list", "A command is one text with blanks, which JupyterHub takes for the name of a program."
)


def doubtful(config: Config, cls: type[Configurable]) -> Iterator[Finding]:
    """The settings that are accepted, and do not mean what they seem to."""
    for each in given(config, cls):
        if isinstance(each.value, LazyConfigValue):
            if method := _lost(each.trait, each.value):
                kind = next(name for type_, name in _KINDS.items() if isinstance(each.trait, type_))
                yield LOST.error(
                    each.where,
                    f"this setting is a {kind}, to which {method} adds nothing.",
                    f"Use {each.where}.{'extend' if kind == 'list' else 'update'}.",
                )
        elif isinstance(each.trait, Command):
            yield from _of_command(each)


def _lost(trait: TraitType[Any, Any], value: LazyConfigValue) -> str:
    """The method by which something was added to a setting that does not have it; empty for none."""
    adds = value.to_dict()
    if isinstance(trait, (Set, Dict)):
        return next((name for key, name in _OF_LISTS.items() if key in adds), "")
    if isinstance(trait, List) and "update" in adds:
        return "update"
    return ""


_KINDS: dict[type, str] = {Set: "set", Dict: "dict", List: "list"}
_OF_LISTS = {"extend": "append or extend", "prepend": "prepend", "inserts": "insert"}
"""Methods of lists, by the names in which traitlets keeps what they add."""


def _of_command(each: Given) -> Iterator[Finding]:
    words = [each.value] if isinstance(each.value, str) else each.value
    program = words[0] if isinstance(words, (list, tuple)) and words else ""
    if not isinstance(program, str) or len(program.split()) < 2 or Path(program).exists():
        return
    try:
        meant = shlex.split(program)
    except ValueError:
        meant = program.split()
    yield ONE_WORD.error(
        each.where,
        f"{program!r} is taken for the name of one program, which does not exist.",
        f"Write {each.where} = {[*meant, *words[1:]]!r}.",
    )
