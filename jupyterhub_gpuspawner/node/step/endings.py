"""What the ranks of a step say of themselves, in lines of their output that have the run's token. Pure.

A rank says how it ended, and until then regularly that it is there: srun waits without limit for a node whose
slurmstepd was killed, and for a node that has failed until slurmctld notices it, after ``SlurmdTimeout``.
"""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOISE = b"srun: cluster configuration lacks support for cpu binding\n"
"""Written by srun where Slurm cannot bind CPUs, because it is asked to leave that to the ranks."""
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


@dataclass(frozen=True)
class Beat:
    """A rank is there."""

    beats: int
    """The rank."""

    def line(self, token: str) -> str:
        """For the rank's standard error."""
        return f"{_MARK} {token} {json.dumps(asdict(self))}\n"


def parse(line: str, token: str) -> tuple[str, Ending | Beat | None]:
    """Split a line of output into what the program wrote and what its rank says after it, if it says something."""
    text, mark, rest = line.partition(f"{_MARK} {token} ")
    if not mark:
        return line, None
    try:
        document = json.loads(rest)
        return text, Beat(**document) if "beats" in document else Ending(**document)
    except (ValueError, TypeError):
        return text, None


class Output:
    """The standard error of srun, cut into lines."""

    def __init__(self, *, labelled: bool) -> None:
        self.labelled = labelled
        """Whether srun writes whole lines, each with the number of its rank."""
        self._rest = b""

    def lines(self, chunk: bytes) -> list[bytes]:
        """Those that are complete with ``chunk``, empty at the end.

        Without labels also a line that is not complete, such as a bar of progress, unless more has to be known of it.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        complete = [line + b"\n" for line in lines]
        unfinished = self.labelled or _MARK[0].encode() in self._rest or NOISE.startswith(self._rest)
        if self._rest and not (chunk and unfinished):
            complete.append(self._rest)
            self._rest = b""
        return complete


class Watch:
    """For how long each rank has been silent: those that have spoken once, and have not ended."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        """Seconds of silence after which a rank counts as lost; 0: never."""
        self._silent: dict[int, float] = {}

    def heard(self, message: Beat | Ending) -> None:
        """Note what a rank has said."""
        if isinstance(message, Beat):
            self._silent[message.beats] = 0.0
        else:
            self._silent.pop(message.rank, None)

    def waited(self, seconds: float) -> None:
        """Count time in which every rank would have been heard."""
        for rank in self._silent:
            self._silent[rank] += seconds

    def lost(self, *, nearly: float = 0.0) -> tuple[int, ...]:
        """The ranks that count as lost; ``nearly``: also those that will within so many seconds, if another one is."""
        silent = sorted(rank for rank, since in self._silent.items() if since >= self.limit - nearly)
        over = any(since >= self.limit for since in self._silent.values())
        return tuple(silent) if self.limit and over else ()


def silence(lost: Sequence[int], node_of: Sequence[str], limit: float) -> tuple[str, ...]:
    """What is said of lost ranks, for each node."""
    return tuple(
        f"{words} on {node} gave no sign of life for {limit:g} seconds; all ranks are being ended"
        for node, words in _by_node(lost, node_of).items()
    )


@dataclass(frozen=True)
class Verdict:
    """What became of a run."""

    exit_code: int = 0
    sentences: tuple[str, ...] = ()


def judge(ended: Sequence[Ending], node_of: Sequence[str], status: int, *, started: bool = True) -> Verdict:
    """Name the rank that failed. ``ended``: in the order in which they were told; ``status``: the exit code of srun.

    A rank that Slurm has ended because of another is not the cause, unless there is no other. ``started``: False if no
    rank has said anything, as where Slurm refuses the step; srun has then written why.
    """
    if status and not started:
        return Verdict(status, (f"srun started no rank; its exit code is {status}",))
    failed = [end for end in ended if end.code or end.signal]
    first = next((end for end in failed if end.signal not in TERMINATED), next(iter(failed), None))
    silent = [rank for rank in range(len(node_of)) if rank not in {end.rank for end in ended}]
    sentences: list[str] = []
    if len(failed) == len(node_of) > 1 and {end.signal for end in failed} == {signal.SIGTERM}:
        sentence = "all ranks were ended by signal 15: the step or its job was cancelled, or reached its time limit"
        return Verdict(128 + signal.SIGTERM, (sentence,))
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
    by_node: dict[str, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(node_of[rank], []).append(rank)
    return {
        node: f"rank{'s' if len(ending) > 1 else ''} {', '.join(map(str, ending))}" for node, ending in by_node.items()
    }
