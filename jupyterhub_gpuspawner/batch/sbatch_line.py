"""A line of sbatch options as options with values. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "M": "clusters",
    "N": "nodes",
    "c": "cpus-per-task",
    "e": "error",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
}
"""sbatch's short options."""
FLAGS = frozenset(
    ["exclusive", "get-user-env", "no-requeue", "requeue", "oversubscribe", "hold", "overcommit", "contiguous"]
)
"""Options that are complete without a value."""


def options_of(text: str) -> Iterator[tuple[str, str]]:
    """The options of one line, by long names; raises ValueError for unbalanced quotes."""
    words = shlex.split(text, comments=True)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            name = name[2:]
            if not equals and name not in FLAGS and words and not words[0].startswith("-"):
                value = words.pop(0)
        elif word.startswith("-") and len(word) > 1:
            name, value = LONG.get(word[1], word[1]), word[2:]
            if not value and words and not words[0].startswith("-"):
                value = words.pop(0)
        else:
            continue
        yield name, value
