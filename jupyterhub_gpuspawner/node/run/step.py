"""``gpuspawner-run``: start a step, pass its output on, and end it with its user's Ctrl-C.

``srun`` runs in a session of its own, so that signals reach only this process, which decides what they mean. If this
process is killed, the kernel ends srun, and srun its ranks.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child, grant
from jupyterhub_gpuspawner.node.run import srun, variables
from jupyterhub_gpuspawner.node.run.srun import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from jupyterhub_gpuspawner.node.run.srun import Options


# What the ranks of a step say of themselves, in lines of their output that have the run's token.
#
# A rank says how it ended, and until then regularly that it is there: srun waits without limit for a node whose
# slurmstepd was killed, and for a node that has failed until slurmctld notices it, after ``SlurmdTimeout``.

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
    if len(failed) == len(node_of) > 1 and {end.signal for end in failed} == {signal.SIGTERM}:
        sentence = "all ranks were ended by signal 15: the step or its job was cancelled, or reached its time limit"
        return Verdict(128 + signal.SIGTERM, (sentence,))
    if first is not None and (first.signal not in TERMINATED or not silent):
        why = f"was ended by signal {first.signal}" if first.signal else f"failed with exit code {first.code}"
        log = f"; its log is {first.log}" if first.log else ""
        sentence = f"rank {first.rank} on {first.node} {why}{log}"
        return Verdict(128 + first.signal if first.signal else first.code, (sentence,))
    if silent and (status or first is not None):
        sentences = [f"{words} on {node} ended without a word" for node, words in _by_node(silent, node_of).items()]
        return Verdict(status or 1, tuple(sentences))
    return Verdict(status, (f"srun failed with exit code {status}",) if status else ())


def _by_node(ranks: Sequence[int], node_of: Sequence[str]) -> Mapping[str, str]:
    by_node: dict[str, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(node_of[rank], []).append(rank)
    return {
        node: f"rank{'s' if len(ending) > 1 else ''} {', '.join(map(str, ending))}" for node, ending in by_node.items()
    }


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK = 0.5
"""Seconds for which output is awaited at a time."""
_ENDING = 30.0
"""Seconds that srun is given to end. It waits less for a node that is gone, but longer for slurmctld."""
NO_STEP = 2
"""Exit code if the step cannot be started as asked."""


def main(arguments: Sequence[str]) -> int:
    """``launch.pyz --run ARGUMENT…``; returns the exit code."""
    launcher = os.path.abspath(sys.argv[0])
    with open(launcher, "rb") as file:
        archive = file.read()
    plan = os.path.join(os.path.dirname(launcher), "plan.json")
    return run(srun.parse(arguments), os.environ, archive=lambda: archive, plan=_text(plan) or "{}")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def run(options: Options, environ: Mapping[str, str], *, archive: Callable[[], bytes], plan: str) -> int:
    """Run the step to its end and return its exit code. ``plan``: the server's launch plan, for policy and topology."""
    try:
        mine = srun.read(environ, grant.answer_about_job(environ))
        where = srun.layout(mine, options)
        kinds = srun.keeps(options, environ)
        srun.gpus_of_step(mine, where, kinds)
        address, port = _master(mine, where.nodes)
    except (ValueError, OSError) as error:
        say(str(error))
        return NO_STEP
    logs = os.path.abspath(options.logs) if options.logs else ""
    if logs:
        os.makedirs(logs, exist_ok=True)
    spec = Spec(
        token=secrets.token_hex(8),
        plan=plan,
        master_addr=address,
        master_port=port,
        keeps=kinds,
        all_gpus=options.all_gpus,
        torchrun=options.is_torchrun,
        logs=logs,
        allocation=mine.allocation,
        verbose=options.verbose,
        beat=options.limit / 4,
    )
    surroundings = srun.environment(environ, mine, spec=spec.dumps(), archive=archive())
    with tempfile.NamedTemporaryFile("w", prefix="gpuspawner-hosts-", delete=True) as hosts:
        hosts.writelines(f"{node}\n" for node in where.node_of)
        hosts.flush()
        words = srun.command(options, mine, where, hosts=hosts.name, bindings=kinds)
        if options.verbose:
            shown = words[: words.index("/bin/sh")]
            say(f"{shlex.join(shown)} {shlex.join(options.command)}")
        watch = Watch(options.limit)
        output = Output(labelled="--label" in words)
        return _Step(words, surroundings, spec.token, where.node_of, watch, output).run()


def _master(mine: srun.Job, nodes: Sequence[str]) -> tuple[str, int]:
    """Address and port of the master, which is on the first node; no address if that is the node of this process."""
    here = mine.here == nodes[0]
    port = variables.free_port(here=here)
    if len(nodes) == 1:
        return "127.0.0.1", port
    return ("" if here else variables.resolved(grant.node_address(nodes[0]) or nodes[0])), port


@dataclass
class _Step:
    """A running srun, and what its ranks have said."""

    words: Sequence[str]
    environ: Mapping[str, str]
    token: str
    node_of: Sequence[str]
    watch: Watch
    output: Output
    ended: list[Ending] = field(default_factory=list)
    heard: bool = False
    lost: tuple[int, ...] = ()
    ending: float = 0.0
    """Seconds since srun was asked to end, because ranks were lost."""
    signal: int = 0

    def run(self) -> int:
        parent = os.getpid()
        try:
            step = subprocess.Popen(
                self.words,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=lambda: child.die_with(parent, signal.SIGTERM),  # noqa: PLW1509 - no other thread
            )
        except FileNotFoundError:
            say("srun is not in the PATH; it belongs to Slurm")
            return NO_STEP

        def end(number: int, _: FrameType | None) -> None:
            if not self.signal:
                say(f"{signal.Signals(number).name}: all ranks are being ended")
            self.signal = number
            step.send_signal(signal.SIGTERM)

        before = {number: signal.signal(number, end) for number in _SIGNALS}
        try:
            self._pass_on(step)
            return self._close(step.wait())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pass_on(self, step: subprocess.Popen[bytes]) -> None:
        """Copy srun's standard error, without the ranks' own messages; end srun if ranks are lost."""
        stderr = step.stderr
        assert stderr is not None  # noqa: S101 - a pipe
        readable, writable = select.poll(), select.poll()
        readable.register(stderr, select.POLLIN)
        for output in (1, 2):
            writable.register(output, select.POLLOUT)
        while True:
            began = time.monotonic()
            some = readable.poll(_TICK * 1000)
            # Where nobody reads the output, srun reads nothing either. A run that was stopped was not waiting.
            if len(writable.poll(0)) == 2:
                self._waited(step, min(time.monotonic() - began, _TICK))
            if not some:
                continue
            chunk = os.read(stderr.fileno(), 65536)
            for line in self.output.lines(chunk):
                self._line(line)
            if not chunk:
                return

    def _waited(self, step: subprocess.Popen[bytes], seconds: float) -> None:
        """Count time that has passed; end srun if ranks are lost, and kill it if it does not end."""
        self.watch.waited(seconds)
        if self.lost:
            self.ending += seconds
            if self.ending > _ENDING:
                step.kill()
        elif not self.signal:
            self.lost = self.watch.lost(nearly=self.watch.limit / 4)
            if self.lost:
                for sentence in silence(self.lost, self.node_of, self.watch.limit):
                    say(sentence)
                step.send_signal(signal.SIGTERM)

    def _line(self, line: bytes) -> None:
        if line == NOISE:
            return
        text, message = parse(line.decode(errors="surrogateescape"), self.token)
        if message is not None:
            self.heard = True
            self.watch.heard(message)
            self.ended += [message] if isinstance(message, Ending) else []
            # What is left is the label of srun, or an unfinished line of the rank.
            label = text.strip().rstrip(":").isdigit() or not text.strip()
            text = "" if label else f"{text}\n" if self.output.labelled or isinstance(message, Ending) else text
        if text:
            os.write(2, text.encode(errors="surrogateescape"))

    def _close(self, status: int) -> int:
        if self.signal:
            say(f"{signal.Signals(self.signal).name}: all ranks have ended")
            return 128 + self.signal
        status = 128 - status if status < 0 else status
        if self.lost:
            return status or 1
        verdict = judge(self.ended, self.node_of, status, started=self.heard or not self.watch.limit)
        for sentence in verdict.sentences:
            say(sentence)
        return verdict.exit_code


def say(sentence: str) -> None:
    """Write one line to standard error."""
    os.write(2, f"gpuspawner-run: {sentence}\n".encode(errors="replace"))
