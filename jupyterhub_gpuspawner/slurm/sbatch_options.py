"""sbatch's options: their names, what each decides, and the one reader of lines of them. Pure.

:func:`options_of` has the names and values of a line, :func:`options_in` those of a script, and :func:`written_options`
also tells how each is written, whether it lacks a value, and writes it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

LONG = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "J": "job-name",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "O": "overcommit",
    "Q": "quiet",
    "S": "core-spec",
    "W": "wait",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "k": "no-kill",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "w": "nodelist",
    "x": "exclude",
}
"""sbatch's short options."""


class Decides(Enum):
    """What an option of sbatch decides."""

    PLACEMENT = "on which nodes, and on what of them, the job runs"
    TURN = "whose job it is, and when it is tried"
    NEITHER = "what happens in the job, or who is told of it"


_DECIDES = {
    Decides.PLACEMENT: """
        batch bb bbf cluster-constraint consolidate-segments constraint contiguous core-spec cores-per-socket
        cpus-per-gpu cpus-per-task distribution exclude exclusive extra-node-info gpus gpus-per-node gpus-per-socket
        gpus-per-task gres gres-flags hint licenses mem mem-per-cpu mem-per-gpu mem-update mincpus nodefile nodelist
        nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket overcommit oversubscribe partition
        power prefer reservation resources segment sockets-per-node spread-job spread-segments switches tasks-per-node
        thread-spec threads-per-core time time-min tmp tres-per-task use-min-nodes
    """,
    Decides.TURN: """
        account array begin clusters deadline delay-boot dependency extra gid help hold mcs-label network nice priority
        qos reboot resv-ports test-only uid usage version wrap
    """,
    Decides.NEITHER: """
        acctg-freq chdir comment container container-id container-type cpu-freq error export export-file get-user-env
        gpu-bind gpu-freq ignore-pbs input job-name kill-on-invalid-dep mail-type mail-user mem-bind no-kill no-requeue
        oom-kill-step open-mode output parsable profile propagate quiet requeue signal stepmgr tres-bind verbose wait
        wait-all-nodes wckey
    """,
}
DECIDES = {name: decides for decides, names in _DECIDES.items() for name in names.split()}
"""sbatch's long options, of Slurm 22.05 to 26.05 (sbatch(1)), each with what it decides."""
OPTIONS = frozenset(DECIDES)
_FLAGS = """
consolidate-segments contiguous exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue oom-kill-step
overcommit oversubscribe parsable propagate quiet reboot requeue resv-ports spread-job spread-segments stepmgr test-only
usage use-min-nodes verbose version wait
"""
FLAGS = frozenset(_FLAGS.split())
"""Options that are complete without a value."""


class Option(NamedTuple):
    """An option as it is written in a line."""

    name: str
    """The long name in full; the letter of a short option that sbatch does not have."""
    value: str
    """Empty where none is written."""
    assigned: bool = False
    """It is written with ``=``, whatever follows."""

    @property
    def lacks_value(self) -> bool:
        """Whether sbatch refuses it for want of a value."""
        return not self.value and (self.assigned or self.name in OPTIONS - FLAGS)

    def __str__(self) -> str:
        """The option as one word that is not quoted: ``--name=value``, or ``-Zvalue`` where it has no long name."""
        if len(self.name) == 1:
            return f"-{self.name}{self.value}"
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


def directives(script: str) -> tuple[str, ...]:
    """Return the ``#SBATCH`` lines of a batch script that Slurm reads: those before the first command (sbatch(1)).

    One that is indented is a comment.
    """
    head = takewhile(lambda line: not line.strip() or line.lstrip().startswith("#"), script.splitlines())
    return tuple(line.strip() for line in head if line.startswith("#SBATCH"))


def options_in(script: str) -> Iterator[tuple[str, str]]:
    """The options of a batch script's ``#SBATCH`` lines, as :func:`options_of` has them."""
    return (option for line in directives(script) for option in options_of(line.removeprefix("#SBATCH")))


def options_of(line: str) -> Iterator[tuple[str, str]]:
    """The options of one line, by long names in full, with their values; raises ValueError for unbalanced quotes."""
    return ((option.name, option.value) for option in written_options(line))


def option_lines(text: str) -> tuple[str, ...]:
    """The lines of options in a text, each without ``#SBATCH`` and comments.

    batchspawner's hubs have several lines in one setting: all but the first begin with ``#SBATCH``, and one in which
    that is indented is a comment.
    """
    lines = (line.removeprefix("#SBATCH").strip() for line in text.split("\n"))
    return tuple(_COMMENT.sub("", line) for line in lines if line and not line.startswith("#"))


_COMMENT = re.compile(r"\s+#[^'\"]*$")


def written_options(line: str) -> Iterator[Option]:
    """The options of one line, or of several, as they are written; raises ValueError for unbalanced quotes."""
    return options_of_words([word for text in option_lines(line) for word in words_of(text)])


def words_of(line: str) -> list[str]:
    """The words of one line as sbatch takes it apart; raises ValueError for unbalanced quotes.

    A backslash takes the next character as it is, in quotes of either kind, too, but no blank outside of them; what
    follows # is a comment.
    """
    words: list[str] = []
    word, quote, begun, escaped = "", "", False, False
    for character in f"{line} ":
        if not quote and (character.isspace() or (character == "#" and not escaped)):
            words += [word] if begun else []
            word, begun, escaped = "", False, False
            if character == "#":
                break
        elif escaped or (character != "\\" and (character not in "\"'" if not quote else character != quote)):
            word, begun, escaped = word + character, True, False
        elif character == "\\":
            begun = escaped = True
        else:
            quote, begun = "" if quote else character, True
    if quote:
        raise ValueError("No closing quotation")
    return words


def options_of_words(words: list[str], *, strict: bool = False) -> Iterator[Option]:
    """The options among these words, which it consumes; raises ValueError for another word where it is ``strict``."""
    while words:
        word = words.pop(0)
        name, assigned, value = word.partition("=")
        if word.startswith("--"):
            name = _in_full(name[2:])
            needs_value = not assigned and name not in FLAGS
        elif word.startswith("-") and len(word) > 1:
            name, value, assigned = LONG.get(word[1], word[1]), word[2:], ""
            needs_value = not value and name not in FLAGS
        elif strict:
            raise ValueError(f"{word!r} is no option of sbatch")
        else:
            continue
        if needs_value and words and not words[0].startswith("-"):
            value = words.pop(0)
        yield Option(name, value, bool(assigned))


def _in_full(name: str) -> str:
    """The option that getopt_long(3) takes for ``name``: that of this name, or the only one that begins so."""
    meant = [option for option in OPTIONS if option.startswith(name)]
    return meant[0] if len(meant) == 1 and name not in OPTIONS else name
