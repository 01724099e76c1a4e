"""sbatch's options: their names, and a line of them taken apart. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import takewhile

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
_OPTIONS = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment consolidate-segments
constraint container container-id container-type contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu
cpus-per-task deadline delay-boot dependency distribution error exclude exclusive export export-file extra
extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags
help hint hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind
mem-per-cpu mem-per-gpu mem-update mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step open-mode output overcommit
oversubscribe parsable partition power prefer priority profile propagate qos quiet reboot requeue reservation
resources resv-ports segment signal sockets-per-node spread-job spread-segments stepmgr switches tasks-per-node
test-only thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid usage use-min-nodes verbose
version wait wait-all-nodes wckey wrap
"""
OPTIONS = frozenset(_OPTIONS.split())
"""sbatch's long options, of Slurm 22.05 to 26.05 (sbatch(1))."""
_FLAGS = """
contiguous exclusive get-user-env hold ignore-pbs nice no-kill no-requeue overcommit oversubscribe parsable propagate
quiet reboot requeue spread-job test-only use-min-nodes verbose wait
"""
FLAGS = frozenset(_FLAGS.split())
"""Options that are complete without a value."""


def directives(script: str) -> tuple[str, ...]:
    """Return the ``#SBATCH`` lines of a batch script that Slurm reads: those before the first command (sbatch(1))."""
    lines = (line.strip() for line in script.splitlines())
    head = takewhile(lambda line: not line or line.startswith("#"), lines)
    return tuple(line for line in head if line.startswith("#SBATCH"))


def options_of(text: str) -> Iterator[tuple[str, str]]:
    """The options of one line, by long names in full; raises ValueError for unbalanced quotes."""
    words = shlex.split(text, comments=True)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            name = _in_full(name[2:])
            if not equals and name not in FLAGS and words and not words[0].startswith("-"):
                value = words.pop(0)
        elif word.startswith("-") and len(word) > 1:
            name, value = LONG.get(word[1], word[1]), word[2:]
            if not value and words and not words[0].startswith("-"):
                value = words.pop(0)
        else:
            continue
        yield name, value


def _in_full(name: str) -> str:
    """The option that getopt_long(3) takes for ``name``: that of this name, or the only one that begins so."""
    meant = [option for option in OPTIONS if option.startswith(name)]
    return meant[0] if len(meant) == 1 and name not in OPTIONS else name
