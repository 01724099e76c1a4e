"""How the ranks of a step ended: each says it in a line of its output that has the run's token. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MARK = "\x1egpuspawner-run"
TERMINATED = (2, 9, 15)
"""SIGINT, SIGKILL and SIGTERM, by which Slurm ends the others after one rank has failed."""


@dataclass(frozen=True)
class Ending:
    """The end of one rank."""

    rank: int
    node: str
    code: int = 0
    signal: int = 0
    log: str = ""

    def line(self, token: str) -> str:
        """For the rank's standard error. :func:`parse` finds it, even if the rank's last line was not finished."""
        return f"{_MARK} {token} {json.dumps(asdict(self))}\n"


def parse(line: str, token: str) -> tuple[str, Ending | None]:
    """Split a line of output into what the program wrote and the ending that follows, if there is one."""
    text, mark, rest = line.partition(f"{_MARK} {token} ")
    if not mark:
        return line, None
    try:
        return text, Ending(**json.loads(rest))
    except (ValueError, TypeError):
        return text, None


@dataclass(frozen=True)
class Verdict:
    """What became of a run."""

    exit_code: int = 0
    sentences: tuple[str, ...] = ()


def judge(ended: Sequence[Ending], node_of: Sequence[str], status: int) -> Verdict:
    """Name the rank that failed. ``ended``: in the order in which they were told; ``status``: the exit code of srun.

    A rank that Slurm has ended because of another is not the cause, unless there is no other.
    """
    failed = [end for end in ended if end.code or end.signal]
    first = next((end for end in failed if end.signal not in TERMINATED), next(iter(failed), None))
    silent = [rank for rank in range(len(node_of)) if rank not in {end.rank for end in ended}]
    sentences: list[str] = []
    if first is not None and (first.signal not in TERMINATED or not silent):
        why = f"was ended by signal {first.signal}" if first.signal else f"failed with exit code {first.code}"
        log = f"; its log is {first.log}" if first.log else ""
        sentences.append(f"rank {first.rank} on {first.node} {why}{log}")
        return Verdict(128 + first.signal if first.signal else first.code, tuple(sentences))
    if silent and (status or first is not None):
        sentences += [f"{words} on {node} ended without a word" for node, words in _by_node(silent, node_of).items()]
        return Verdict(status or 1, tuple(sentences))
    return Verdict(status, (f"srun failed with exit code {status}",) if status else ())


def _by_node(ranks: Sequence[int], node_of: Sequence[str]) -> Mapping[str, str]:
    found: dict[str, list[int]] = {}
    for rank in ranks:
        found.setdefault(node_of[rank], []).append(rank)
    return {node: f"rank{'s' if len(each) > 1 else ''} {', '.join(map(str, each))}" for node, each in found.items()}
