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
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.extensions.several_nodes.node import srun, variables
from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import Spec
from jupyterhub_gpuspawner.node import child, grant
from jupyterhub_gpuspawner.node.hardware import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from jupyterhub_gpuspawner.extensions.several_nodes.node.srun import Options


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
class Message:
    """What a rank says of itself: that it is there, or how it ended."""

    rank: int
    node: str = ""
    status: int | None = None
    """Its exit code, or minus the number of the signal that ended it; None while it runs, as in ``subprocess``."""
    log: str = ""

    @property
    def signal(self) -> int:
        """The signal that ended the rank; 0 if none did."""
        return max(0, -(self.status or 0))

    @property
    def exit_code(self) -> int:
        """As a shell counts: 128 + N if signal N ended it."""
        return 128 + self.signal if self.signal else self.status or 0

    def line(self, token: str) -> str:
        """For the rank's standard error. :func:`parse` finds it, even if the rank's last line was not finished."""
        return f"{_MARK} {token} {json.dumps(asdict(self))}\n"


def parse(line: str, token: str) -> tuple[str, Message | None]:
    """Split a line of output into what the program wrote and what its rank says after it, if it says something."""
    text, mark, rest = line.partition(f"{_MARK} {token} ")
    if not mark:
        return line, None
    try:
        return text, Message(**json.loads(rest))
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


class Ranks:
    """The ranks of a run: how they ended, and for how long the others have been silent."""

    def __init__(self, node_of: Sequence[str], limit: float) -> None:
        self.node_of = node_of
        """The node of each rank."""
        self.limit = limit
        """Seconds of silence after which a rank counts as lost; 0: never."""
        self.ended: list[Message] = []
        self._silent: dict[int, float] = {}
        """Seconds since each rank was heard: of those that have spoken, and have not ended."""

    def heard(self, message: Message) -> None:
        """Note what a rank has said."""
        if message.status is None:
            self._silent[message.rank] = 0.0
        else:
            self._silent.pop(message.rank, None)
            self.ended.append(message)

    def waited(self, seconds: float) -> None:
        """Count time in which every rank would have been heard."""
        for rank in self._silent:
            self._silent[rank] += seconds

    def lost(self, *, nearly: float = 0.0) -> tuple[str, ...]:
        """A sentence for each node with lost ranks; ``nearly``: with those that will be within so many seconds."""
        if not self.limit or all(seconds < self.limit for seconds in self._silent.values()):
            return ()
        silent = sorted(rank for rank, seconds in self._silent.items() if seconds >= self.limit - nearly)
        return self._on_nodes(silent, f"gave no sign of life for {self.limit:g} seconds; all ranks are being ended")

    def verdict(self, status: int) -> Verdict:
        """Name the rank that failed; ``status``: the exit code of srun.

        A rank that Slurm has ended because of another is not the cause, unless there is no other. Where Slurm refuses
        the step, no rank says anything; srun has then written why.
        """
        if status and self.limit and not self.ended and not self._silent:
            return Verdict(status, (f"srun started no rank; its exit code is {status}",))
        failed = [end for end in self.ended if end.status]
        first = next((end for end in failed if end.signal not in TERMINATED), next(iter(failed), None))
        silent = sorted(set(range(len(self.node_of))) - {end.rank for end in self.ended})
        if len(failed) == len(self.node_of) > 1 and {end.signal for end in failed} == {signal.SIGTERM}:
            sentence = "all ranks were ended by signal 15: the step or its job was cancelled, or reached its time limit"
            return Verdict(128 + signal.SIGTERM, (sentence,))
        if first is not None and (first.signal not in TERMINATED or not silent):
            why = f"was ended by signal {first.signal}" if first.signal else f"failed with exit code {first.status}"
            log = f"; its log is {first.log}" if first.log else ""
            return Verdict(first.exit_code, (f"rank {first.rank} on {first.node} {why}{log}",))
        if silent and (status or first is not None):
            return Verdict(status or 1, self._on_nodes(silent, "ended without a word"))
        return Verdict(status, (f"srun failed with exit code {status}",) if status else ())

    def _on_nodes(self, ranks: Sequence[int], what: str) -> tuple[str, ...]:
        by_node: dict[str, list[str]] = {}
        for rank in ranks:
            by_node.setdefault(self.node_of[rank], []).append(str(rank))
        return tuple(
            f"rank{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} on {node} {what}"
            for node, numbers in by_node.items()
        )


@dataclass(frozen=True)
class Verdict:
    """What became of a run."""

    exit_code: int = 0
    sentences: tuple[str, ...] = ()


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK = 0.5
"""Seconds for which output is awaited at a time."""
_ENDING = 30.0
"""Seconds that srun is given to end. It waits less for a node that is gone, but longer for slurmctld."""
NO_STEP = 2
"""Exit code if the step cannot be started as asked."""


def main(arguments: Sequence[str]) -> int:
    """``gpuspawner-run ARGUMENT…``; returns the exit code."""
    launcher = os.path.abspath(sys.argv[0])
    with open(launcher, "rb") as file:
        archive = file.read()
    plan = os.path.join(os.path.dirname(launcher), "plan.json")
    return run(srun.parse(arguments), os.environ, archive=archive, plan=text_of(plan) or "{}")


def run(options: Options, environ: Mapping[str, str], *, archive: bytes, plan: str) -> int:
    """Run the step to its end and return its exit code.

    ``archive``: the launcher, for the ranks. ``plan``: the server's launch plan, for policy and topology.
    """
    try:
        job = srun.read(environ, grant.scontrol_show("job", environ.get("SLURM_JOB_ID", "")))
        nodes = srun.layout(job, options)
        kinds = srun.keeps(options, environ)
        srun.gpus_of_step(job, nodes, kinds)
        address, port = _master(job, nodes)
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
        allocation=job.allocation,
        verbose=options.verbose,
        beat=options.limit / 4,
    )
    surroundings = srun.environment(environ, job, spec=spec.dumps(), archive=archive)
    words = srun.command(options, job, nodes, bindings=kinds)
    if options.verbose:
        shown = words[: words.index("/bin/sh")]
        say(f"{shlex.join(shown)} {shlex.join(options.command)}")
    output = Output(labelled="--label" in words)
    return _Step(words, surroundings, spec.token, Ranks(srun.nodes_by_rank(nodes), options.limit), output).run()


def _master(job: srun.Job, nodes: Sequence[srun.Node]) -> tuple[str, int]:
    """Address and port of the master, which is on the first node; no address if that is the node of this process."""
    first = nodes[0].name
    here = job.here == first
    port = variables.free_port(here=here)
    if len(nodes) == 1:
        return "127.0.0.1", port
    return ("" if here else variables.resolved(_node_address(first) or first)), port


def _node_address(node: str) -> str:
    """The address by which Slurm's daemons reach a node (``NodeAddr``); empty without an answer."""
    words = grant.scontrol_show("node", node).split()
    return next((word.partition("=")[2] for word in words if word.startswith("NodeAddr=")), "")


@dataclass
class _Step:
    """A running srun, and what its ranks have said."""

    words: Sequence[str]
    environ: Mapping[str, str]
    token: str
    ranks: Ranks
    output: Output
    is_lost: bool = False
    """Whether srun was asked to end, because ranks were lost."""
    ending: float = 0.0
    """Seconds since then."""
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
        assert stderr is not None
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
        self.ranks.waited(seconds)
        if self.is_lost:
            self.ending += seconds
            if self.ending > _ENDING:
                step.kill()
        elif not self.signal:
            for sentence in self.ranks.lost(nearly=self.ranks.limit / 4):
                say(sentence)
                self.is_lost = True
            if self.is_lost:
                step.send_signal(signal.SIGTERM)

    def _line(self, line: bytes) -> None:
        if line == NOISE:
            return
        text, message = parse(line.decode(errors="surrogateescape"), self.token)
        if message is not None:
            self.ranks.heard(message)
            # What is left is the label of srun, or an unfinished line of the rank.
            label = text.strip().rstrip(":").isdigit() or not text.strip()
            unlabelled = not self.output.labelled and message.status is None
            text = "" if label else text if unlabelled else f"{text}\n"
        if text:
            os.write(2, text.encode(errors="surrogateescape"))

    def _close(self, status: int) -> int:
        if self.signal:
            say(f"{signal.Signals(self.signal).name}: all ranks have ended")
            return 128 + self.signal
        status = 128 - status if status < 0 else status
        if self.is_lost:
            return status or 1
        verdict = self.ranks.verdict(status)
        for sentence in verdict.sentences:
            say(sentence)
        return verdict.exit_code


def say(sentence: str) -> None:
    """Write one line to standard error."""
    os.write(2, f"gpuspawner-run: {sentence}\n".encode(errors="replace"))
