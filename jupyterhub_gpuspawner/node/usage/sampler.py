"""A process beside the server that samples what it uses, and sends a summary to the hub from time to time.

It is the process that reports the server's port (:mod:`~jupyterhub_gpuspawner.node.report.retry`), which then is a
thread of it; it ends with the server. Whatever fails here, the server does not notice.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import threading
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.usage.window import Sample, Window, same_number
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT
from jupyterhub_gpuspawner.wire.documents import (
    FIRST_SAMPLES,
    LONGEST,
    SAMPLES,
    USAGE_VERSION,
    GpuUse,
    UsageSummary,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from jupyterhub_gpuspawner.node.usage.window import GpuReading
    from jupyterhub_gpuspawner.wire.documents import PlacementDocument

    Readings = tuple[tuple[GpuReading, ...], tuple[str, ...]]
    Result = TypeVar("Result")

DRIVER_PATIENCE = 10.0
"""Seconds that the driver has for one sample."""
HUB_PATIENCE = 30.0
"""Seconds that sending a summary may take, with looking up the hub's name."""
LAST_PATIENCE = 1.0
"""The same for the last summary, whose answer is not waited for."""
LATEST = "usage.json"
"""In the folder of the companion of JupyterLab: the last sample, which the companion shows."""
_POLL = 2.0
"""Seconds between two looks whether the server lives, where the kernel has no pidfd (Linux before 5.3)."""
_GONE = (404, 405)
"""The hub's status where it takes no summaries of this server."""


class Aside:
    """Work that may hang, in a thread beside: its caller waits for a limited time, and for one thing at a time.

    A driver that does not respond, or a resolver, blocks its thread; the sampler goes on without it. The thread does
    not keep the process from ending (:func:`~jupyterhub_gpuspawner.node.child.leave` ends it by ``_exit``).
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def ask(self, work: Callable[[], Result], seconds: float) -> Result:
        """What ``work`` returns or raises; TimeoutError after ``seconds`` or while earlier work hangs."""
        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
                errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._thread.join(seconds)
        if results:
            return results[0]
        if errors:
            raise errors[0]
        raise TimeoutError


class UnwantedError(Exception):
    """The hub takes no summaries of this server."""


class Sampler:
    """Samples until the server has ended, and sends the summaries."""

    def __init__(
        self,
        about: UsageSummary,
        *,
        read_sample: Callable[[], Sample],
        send: Callable[[UsageSummary], bool],
        over: Callable[[float], bool],
    ) -> None:
        """``look`` takes a sample. ``send`` returns whether the hub has taken a summary, or raises UnwantedError.

        ``over`` waits for so many seconds, or until the server has ended, and returns whether it has.
        """
        self._about, self._look, self._send, self._over = about, read_sample, send, over

    def run(self) -> bool:
        """Sample and send until the server has ended (True), or the hub does not want it (False).

        The first sample is taken after an interval, so as not to compete with the server's start. Samples whose summary
        the hub did not take are part of the next one; after an hour they are dropped.
        """
        if self._over(self._about.interval):
            return True
        window = Window(self._look())
        wanted, due = FIRST_SAMPLES, window.start.at
        try:
            while True:
                due = max(due + self._about.interval, window.last.at)
                over = self._over(due - window.last.at)
                if over:  # without another sample: Slurm waits for this process, too
                    self._send(replace(window.summary(self._about), final=True))
                    return True
                window.add(self._look())
                if window.samples >= wanted:
                    if self._send(window.summary(self._about)) or window.seconds > LONGEST:
                        window, wanted = Window(window.last), SAMPLES
                    else:
                        wanted = window.samples + SAMPLES
        except UnwantedError:
            return False


def accompany(
    placement: PlacementDocument,
    interval: float,
    environ: Mapping[str, str],
    server: int,
    *,
    meanwhile: Callable[[], object],
) -> None:
    """Sample the server with this pid every ``interval`` seconds until it ends, and do ``meanwhile`` in a thread."""
    gc.enable()  # the launcher, whose fork this is, has no time for it
    over = until_over(server)
    reporting = threading.Thread(target=meanwhile, daemon=True)
    reporting.start()
    about = UsageSummary(
        job_id=placement.job_id,
        interval=interval,
        simulated=placement.simulated,
        gpus=tuple(
            GpuUse(gpu.index, gpu.uuid, gpu.mig, memory_mib=gpu.memory_mib, mig_device=gpu.mig_device)
            for gpu in placement.gpus
        )[:LIST_LIMIT],
    )
    post = Aside()
    looking, folder = Looking(placement, environ, server), companion_folder(environ)

    def read_sample() -> Sample:
        sample = looking.read_sample()
        show(sample, about, folder)
        return sample

    sampler = Sampler(
        about,
        read_sample=read_sample,
        send=lambda summary: _send(summary, environ, post),
        over=over,
    )
    if not sampler.run():
        reporting.join()


def companion_folder(environ: Mapping[str, str]) -> str:
    """The folder of the companion of JupyterLab, if there is one, beside the launcher."""
    from jupyterhub_gpuspawner.node.job_dir import COMPANION

    return os.path.join(os.path.dirname(environ.get("GPUSPAWNER_LAUNCHER", "")), COMPANION)


def show(sample: Sample, about: UsageSummary, folder: str) -> None:
    """Write the GPUs' part of a sample for the companion, in place of the one before; without the folder, nothing.

    JupyterLab shows it also while the hub does not respond. Nothing depends on it: an error is ignored.
    """
    gpus = [
        {"index": of.index, "mig": of.mig, "mig_device": of.mig_device, **asdict(reading)}
        for of, reading in zip(about.gpus, sample.gpus)
    ]
    document = {
        "version": USAGE_VERSION,
        "at": time.time(),
        "interval": about.interval,
        "simulated": about.simulated,
        "gpus": gpus,
        "problems": sample.problems,
    }
    file = os.path.join(folder, LATEST)
    try:
        with open(f"{file}.new", "w", encoding="utf-8") as writing:
            json.dump(document, writing)
        os.replace(f"{file}.new", file)
    except OSError:
        return


class Looking:
    """Takes samples of the server's GPUs and of its job."""

    def __init__(self, placement: PlacementDocument, environ: Mapping[str, str], server: int) -> None:
        self._gpus = placement.gpus[:LIST_LIMIT]
        self._simulated = placement.simulated
        self._environ = environ
        self._server = server
        self._aside = Aside()
        self._read: Callable[[], Readings] | None = None

    def read_sample(self) -> Sample:
        """A sample now; a driver that does not respond in time leaves its part unknown."""
        from jupyterhub_gpuspawner.node.usage import host

        gpus: tuple[GpuReading, ...] = ()
        problems: tuple[str, ...] = ()
        if self._gpus:
            try:
                gpus, problems = self._aside.ask(self._read_gpus, DRIVER_PATIENCE)
            except TimeoutError:
                problems = (
                    f"The use of the GPUs is unknown: the driver did not respond within {DRIVER_PATIENCE:g} s.",
                )
            except Exception as error:  # noqa: BLE001 - whatever the driver does, the job's part is known
                problems = (printable(f"The use of the GPUs is unknown: {error}."),)
        spent = host.read(self._server, job=self._environ.get("SLURM_JOB_ID", ""))
        return Sample(time.monotonic(), same_number(gpus, len(self._gpus)), spent, problems)

    def _read_gpus(self) -> Readings:
        if self._read is None:
            self._read = self._of_simulated if self._simulated else self._of_driver()
        return self._read()

    def _of_simulated(self) -> Readings:
        from jupyterhub_gpuspawner.node.usage import window

        now = time.time()
        return tuple(
            window.reading(gpu.index, gpu.memory_mib, now, mig=gpu.mig is not None, uuid=gpu.uuid) for gpu in self._gpus
        ), ()

    def _of_driver(self) -> Callable[[], Readings]:
        from jupyterhub_gpuspawner.node.usage import nvml

        return nvml.Gpus(self._gpus, shared=nvml.is_shared(self._environ)).read


def _send(summary: UsageSummary, environ: Mapping[str, str], aside: Aside) -> bool:
    from jupyterhub_gpuspawner.node.report import http

    body = summary.dumps().encode()
    patience = LAST_PATIENCE if summary.final else HUB_PATIENCE
    try:
        aside.ask(lambda: http.post(body, environ, to="usage", wait=not summary.final), patience)
    except http.RefusedError as refused:
        if refused.status in _GONE:
            raise UnwantedError from refused
        return False
    except (OSError, ValueError):  # TimeoutError is one of the first
        return False
    return True


def until_over(server: int) -> Callable[[float], bool]:
    """A function that waits for so many seconds, or until the process ``server`` ends or this one gets SIGTERM.

    It returns whether one of these has happened. Slurm sends SIGTERM to all processes of a job before its end.
    """
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    try:
        poll.register(os.pidfd_open(server), select.POLLIN)
        longest = float("inf")
    except ProcessLookupError:
        return lambda _: True
    except (AttributeError, OSError):  # no such call in this kernel, or a sandbox that forbids it
        longest = _POLL

    def over(seconds: float) -> bool:
        ends_at = time.monotonic() + seconds
        while True:
            left = max(0.0, ends_at - time.monotonic())
            if poll.poll(min(left, longest) * 1000) or not _lives(server):
                return True
            if not left:
                return False

    return over


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
