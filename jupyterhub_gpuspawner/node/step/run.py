"""``gpuspawner-run``: start a step, pass its output on, and end it with its user's Ctrl-C.

``srun`` runs in a session of its own, so that signals reach only this process, which decides what they mean. If this
process is killed, the kernel ends srun, and srun its ranks.
"""

from __future__ import annotations

import os
import secrets
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child, scontrol
from jupyterhub_gpuspawner.node.step import endings, job, network, options, srun
from jupyterhub_gpuspawner.node.step.srun import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from jupyterhub_gpuspawner.node.step.options import Options

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
    return run(options.parse(arguments), os.environ, archive=lambda: archive, plan=_text(plan) or "{}")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def run(options: Options, environ: Mapping[str, str], *, archive: Callable[[], bytes], plan: str) -> int:
    """Run the step to its end and return its exit code. ``plan``: the server's launch plan, for policy and topology."""
    try:
        mine = job.read(environ, scontrol.answer_about_job(environ))
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
        words = srun.without_own_binding(srun.command(options, mine, where, hosts=hosts.name, bindings=kinds), kinds)
        if options.verbose:
            shown = words[: words.index("/bin/sh")]
            say(f"{shlex.join(shown)} {shlex.join(options.command)}")
        watch = endings.Watch(options.limit)
        output = endings.Output(labelled="--label" in words)
        return _Step(words, surroundings, spec.token, where.node_of, watch, output).run()


def _master(mine: job.Job, nodes: Sequence[str]) -> tuple[str, int]:
    """Address and port of the master, which is on the first node; no address if that is the node of this process."""
    here = mine.here == nodes[0]
    port = network.free_port(here=here)
    if len(nodes) == 1:
        return "127.0.0.1", port
    return ("" if here else network.resolved(scontrol.node_address(nodes[0]) or nodes[0])), port


@dataclass
class _Step:
    """A running srun, and what its ranks have said."""

    words: Sequence[str]
    environ: Mapping[str, str]
    token: str
    node_of: Sequence[str]
    watch: endings.Watch
    output: endings.Output
    ended: list[endings.Ending] = field(default_factory=list)
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
                for sentence in endings.silence(self.lost, self.node_of, self.watch.limit):
                    say(sentence)
                step.send_signal(signal.SIGTERM)

    def _line(self, line: bytes) -> None:
        if line == endings.NOISE:
            return
        text, message = endings.parse(line.decode(errors="surrogateescape"), self.token)
        if message is not None:
            self.heard = True
            self.watch.heard(message)
            self.ended += [message] if isinstance(message, endings.Ending) else []
            # What is left is the label of srun, or an unfinished line of the rank.
            label = text.strip().rstrip(":").isdigit() or not text.strip()
            text = "" if label else f"{text}\n" if self.output.labelled or isinstance(message, endings.Ending) else text
        if text:
            os.write(2, text.encode(errors="surrogateescape"))

    def _close(self, status: int) -> int:
        if self.signal:
            say(f"{signal.Signals(self.signal).name}: all ranks have ended")
            return 128 + self.signal
        status = 128 - status if status < 0 else status
        if self.lost:
            return status or 1
        verdict = endings.judge(self.ended, self.node_of, status, started=self.heard or not self.watch.limit)
        for sentence in verdict.sentences:
            say(sentence)
        return verdict.exit_code


def say(sentence: str) -> None:
    """Write one line to standard error."""
    os.write(2, f"gpuspawner-run: {sentence}\n".encode(errors="replace"))
